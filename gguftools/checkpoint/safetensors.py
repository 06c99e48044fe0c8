"""safetensors, read and written: an 8-byte length, a JSON table, the bytes. Each claim is checked first."""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ..errors import FormatError

MADE_HERE = {"format": "pt", "made_by": "gguftools"}  # the metadata of each file that we write
HEADER_CAP = 100_000_000  # bytes of the JSON table; the reference implementation's own cap
_ITEM = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "U16": 2, "I16": 2, "F16": 2,
    "BF16": 2, "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor in one file: dtype as safetensors names it, shape outermost first, absolute byte range."""

    path: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        return self.stop - self.start


def read_table(path: Path) -> dict[str, Entry]:
    """The tensors of one file in file order. Raises FormatError with the offset of what is wrong."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(8)
        length = header_length(head, size, path)
        return parse_table(file.read(length), size, path)


def is_made_here(path: Path) -> bool:
    """Whether `table_bytes` wrote the head of this file."""
    try:
        with path.open("rb") as file:
            length = header_length(file.read(8), path.stat().st_size, path)
            root = json.loads(file.read(length))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(root, dict) and root.get("__metadata__") == MADE_HERE


def header_length(head: bytes, size: int, path: Path) -> int:
    """Bytes of the JSON table, from the file's first 8 bytes and its size. Raises FormatError."""
    if len(head) < 8:
        raise FormatError(path, 0, f"it has {len(head)} bytes, a safetensors file at least 8", _AGAIN)
    length: int = struct.unpack("<Q", head[:8])[0]
    if length > HEADER_CAP:
        raise FormatError(path, 0, f"its table would have {length} bytes, more than {HEADER_CAP}", _AGAIN)
    if length > size - 8:
        raise FormatError(path, 8, f"it ends inside its table ({size} bytes, table {length})", _AGAIN)
    return length


def parse_table(table: bytes, size: int, path: Path) -> dict[str, Entry]:
    """The tensors of a file of `size` bytes with this JSON table: inside the file, no gap, no overlap.

    Raises FormatError.
    """
    try:
        root = json.loads(table, object_pairs_hook=_no_doubles)
    except (ValueError, RecursionError) as error:
        raise FormatError(path, 8, f"its table is not good JSON: {error}", _AGAIN) from None
    if not isinstance(root, dict):
        raise FormatError(path, 8, "its table is not a JSON object", _AGAIN)
    base = 8 + len(table)
    entries = [_entry(path, base, size, name, item) for name, item in root.items() if name != "__metadata__"]
    entries.sort(key=lambda entry: (entry.start, entry.stop))
    at = base
    for entry in entries:
        if entry.start != at:
            word = "overlaps the tensor before it" if entry.start < at else "leaves a gap before it"
            raise FormatError(path, entry.start, f"{entry.name} {word}", _AGAIN)
        at = entry.stop
    if at != size:
        raise FormatError(path, at, f"its tensors end at byte {at}, the file has {size}", _AGAIN)
    return {entry.name: entry for entry in entries}


def read_bytes(entry: Entry, start: int, nbytes: int) -> NDArray[np.uint8]:
    """`nbytes` bytes of a tensor from its byte `start` on. Raises FormatError when the file ends before."""
    if not 0 <= start <= start + nbytes <= entry.nbytes:
        raise FormatError(entry.path, entry.start, f"{entry.name} has {entry.nbytes} bytes only", _AGAIN)
    data = np.fromfile(entry.path, dtype=np.uint8, count=nbytes, offset=entry.start + start)
    if data.size != nbytes:
        raise FormatError(entry.path, entry.start + start + data.size, f"it ends inside {entry.name}", _AGAIN)
    return data


def table_bytes(tensors: Sequence[tuple[str, str, tuple[int, ...], int]]) -> bytes:
    """The head of a file to come (length and table) for tensors (name, dtype, shape, bytes) in this order."""
    table: dict[str, Any] = {"__metadata__": MADE_HERE}
    at = 0
    for name, dtype, shape, nbytes in tensors:
        table[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + nbytes]}
        at += nbytes
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def write_pieces(file: BinaryIO, pieces: Iterable[NDArray[np.generic]]) -> int:
    """Writes arrays one after the other; returns the bytes written."""
    written = 0
    for piece in pieces:
        data = np.ascontiguousarray(piece)
        file.write(data.data)
        written += data.nbytes
    return written


_AGAIN = "download it again"


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        name, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"{name!r} is there twice")
    return found


def _entry(path: Path, base: int, size: int, name: str, item: Any) -> Entry:
    """One row of the table, checked alone: known dtype, sane shape, a range in the file that fits both."""
    if not isinstance(item, Mapping):
        raise FormatError(path, 8, f"{name} has no description", _AGAIN)
    dtype, shape, offsets = item.get("dtype"), _counts(item.get("shape")), _counts(item.get("data_offsets"))
    if not isinstance(dtype, str) or dtype not in _ITEM:
        raise FormatError(path, 8, f"{name} has the unknown type {dtype!r}", _AGAIN)
    if shape is None or len(shape) > 8:
        raise FormatError(path, 8, f"{name} has the shape {item.get('shape')!r}", _AGAIN)
    if offsets is None or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise FormatError(path, 8, f"{name} has the byte range {item.get('data_offsets')!r}", _AGAIN)
    start, stop = base + offsets[0], base + offsets[1]
    if stop > size:
        why = f"{name} ends at byte {stop}, the file has {size}: it is cut short"
        raise FormatError(path, size, why, _AGAIN)
    wanted = _ITEM[dtype]
    for extent in shape:
        wanted *= extent
    if wanted != stop - start:
        raise FormatError(
            path, start, f"{name} needs {wanted} bytes for {shape}, its range has {stop - start}", _AGAIN
        )
    return Entry(path, name, dtype, tuple(shape), start, stop)


def _counts(value: Any) -> list[int] | None:
    """`value` where it is a list of counts that fit 64 bits (a bool is none), else None."""
    good = isinstance(value, list) and all(type(n) is int and 0 <= n < 1 << 63 for n in value)
    return value if good else None
