"""read_header: keys, tensor table and string arrays of a GGUF, single or split, without reading its tensors.

The file is mapped, walked by csrc/scan.c, and only the header's own bytes are kept: nothing stays open, so
the file can be replaced afterwards on any system. Memory is at most six times MAX_HEADER, whatever a file
claims.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .. import _native
from ..errors import FormatError, InputError, NotFound
from . import shards
from .ggml_types import DTYPES, SCALARS, ValueType
from .strings import StringArray as StringArray
from .tensors import TensorInfo as TensorInfo
from .tensors import tensor_table

if TYPE_CHECKING:
    from typing_extensions import Buffer, TypeVar

    T = TypeVar("T", default=None)

MAX_HEADER = 128 << 20  # bytes of keys and tensor table in one file; Kimi-K2's has 7 MB
MAX_ALIGNMENT = 1 << 20

Value = str | int | float | bool | StringArray | NDArray[Any]

_FAULTS = {
    -2: "it does not begin with the letters GGUF{seen}",
    -3: "it is a big-endian GGUF, made for another kind of machine",
    -4: "GGUF version {number} is not supported, only 2 and 3 are",
    -5: "it claims {number} keys, more than the cap of 65,536",
    -6: "it claims {number} tensors, more than the cap of 65,536",
    -7: "a string of {number} bytes is longer than its cap (64 KiB for a name, 16 MiB for a value)",
    -8: "a key without a name",
    -9: "{number} is not a value type of GGUF",
    -10: "an array of arrays, which llama.cpp does not read either",
    -11: "an array of {number} elements; strings are capped at 4,194,304",
    -12: "a tensor with {number} dimensions; ggml has at most 4",
}
_OTHER = "fetch or convert the model again"
_STRANGERS = {
    b"vers": ": it is a Git LFS pointer, the file itself was not downloaded",
    b"<!DO": ": it is a web page",
    b"<!do": ": it is a web page",
    b"<htm": ": it is a web page",
    b"PK\x03\x04": ": it is a zip archive or a PyTorch checkpoint",
    b"ggjt": ": it is from before GGUF",
    b"tjgg": ": it is from before GGUF",
}


class Truncated(FormatError):
    """The bytes end before the header does; at least `needed` bytes from the start are wanted."""

    def __init__(self, path: object, offset: int, why: str, hint: str = "", needed: int = 0) -> None:
        super().__init__(path, offset, why, hint)
        self.needed = needed

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.path, self.offset, self.why, self.hint, self.needed))


@dataclass(frozen=True, slots=True)
class Header:
    """What a GGUF says about itself. The shards of a split model make one Header, with the first's keys."""

    path: Path  # the first shard
    files: tuple[Path, ...]  # all shards, in order
    version: int
    keys: Mapping[str, Value]  # arrays of numbers and of bools are read-only numpy arrays
    types: Mapping[str, int]  # ValueType of each key; of an array, its elements' type
    where: Mapping[str, int]  # byte offset of each key in `path`
    tensors: tuple[TensorInfo, ...]
    data_offset: int  # where the tensor data of `path` begins
    nbytes: int  # of all files; of a buffer, its length

    def _get(self, key: str, kinds: tuple[type, ...], what: str) -> Any:
        value = self.keys.get(key)
        if value is None:
            return None
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise FormatError(self.path, self.where[key], f"the key {key} should be {what}")
        return value

    def get_str(self, key: str, default: T = None) -> str | T:  # type: ignore[assignment]
        """The string under `key`, or `default`; FormatError where it is of another kind, as for all get_*."""
        value: str | None = self._get(key, (str,), "a string")
        return default if value is None else value

    def get_int(self, key: str, default: T = None) -> int | T:  # type: ignore[assignment]
        """The integer (of any width) under `key`, or `default`."""
        value: int | None = self._get(key, (int,), "an integer")
        return default if value is None else value

    def get_float(self, key: str, default: T = None) -> float | T:  # type: ignore[assignment]
        """The number under `key` as a float, or `default`."""
        value: float | None = self._get(key, (int, float), "a number")
        return default if value is None else float(value)

    def get_bool(self, key: str, default: T = None) -> bool | T:  # type: ignore[assignment]
        """The bool under `key`, or `default`."""
        value: bool | None = self._get(key, (bool,), "a bool")
        return default if value is None else value

    def get_array(self, key: str, default: T = None) -> NDArray[Any] | T:  # type: ignore[assignment]
        """The array of numbers or bools under `key`, or `default`."""
        value: NDArray[Any] | None = self._get(key, (np.ndarray,), "an array of numbers")
        return default if value is None else value

    def get_strings(self, key: str, default: T = None) -> StringArray | T:  # type: ignore[assignment]
        """The array of strings under `key`, or `default`."""
        value: StringArray | None = self._get(key, (StringArray,), "an array of strings")
        return default if value is None else value

    def get_plain(self, key: str) -> str | int | float | bool | None:
        """The string, number or bool under `key`; None where there is none, or an array."""
        value = self.keys.get(key)
        return value if isinstance(value, (str, int, float)) else None

    @property
    def architecture(self) -> str:
        """general.architecture; FormatError without it."""
        value = self.get_str("general.architecture")
        if not value:
            raise FormatError(self.path, None, "the key general.architecture is missing", _OTHER)
        return value


