"""Writing a GGUF v3 as a stream: first the header, then each tensor's bytes in the announced order.

The gguf package's writer wants whole tensors; here a tensor may come in pieces, so memory stays small.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from .errors import InputError
from .header.ggml_types import DTYPES, SCALARS, ValueType
from .header.strings import StringArray

ALIGNMENT = 32

Key = tuple[str, Any, int]  # name, value, ValueType; of an array, its elements' type


@dataclass(frozen=True, slots=True)
class Announced:
    """One tensor of the file to come: shape fastest first, ggml type, bytes without padding."""

    name: str
    shape: tuple[int, ...]
    type: int
    nbytes: int


def header_bytes(keys: Iterable[Key], tensors: Sequence[Announced]) -> bytes:
    """Everything before the first tensor, padded to ALIGNMENT. Raises InputError for a key given twice."""
    packed: dict[str, bytes] = {}
    for name, value, kind in keys:
        if name in packed:
            raise InputError(
                f"the key {name} is given twice",
                "a GGUF holds each key once",
                "this is a mistake of gguftools: please report it",
            )
        packed[name] = key_bytes(name, value, kind)
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(packed)), *packed.values()]
    offset = 0
    for tensor in tensors:
        parts.append(table_row(tensor, offset))
        offset += padded(tensor.nbytes)
    head = b"".join(parts)
    return head + bytes(padded(len(head)) - len(head))


def key_bytes(name: str, value: Any, kind: int) -> bytes:
    """One key of the header: name, type, value. Raises InputError for a value that the type cannot hold."""
    return _string(name) + _value(name, value, kind)


def table_row(tensor: Announced, offset: int) -> bytes:
    """The tensor's line in the header; `offset` is from the first tensor's first byte."""
    numbers = struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape)
    return _string(tensor.name) + numbers + struct.pack("<IQ", tensor.type, offset)


def data_bytes(tensors: Iterable[Announced]) -> int:
    """Bytes of the tensor data with its padding."""
    return sum(padded(tensor.nbytes) for tensor in tensors)


def write_tensor(file: BinaryIO, tensor: Announced, pieces: Iterable[np.ndarray[Any, Any]]) -> None:
    """Writes one tensor from its pieces, then the padding. Raises InputError when the bytes do not add up."""
    written = 0
    for piece in pieces:
        data = np.ascontiguousarray(piece)
        file.write(data.data)
        written += data.nbytes
    if written != tensor.nbytes:
        raise InputError(
            f"{tensor.name} has {written} bytes",
            f"{tensor.nbytes} were announced",
            "this is a mistake of gguftools: please report it",
        )
    file.write(bytes(padded(written) - written))


def padded(nbytes: int) -> int:
    """`nbytes` rounded up to ALIGNMENT."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _string(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else bytes(value)
    return struct.pack("<Q", len(data)) + data


def _value(name: str, value: Any, kind: int) -> bytes:
    """The type and the value; arrays are StringArrays, numpy arrays, and lists of strings."""
    if isinstance(value, np.ndarray):
        array = np.ascontiguousarray(value, DTYPES[ValueType(kind)])
        return struct.pack("<IIQ", ValueType.ARRAY, kind, array.size) + array.tobytes()
    if isinstance(value, StringArray):
        return struct.pack("<IIQ", ValueType.ARRAY, kind, len(value)) + value.raw
    if isinstance(value, list | tuple):
        items = b"".join(_string(item) for item in value)
        return struct.pack("<IIQ", ValueType.ARRAY, kind, len(value)) + items
    packed = _string(value) if kind == ValueType.STR else _scalar(name, value, kind)
    return struct.pack("<I", kind) + packed


def _scalar(name: str, value: Any, kind: int) -> bytes:
    try:
        return SCALARS[ValueType(kind)].pack(value)
    except (struct.error, OverflowError):
        raise InputError(
            f"the key {name} cannot hold {value!r}",
            f"it is {ValueType(kind).name}",
            "mend the checkpoint's JSON files",
        ) from None
