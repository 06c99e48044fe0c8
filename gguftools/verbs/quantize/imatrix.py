"""Importance matrices of llama-imatrix: for each column of a weight, the mean square of its inputs.

Two formats: a GGUF with NAME.in_sum2 (sums of squares, a row for each expert) and NAME.counts; and the older
.dat, which is little endian: int32 entries, then for each int32 length, name, int32 calls, int32 n, n floats,
and at the end, maybe, int32 chunks, int32 length, name of the text.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...errors import FormatError, InputError, NotFound
from ...header import Header, read_header, read_tensor
from ...header.tensors import TensorInfo
from ...libllama.quantize import MAX_WEIGHT

MAX_NAME = 1 << 16
_SUMS, _COUNTS = ".in_sum2", ".counts"
_HINT = "make it with llama-imatrix, or download it again"


@dataclass(frozen=True, slots=True)
class Imatrix:
    """`weights[name]()`: [matrices, width] how much each column matters; in a .dat all in one row."""

    path: Path
    weights: Mapping[str, Callable[[], NDArray[np.float32]]]
    dataset: str
    chunks: int

    def of(self, name: str, width: int, matrices: int) -> NDArray[np.float32] | None:
        """[matrices, width] of a tensor, None where there is nothing of it.

        Raises InputError where they are as many as another model's, FormatError for what is no mean square.
        """
        if name not in self.weights:
            return None
        found = self.weights[name]()
        if found.size != matrices * width:
            shape = f"{matrices} × {width}" if matrices > 1 else f"{width}"
            raise InputError(
                f"{self.path} is of another model",
                f"it has {found.size:,} columns for {name}, the tensor {shape}",
                "take the importance matrix of this model",
            )
        if not ((found >= 0) & (found <= MAX_WEIGHT)).all():  # so no NaN either
            raise FormatError(self.path, None, f"{name} has a number that is no mean of squares", _HINT)
        return np.ascontiguousarray(found.reshape(matrices, width))


def read(path: Path) -> Imatrix:
    """An importance matrix; its numbers are read when they are asked for. Raises NotFound, FormatError."""
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except FileNotFoundError:
        raise NotFound(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read", error.strerror or str(error)) from None
    return _read_gguf(path) if magic == b"GGUF" else _read_dat(path, path.read_bytes())


def _read_gguf(path: Path) -> Imatrix:
    header = read_header(path)
    tensors = {info.name: info for info in header.tensors}
    names = [name.removesuffix(_SUMS) for name in tensors if name.endswith(_SUMS)]
    if not names:
        kind = header.get_str("general.type", "model")
        raise FormatError(path, None, f"it is a GGUF ({kind}) without importances (NAME{_SUMS})", _HINT)
    weights = {name: _lazy(header, name, tensors) for name in names}
    texts = header.get_strings("imatrix.datasets")
    dataset = texts[0].decode("utf-8", "replace") if texts else ""
    return Imatrix(path, weights, dataset, header.get_int("imatrix.chunk_count", 0))


def _lazy(header: Header, name: str, tensors: Mapping[str, TensorInfo]) -> Callable[[], NDArray[np.float32]]:
    sums, counts = tensors[name + _SUMS], tensors.get(name + _COUNTS)
    if counts is None or sums.type or counts.type or not counts.nbytes or sums.nbytes % counts.nbytes:
        raise FormatError(header.path, None, f"{name} has no fitting {_COUNTS} to its {_SUMS}", _HINT)

    def means() -> NDArray[np.float32]:
        n = np.floor(np.frombuffer(read_tensor(header, counts), "<f4") + np.float32(0.5))
        found = np.frombuffer(read_tensor(header, sums), "<f4").reshape(len(n), -1)
        seen = (n > 0)[:, None]
        # An expert that was never asked knows nothing: all its columns matter alike.
        return np.where(seen, found / np.where(seen, n[:, None], 1), 1).astype(np.float32)

    return means


class _Cursor:
    """Reads a .dat; each size is compared with what is left."""

    def __init__(self, path: Path, data: bytes) -> None:
        self.path, self.data, self.at = path, data, 0

    def take(self, nbytes: int) -> bytes:
        if not 0 <= nbytes <= len(self.data) - self.at:
            raise FormatError(self.path, self.at, f"{nbytes:,} bytes should follow, which do not", _HINT)
        self.at += nbytes
        return self.data[self.at - nbytes : self.at]

    def number(self, low: int, what: str) -> int:
        (value,) = struct.unpack("<i", self.take(4))
        if value < low:
            raise FormatError(self.path, self.at - 4, f"{what} is {value}: no importance matrix", _HINT)
        return int(value)

    def text(self) -> str:
        length = self.number(0, "the length of a name")
        if length > MAX_NAME:
            raise FormatError(self.path, self.at - 4, f"a name of {length:,} bytes", _HINT)
        return self.take(length).decode("utf-8", "replace")


def _read_dat(path: Path, data: bytes) -> Imatrix:
    cursor = _Cursor(path, data)
    weights: dict[str, Callable[[], NDArray[np.float32]]] = {}
    for _ in range(cursor.number(1, "the number of entries")):
        name, calls = cursor.text(), cursor.number(-(2**31), "the number of calls")
        sums = np.frombuffer(cursor.take(4 * cursor.number(1, "the number of columns")), "<f4")
        weights[name] = _means(sums, calls)
    if cursor.at == len(data):
        return Imatrix(path, weights, "", 0)
    chunks = cursor.number(0, "the number of chunks")
    return Imatrix(path, weights, cursor.text() if cursor.at < len(data) else "", chunks)


def _means(sums: NDArray[np.float32], calls: int) -> Callable[[], NDArray[np.float32]]:
    return lambda: (sums / np.float32(calls) if calls > 0 else sums)[None]
