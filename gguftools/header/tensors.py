"""The tensor table of a GGUF: names, shapes, types and where the bytes lie, checked against the file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import FormatError
from .ggml_types import TENSOR_TYPES

if TYPE_CHECKING:
    from .._native import Range

MAX_ELEMENTS = 2**63 - 1  # ggml counts elements in an int64


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One row of the tensor table."""

    name: str
    shape: tuple[int, ...]  # GGUF's order: the fastest dimension first
    type: int  # ggml type id, a key of ggml_types.TENSOR_TYPES
    offset: int  # absolute, in its file
    nbytes: int
    shard: int  # index into Header.files


def tensor_table(
    raw: list[tuple[Range, tuple[int, ...], int, int]],
    data: memoryview,
    path: Path,
    data_offset: int,
    alignment: int,
    size: int | None,
) -> tuple[TensorInfo, ...]:
    """The table, checked. As llama.cpp demands, each tensor begins where the one before it ends, padded."""
    tensors: dict[str, TensorInfo] = {}
    expected = 0
    for (a, b), shape, kind, offset in raw:
        name = _name(data[a:b], path, a - 8)
        nbytes = _tensor_bytes(name, shape, kind, path, a - 8)
        if name in tensors:
            raise FormatError(path, a - 8, f"the tensor {name} is there twice")
        if offset != expected:
            why = f"the data of {name} should begin at {expected:,} of the data section, not at {offset:,}"
            raise FormatError(path, a - 8, why)
        start = data_offset + offset
        if size is not None and start + nbytes > size:
            why = f"the data of {name} ends at byte {start + nbytes:,}, but the file has {size:,}"
            raise FormatError(path, a - 8, why, "the download may be incomplete: fetch the file again")
        tensors[name] = TensorInfo(name, shape, kind, start, nbytes, 0)
        expected = -(-(offset + nbytes) // alignment) * alignment
    return tuple(tensors.values())


def _tensor_bytes(name: str, shape: tuple[int, ...], kind: int, path: Path, offset: int) -> int:
    if kind not in TENSOR_TYPES:
        hint = "the file may need a newer gguftools, or come from a fork such as ik_llama.cpp"
        raise FormatError(
            path, offset, f"{name} has the tensor type {kind}, which llama.cpp does not know", hint
        )
    form = TENSOR_TYPES[kind]
    elements = math.prod(shape)
    if elements > MAX_ELEMENTS or max(shape, default=0) > MAX_ELEMENTS:
        raise FormatError(path, offset, f"{name} has too many elements: {shape}")
    if (shape[0] if shape else 1) % form.block:
        why = f"the rows of {name} are no multiple of {form.name}'s block of {form.block}: {shape}"
        raise FormatError(path, offset, why)
    return elements // form.block * form.nbytes


def _name(data: memoryview, path: Path, offset: int) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        raise FormatError(path, offset, "the name of a tensor is not UTF-8") from None
