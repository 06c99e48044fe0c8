"""Names and values of keys as people give them, KEY, KEY:TYPE, KEY:TYPE[] and KEY[I], checked."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import InputError
from ...header import StringArray
from ...header.ggml_types import DTYPES, SCALARS, ValueType
from ...vocab import TokenType, special

PREFIX = "tokenizer.ggml."
TEMPLATE = "tokenizer.chat_template"
KINDS = {kind.name.lower(): kind for kind in ValueType if kind != ValueType.ARRAY}

# The types of keys that libllama reads, for those that a file may lack.
KNOWN = {
    **{PREFIX + key: ValueType.U32 for key in special.KEYS.values()},
    **{PREFIX + f"add_{what}": ValueType.BOOL for what in ("bos_token", "eos_token", "space_prefix")},
    **dict.fromkeys((PREFIX + "pre", PREFIX + "model", TEMPLATE, "general.name"), ValueType.STR),
}

_ELEMENT = re.compile(r"(?P<key>.+)\[(?P<index>\d{1,9})\]", re.DOTALL)
_TYPED = re.compile(r"(?P<key>.+):(?P<type>\w*)(?P<list>\[\])?", re.DOTALL)
_NEW = re.compile(r"[A-Za-z0-9_.\-]{1,200}")
_WHOLE = re.compile(r"[+-]?\d{1,30}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Name:
    """What KEY, KEY:TYPE, KEY:TYPE[] and KEY[I] mean."""

    key: str
    index: int | None = None
    kind: ValueType | None = None
    is_list: bool = False


def parse(text: str, known: Sequence[str] | dict[str, Any]) -> Name:
    """`text` as a Name; one of the `known` keys is meant wherever it reads like one. Raises InputError."""
    if text in known:
        return Name(text)
    kind, is_list, rest = None, False, text
    if match := _TYPED.fullmatch(text):
        if match["type"] not in KINDS:
            why = f"the types are {', '.join(KINDS)}; [] behind one means a list"
            raise InputError(f"{text}: {match['type'] or 'nothing'} is no type", why, "write KEY:TYPE=VALUE")
        kind, is_list, rest = KINDS[match["type"]], bool(match["list"]), match["key"]
    if rest not in known and (match := _ELEMENT.fullmatch(rest)):
        return Name(match["key"], int(match["index"]), kind, is_list)
    if rest not in known and not _NEW.fullmatch(rest):
        why = "a new key's name has letters, digits and . _ - alone"
        raise InputError(f"{rest or 'an empty name'!r} cannot be a key", why, "check the spelling")
    return Name(rest, None, kind, is_list)


def scalar(name: str, value: Any, kind: int) -> Any:
    """`value`, a text or a Python value, as what a key of this type holds. Raises InputError."""
    if kind == ValueType.STR:
        return _text(name, value)
    if kind == ValueType.BOOL:
        return _bool(name, value)
    if kind in (ValueType.F32, ValueType.F64):
        return _float(name, value, kind)
    return _int(name, value, kind)


def array(name: str, value: Any, kind: int) -> Any:
    """A list, or a JSON list as text, as an array of a GGUF. Raises InputError."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = None
    if isinstance(value, np.ndarray | StringArray):
        value = value.tolist()
    if not isinstance(value, list | tuple):
        hint = f"give all as [1, 2, 3], or one as {name}[I]=VALUE"
        raise InputError(f"{name} holds a list of {label(kind)}", "the value given is no JSON list", hint)
    items = [scalar(f"{name}[{i}]", item, kind) for i, item in enumerate(value)]
    if kind == ValueType.STR:
        return StringArray.pack([item.encode() for item in items])
    return np.array(items, DTYPES[ValueType(kind)])


def parse_token_type(value: Any) -> int:
    """CONTROL, control, or 3. Raises InputError."""
    text = str(value).strip().upper()
    if text in TokenType.__members__:
        return int(TokenType[text])
    if _WHOLE.fullmatch(text) and int(text) in set(map(int, TokenType)):
        return int(text)
    names = ", ".join(f"{kind.name} ({kind.value})" for kind in TokenType)
    raise InputError(f"{value} is no type of a token", f"there are {names}", "give a name or a number")


def label(kind: int, *, is_list: bool = False) -> str:
    """The type as people write it."""
    return ValueType(kind).name.lower() + "[]" * is_list


def _text(name: str, value: Any) -> str:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    if not isinstance(value, str):
        raise _wrong(name, value, "a text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _wrong(name, value, "a text in UTF-8") from None
    return value


def _bool(name: str, value: Any) -> bool:
    if isinstance(value, bool | np.bool_) or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise _wrong(name, value, "true or false")


def _float(name: str, value: Any, kind: int) -> float:
    what = f"{label(kind)}, a finite number"
    if isinstance(value, bool) or not isinstance(value, str | int | float | np.integer | np.floating):
        raise _wrong(name, value, what)
    try:
        number = float(value)
        SCALARS[ValueType(kind)].pack(number)
    except (ValueError, OverflowError):
        raise _wrong(name, value, what) from None
    if not math.isfinite(number):
        raise _wrong(name, value, what)
    return number


def _int(name: str, value: Any, kind: int) -> int:
    limits = np.iinfo(DTYPES[ValueType(kind)])
    what = f"{label(kind)}, a whole number from {limits.min:,} to {limits.max:,}"
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise _wrong(name, value, what)
    if not limits.min <= value <= limits.max:
        raise _wrong(name, value, what)
    return int(value)


def _wrong(name: str, value: Any, what: str) -> InputError:
    shown = repr(value if len(repr(value)) <= 60 else f"{str(value)[:50]}…")
    return InputError(f"{name} cannot be {shown}", f"it is {what}", "give such a value")
