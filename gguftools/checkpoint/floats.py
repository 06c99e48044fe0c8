"""Rows of weights from one number type to another: F32, F16, BF16, Q8_0, Q4_0; from any type as float32.

NumPy has no bfloat16: those rows are uint16 arrays holding the upper half of a float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _native
from ..errors import InputError, Unsupported
from ..header.ggml_types import TENSOR_TYPES

F32, F16, Q4_0, Q8_0, I32, I64, BF16 = 0, 1, 2, 8, 26, 27, 30  # ggml's type ids
WHOLE = (I32, I64)

PLAIN: dict[int, np.dtype[Any]] = {F32: np.dtype("<f4"), F16: np.dtype("<f2"), BF16: np.dtype("<u2")}
STORED = {**PLAIN, I32: np.dtype("<i4"), I64: np.dtype("<i8")}


def row_bytes(width: int, ggml_type: int) -> int:
    """Bytes of one row of `width` numbers, which must be whole blocks (see `fits`)."""
    form = TENSOR_TYPES[ggml_type]
    return width // form.block * form.nbytes


def fits(width: int, ggml_type: int) -> bool:
    """Whether rows of `width` numbers are whole blocks of the type."""
    return width % TENSOR_TYPES[ggml_type].block == 0


def check_finite(rows: NDArray[np.generic], ggml_type: int, name: str) -> None:
    """Raises InputError when rows of a plain type hold a NaN or an infinity."""
    _refuse(_native.check_weights(_bytes(rows).data, ggml_type), ggml_type, name)


def recode(rows: NDArray[np.generic], source: int, goal: int, name: str = "") -> NDArray[np.generic]:
    """Rows of ggml type `source` (shape: rows × numbers, or rows × bytes for a block type) as type `goal`.

    Rounds as llama.cpp does; csrc/weights.h says how. Raises InputError for a NaN or an infinity and where a
    number is too large for the type; as F32 each number goes.
    """
    if source == goal:
        return rows
    if source not in PLAIN:
        rows, source = to_f32(rows, source), F32
    return rows if source == goal else _recoded(rows, source, goal, name)


def _recoded(rows: NDArray[np.generic], source: int, goal: int, name: str) -> NDArray[Any]:
    out = np.empty((*rows.shape[:-1], row_bytes(rows.shape[-1], goal)), np.uint8)
    _refuse(_native.recode_weights(_bytes(rows).data, source, _bytes(out).data, goal), goal, name)
    return out.view(PLAIN[goal]) if goal in PLAIN else out


def _bytes(rows: NDArray[np.generic]) -> NDArray[np.uint8]:
    return np.require(rows, requirements=("C", "A")).reshape(-1).view(np.uint8)


def _refuse(code: int, goal: int, name: str) -> None:
    if code == _native.NOT_FINITE:
        raise InputError(
            f"{name} holds a NaN or an infinity",
            "the checkpoint is damaged or diverged",
            "get a good copy of it",
        )
    if code == _native.TOO_LARGE:
        raise InputError(
            f"{name} holds a number too large for {TENSOR_TYPES[goal].name}",
            "it would become infinite",
            "use --outtype f32, or bf16",
        )


def to_f32(rows: NDArray[np.generic], source: int) -> NDArray[np.float32]:
    """Rows of any type as float32, exactly as libllama widens them. Raises Unsupported."""
    if source == F32:
        return rows.view(np.float32)
    if source in PLAIN:
        return _recoded(rows, source, F32, "")
    from gguf import quants

    try:
        wide: NDArray[np.float32] = quants.dequantize(rows, quants.GGMLQuantizationType(source))
    except (NotImplementedError, ValueError):
        name = TENSOR_TYPES[source].name
        raise Unsupported(
            f"{name} cannot be widened",
            "the gguf package has no code for this type",
            "use a GGUF of the same model in another type",
        ) from None
    return wide
