"""What an edit changes: the keys before and after, compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import gguf_write
from ...header import StringArray
from .keys import Keys, is_list
from .values import label

LISTED = 64  # elements of a list that are given; of a longer one its length alone


@dataclass(frozen=True, slots=True)
class Change:
    """One key, or one element of a list. `old` None: it is new; `new` None: it goes."""

    key: str
    old: Any
    new: Any
    old_type: str | None
    new_type: str | None

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def between(old: Keys, new: Keys) -> tuple[Change, ...]:
    """The changes that lead from one to the other, in the order of the file."""
    return tuple(_changes(old, new))


def _changes(old: Keys, new: Keys) -> Iterator[Change]:
    for key in [*old, *(key for key in new if key not in old)]:
        before, after = old.get(key), new.get(key)
        if before is None or after is None:
            yield Change(key, _shown(before), _shown(after), _label(before), _label(after))
        elif _is_same(key, before, after):
            continue
        elif _same_kind(before, after):
            yield from _elements(key, before, after)
        else:
            yield Change(key, _shown(before), _shown(after), _label(before), _label(after))


def _is_same(key: str, before: tuple[Any, int], after: tuple[Any, int]) -> bool:
    """Whether both are the same bytes in a file."""
    untouched = before[0] is after[0] and before[1] == after[1]
    return untouched or gguf_write.key_bytes(key, *before) == gguf_write.key_bytes(key, *after)


def _same_kind(before: tuple[Any, int], after: tuple[Any, int]) -> bool:
    lists = is_list(before[0]) and is_list(after[0])
    return lists and before[1] == after[1] and len(before[0]) == len(after[0])


def _elements(key: str, before: tuple[Any, int], after: tuple[Any, int]) -> Iterator[Change]:
    kind = label(before[1])
    for i in _differing(before[0], after[0]):
        yield Change(f"{key}[{i}]", _plain(before[0][i]), _plain(after[0][i]), kind, kind)


def _differing(a: Any, b: Any) -> list[int]:
    if isinstance(a, StringArray):
        return [i for i, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)) if x != y]
    same = np.array([x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True)]) if a.size < 2 else a == b
    found: list[int] = np.flatnonzero(~np.asarray(same)).tolist()
    return found


def _label(content: tuple[Any, int] | None) -> str | None:
    return None if content is None else label(content[1], is_list=is_list(content[0]))


def _shown(content: tuple[Any, int] | None) -> Any:
    if content is None:
        return None
    value, kind = content
    if not is_list(value):
        return value
    if len(value) <= LISTED:
        return [_plain(item) for item in value]
    return f"{len(value):,} {label(kind)}"


def _plain(item: Any) -> Any:
    if isinstance(item, bytes):
        return item.decode("utf-8", "backslashreplace")
    return item.item() if isinstance(item, np.generic) else item
