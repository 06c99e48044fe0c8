"""The keys of a GGUF while they are edited: set, removed, copied, one element of a list changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import InputError
from ...header import Header, StringArray
from ...header.ggml_types import ValueType
from ...template.sandbox import MAX_SOURCE
from .values import KINDS, KNOWN, PREFIX, TEMPLATE, Name, array, label, parse, parse_token_type, scalar

FILLER = "gguftools.filler"  # zeros that let the tensor data begin where a file system can share them
_FIXED = {
    "general.alignment": "all tensors would have to move",
    "split.": "it says how the shards belong together",
}

Keys = dict[str, tuple[Any, int]]  # name → value, ValueType; of an array, its elements' type


def of(header: Header) -> Keys:
    """A file's keys to work on, without our own filler."""
    return {key: (value, header.types[key]) for key, value in header.keys.items() if key != FILLER}


def sealed(keys: Keys) -> Keys:
    """The same with all lists of strings packed."""
    return {
        key: (StringArray.pack(value) if isinstance(value, list) else value, kind)
        for key, (value, kind) in keys.items()
    }


def is_list(value: Any) -> bool:
    return isinstance(value, list | StringArray | np.ndarray)


def refuse_fixed(key: str) -> None:
    """Raises InputError for a key that is part of how the file is laid out."""
    for fixed, why in _FIXED.items():
        if key.startswith(fixed):
            raise InputError(f"{key} cannot be edited", why, "convert or split the model again")


def set_value(keys: Keys, name: str, value: Any) -> None:
    """KEY=VALUE with the type that KEY has, KEY:TYPE=VALUE, KEY[I]=VALUE; None keeps the value, KEY:TYPE.

    Raises InputError.
    """
    wanted = parse(name, keys)
    refuse_fixed(wanted.key)
    if wanted.index is not None:
        if value is None:
            raise _no_value(name)
        _set_element(keys, wanted.key, wanted.index, value, wanted.kind)
        return
    present = keys.get(wanted.key)
    if value is None:
        if present is None or wanted.kind is None:
            raise _no_value(name)
        value = present[0].tolist() if isinstance(present[0], np.ndarray) else present[0]
    kind, as_list = _type(wanted, present)
    made = array(wanted.key, value, kind) if as_list else scalar(wanted.key, value, kind)
    if isinstance(made, str) and not made and wanted.key != TEMPLATE:
        hint = f"to drop the key: --remove {wanted.key}"
        raise InputError(f"{wanted.key} would be empty", "an empty text says nothing", hint)
    keys[wanted.key] = (made, kind)


def _no_value(name: str) -> InputError:
    return InputError(f"{name}: no value", "only KEY:TYPE of a key that is there needs none", "KEY=VALUE")


def _type(wanted: Name, present: tuple[Any, int] | None) -> tuple[int, bool]:
    if wanted.kind is not None:
        return wanted.kind, wanted.is_list or (present is not None and is_list(present[0]))
    if present is not None:
        return present[1], is_list(present[0])
    if wanted.key in KNOWN:
        return KNOWN[wanted.key], False
    raise InputError(
        f"{wanted.key} is not in the file",
        "a new key needs a type",
        f"give it as {wanted.key}:TYPE=VALUE; types: {', '.join(KINDS)}, with [] for a list",
    )


def _set_element(keys: Keys, key: str, i: int, value: Any, wanted: int | None = None) -> None:
    what = f"{key}[{i}]"
    content = _opened(keys, key, what)
    kind = keys[key][1]
    if wanted not in (None, kind):
        why = f"the list holds {label(kind)}"
        raise InputError(f"{what} cannot have a type of its own", why, "leave out the type")
    if i >= len(content):
        raise _beyond(what, len(content))
    made = scalar(what, value, kind)
    content[i] = made.encode() if kind == ValueType.STR else made


def _beyond(what: str, count: int) -> InputError:
    return InputError(
        f"{what} is not there", f"the list has {count:,} elements, counted from 0", "count again"
    )


def _opened(keys: Keys, key: str, what: str) -> Any:
    """The list under `key`, to be changed; it is copied once. Raises InputError where there is none."""
    value, kind = keys.get(key, (None, 0))
    if isinstance(value, StringArray):
        value = value.tolist()
    elif isinstance(value, np.ndarray):
        value = value if value.flags.writeable else value.copy()
    elif not isinstance(value, list):
        why = "the key is not in the file" if value is None else "the key is no list"
        raise InputError(f"{what} is not there", why, "check the spelling")
    keys[key] = (value, kind)
    return value


def set_token(keys: Keys, i: int, text: str) -> None:
    """The stored text of token `i`: of byte-level BPE, ordinary tokens are in byte letters. InputError."""
    if not text:
        raise InputError(
            f"token {i} would be empty", "a token's text has a character at least", "give a text"
        )
    _set_element(keys, PREFIX + "tokens", _index(i), text)


def set_token_type(keys: Keys, i: int, kind: Any) -> None:
    """The type of token `i`, by name or number. Raises InputError."""
    _set_element(keys, PREFIX + "token_type", _index(i), parse_token_type(kind))


def _index(i: int) -> int:
    if isinstance(i, bool) or not isinstance(i, int) or i < 0:
        raise InputError(f"{i!r} is no token", "tokens are counted from 0", "give a number")
    return i


def set_template(keys: Keys, source: str) -> None:
    """The chat template. Raises InputError for one that no sandbox takes; see `judge.template_failure`."""
    if len(source) > MAX_SOURCE:
        why = f"it has {len(source):,} characters, at most {MAX_SOURCE:,} are read"
        raise InputError("the chat template is too long", why, "give the model's own")
    keys[TEMPLATE] = (scalar(TEMPLATE, source, ValueType.STR), int(ValueType.STR))


def remove(keys: Keys, key: str) -> None:
    """Raises InputError for a key that is not there."""
    refuse_fixed(key)
    if key not in keys:
        import difflib

        near = difflib.get_close_matches(key, keys, 1, 0.7)
        hint = f"did you mean {near[0]}?" if near else "check the spelling"
        raise InputError(f"{key} is not in the file", "there is nothing to remove", hint)
    del keys[key]


def copy(keys: Keys, names: Sequence[str], source: Header) -> None:
    """Keys as another file has them, with their types. Raises InputError for one that it lacks."""
    for key in names:
        refuse_fixed(key)
        if key not in source.keys:
            raise InputError(
                f"{key} is not in {source.path}", "there is nothing to copy", "check the spelling"
            )
        keys[key] = (source.keys[key], source.types[key])