def read_header(source: str | Path | Buffer, *, name: str = "") -> Header:
    """The header of a GGUF: a file, any shard of a split model, a folder with one, or a file's first bytes.

    Raises FormatError (path and offset) for anything that is not a whole and consistent header, NotFound for
    a missing file or shard, Truncated for a file or buffer that ends too early. A buffer, called `name` in
    messages, needs no tensor data, and other shards are not looked for.
    """
    if not isinstance(source, (str, Path)):
        view = memoryview(source).cast("B")
        return _parse(view, Path(name or "buffer"), None)
    path = shards.pick(Path(source))
    first = _read_file(path)
    names = shards.names(path, first.keys, first.where)
    if len(names) == 1:
        return first
    return shards.join([first if other == path else _read_file(other) for other in names])


def read_tensor(header: Header, info: TensorInfo) -> memoryview:
    """The bytes of a tensor, mapped read-only; the map closes with the last view of it."""
    path = header.files[info.shard]
    if not info.nbytes:
        return memoryview(b"")
    end = info.offset + info.nbytes
    base = info.offset - info.offset % mmap.ALLOCATIONGRANULARITY
    with _open(path) as file:
        if end > os.fstat(file.fileno()).st_size:
            raise FormatError(path, info.offset, f"the data of {info.name} ends beyond the file")
        view = memoryview(mmap.mmap(file.fileno(), end - base, access=mmap.ACCESS_READ, offset=base))
    return view[info.offset - base :]


def _open(path: Path) -> Any:
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise NotFound(f"{path}: no such file") from None
    except OSError as error:
        why = error.strerror or str(error)
        raise InputError(f"{path}: cannot be read", why, "check its permissions, and the path") from None


def _read_file(path: Path) -> Header:
    with _open(path) as file:
        facts = os.fstat(file.fileno())
        size = facts.st_size
        if not stat.S_ISREG(facts.st_mode):
            raise InputError(f"{path} is no ordinary file", "a GGUF is read in many places", "give a file")
        if not size:
            raise Truncated(path, 0, "the file is empty", "fetch it again", 24)
        try:
            mapped = mmap.mmap(file.fileno(), min(size, MAX_HEADER), access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: cannot be mapped", str(error)) from None
        with mapped, memoryview(mapped) as view:
            return _parse(view, path, size)


def _parse(view: memoryview, path: Path, size: int | None) -> Header:
    """`view` is what there is of the file's beginning, `size` the whole file's bytes (None: unknown)."""
    try:
        version, raw_keys, raw_tensors, end = _native.scan_header(view)
    except _native.ScanError as error:
        raise _fault(error, view, path, size) from None
    data = memoryview(bytes(view[:end]))
    keys: dict[str, Value] = {}
    types: dict[str, int] = {}
    where: dict[str, int] = {}
    for (a, b), kind, is_array, count, (begin, stop) in raw_keys:
        key = _text(data[a:b], path, a - 8, "the name of a key")
        if key in keys:
            raise FormatError(path, a - 8, f"the key {key} is there twice")
        keys[key] = _value(data[begin:stop], kind, count if is_array else None, path, begin, key)
        types[key] = kind
        where[key] = a - 8
    alignment = _alignment(keys, types, path, where)
    data_offset = -(-end // alignment) * alignment if raw_tensors else end
    tensors = tensor_table(raw_tensors, data, path, data_offset, alignment, size)
    nbytes = view.nbytes if size is None else size
    return Header(path, (path,), version, keys, types, where, tensors, data_offset, nbytes)


def _fault(error: _native.ScanError, view: memoryview, path: Path, size: int | None) -> FormatError:
    if error.code != -1:
        seen = _STRANGERS.get(bytes(view[:4]), "")
        hint = "fetch or convert the model for this kind of machine" if error.code == -3 else ""
        why = _FAULTS[error.code].format(number=f"{error.number:,}", seen=seen)
        return FormatError(path, error.at, why, hint)
    if size is not None and size > view.nbytes:
        return FormatError(
            path, error.at, f"its keys and tensor table exceed the cap of {MAX_HEADER:,} bytes"
        )
    why = f"the header goes on to byte {error.needed:,} or further, but there are {view.nbytes:,} bytes"
    return Truncated(
        path, error.at, why, "the download may be incomplete: fetch the file again", error.needed
    )


def _text(data: memoryview, path: Path, offset: int, what: str) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        raise FormatError(path, offset, f"{what} is not UTF-8") from None


def _value(data: memoryview, kind: int, count: int | None, path: Path, offset: int, key: str) -> Value:
    if count is None:
        if kind == ValueType.STR:
            return _text(data, path, offset, f"the value of {key}")
        (number,) = SCALARS[ValueType(kind)].unpack(data)
        if kind != ValueType.BOOL:
            return number  # type: ignore[no-any-return]
        if number > 1:
            raise FormatError(path, offset, f"the bool {key} is {number}, neither 0 nor 1")
        return bool(number)
    if kind == ValueType.STR:
        return StringArray(data, count)
    array = np.frombuffer(data, DTYPES[ValueType(kind)])
    if kind == ValueType.BOOL and count and array.view(np.uint8).max() > 1:
        raise FormatError(path, offset, f"the array of bools {key} holds more than 0 and 1")
    return array


def _alignment(
    keys: Mapping[str, Value], types: Mapping[str, int], path: Path, where: Mapping[str, int]
) -> int:
    key = "general.alignment"
    value = keys.get(key, 32)
    if isinstance(value, int) and types.get(key, ValueType.U32) == ValueType.U32:
        if 0 < value <= MAX_ALIGNMENT and value & (value - 1) == 0:
            return value
        raise FormatError(path, where[key], f"{key} is {value}: not a power of two up to {MAX_ALIGNMENT:,}")
    raise FormatError(path, where[key], f"{key} is not an unsigned 32-bit number")
