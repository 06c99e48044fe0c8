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
from .ggml_types import DTYPES, SCALARS, ValueType

ALIGNMENT = 32
_ELEMENTS = {np.dtype(name).newbyteorder("<"): kind for kind, name in DTYPES.items()}

Key = tuple[str, Any, int]  # name, value, gguf value type (ARRAY for arrays, whose element type the value tells)


@dataclass(frozen=True, slots=True)
class Announced:
    """One tensor of the file to come: shape in GGUF order (fastest first), ggml type, bytes without padding."""

    name: str
    shape: tuple[int, ...]
    type: int
    nbytes: int


def header_bytes(keys: Iterable[Key], tensors: Sequence[Announced]) -> bytes:
    """Everything before the first tensor, padded to ALIGNMENT. Raises InputError for a key given twice."""
    packed: dict[str, bytes] = {}
    for name, value, kind in keys:
        if name in packed:
            raise InputError(f"the key {name} is given twice", "a GGUF holds each key once")
        packed[name] = _string(name) + struct.pack("<I", kind) + _value(value, kind)
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(packed)), *packed.values()]
    offset = 0
    for tensor in tensors:
        parts.append(_string(tensor.name) + struct.pack("<I", len(tensor.shape)))
        parts.append(struct.pack(f"<{len(tensor.shape)}QIQ", *tensor.shape, tensor.type, offset))
        offset += padded(tensor.nbytes)
    head = b"".join(parts)
    return head + bytes(padded(len(head)) - len(head))


def data_bytes(tensors: Iterable[Announced]) -> int:
    """Bytes of the tensor data with its padding."""
    return sum(padded(tensor.nbytes) for tensor in tensors)


def write_tensor(file: BinaryIO, tensor: Announced, pieces: Iterable[np.ndarray[Any, Any]]) -> None:
    """Writes one tensor from its pieces, then the padding. Raises InputError when the pieces' bytes do not add up."""
    written = 0
    for piece in pieces:
        data = np.ascontiguousarray(piece)
        file.write(data.data)
        written += data.nbytes
    if written != tensor.nbytes:
        raise InputError(f"{tensor.name} has {written} bytes", f"{tensor.nbytes} were announced")
    file.write(bytes(padded(written) - written))


def padded(nbytes: int) -> int:
    """`nbytes` rounded up to ALIGNMENT."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _string(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else bytes(value)
    return struct.pack("<Q", len(data)) + data


def _value(value: Any, kind: int) -> bytes:
    if kind == ValueType.STR:
        return _string(value)
    if kind == ValueType.ARRAY:
        return _array(value)
    return SCALARS[ValueType(kind)].pack(value)


def _array(value: Any) -> bytes:
    if isinstance(value, np.ndarray):
        little = value.astype(value.dtype.newbyteorder("<"), copy=False)
        return struct.pack("<IQ", _ELEMENTS[little.dtype], value.size) + little.tobytes()
    items = [item.encode() if isinstance(item, str) else bytes(item) for item in value]
    lengths = struct.pack(f"<{len(items)}Q", *map(len, items))
    body = b"".join(part for i, item in enumerate(items) for part in (lengths[8 * i : 8 * i + 8], item))
    return struct.pack("<IQ", ValueType.STR, len(items)) + body
