"""Rows of weights from one number type to another: F32, F16, BF16, and the gguf package's block types.

NumPy has no bfloat16: those rows are uint16 arrays holding the upper half of a float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, Unsupported
from ..header.ggml_types import TENSOR_TYPES

F32, F16, Q4_0, Q8_0, I32, I64, BF16 = 0, 1, 2, 8, 26, 27, 30  # ggml's type ids
WHOLE = (I32, I64)

PLAIN: dict[int, np.dtype[Any]] = {F32: np.dtype("<f4"), F16: np.dtype("<f2"), BF16: np.dtype("<u2")}
STORED = {**PLAIN, I32: np.dtype("<i4"), I64: np.dtype("<i8")}
# The first magnitude that would become infinite: half a step above the largest number; of a block, its scale.
_LIMITS = {F16: 65520.0, BF16: float.fromhex("0x1.ffp127"), Q8_0: 127 * 65520.0, Q4_0: 8 * 65520.0}
_EXPONENT = {F32: 0x7F800000, F16: 0x7C00, BF16: 0x7F80}


def row_bytes(width: int, ggml_type: int) -> int:
    """Bytes of one row of `width` numbers, which must be whole blocks (see `fits`)."""
    form = TENSOR_TYPES[ggml_type]
    return width // form.block * form.nbytes


def fits(width: int, ggml_type: int) -> bool:
    """Whether rows of `width` numbers are whole blocks of the type."""
    return width % TENSOR_TYPES[ggml_type].block == 0


def check_finite(rows: NDArray[np.generic], ggml_type: int, name: str) -> None:
    """Raises InputError when rows of a plain type hold a NaN or an infinity: an exponent of all ones."""
    mask = _EXPONENT[ggml_type]
    bits = rows.view(np.dtype("<u4") if ggml_type == F32 else np.dtype("<u2"))
    if ((bits & mask) == mask).any():
        raise InputError(
            f"{name} holds a NaN or an infinity",
            "the checkpoint is damaged or diverged",
            "get a good copy of it",
        )


def recode(rows: NDArray[np.generic], source: int, goal: int, name: str = "") -> NDArray[np.generic]:
    """Rows of ggml type `source` (shape: rows × numbers, or rows × bytes for a block type) as type `goal`.

    Rounds to nearest even as llama.cpp does. Raises InputError where a number is too large for the type.
    """
    if source == goal:
        return rows
    wide = to_f32(rows, source)
    if goal == F32:
        return wide
    if np.abs(wide).max(initial=0.0) >= _LIMITS[goal]:
        raise InputError(
            f"{name} holds a number too large for {TENSOR_TYPES[goal].name}",
            "it would become infinite",
            "use --outtype f32, or bf16",
        )
    if goal == BF16:
        return _to_bf16(wide)
    if goal == F16:
        return wide.astype("<f2")
    from gguf import quants

    blocks: NDArray[np.generic] = quants.quantize(wide, quants.GGMLQuantizationType(goal))
    return blocks


def to_f32(rows: NDArray[np.generic], source: int) -> NDArray[np.float32]:
    """Rows of any type as float32, exactly as libllama widens them. Raises Unsupported."""
    if source == F32:
        return rows.view(np.float32)
    if source == BF16:
        bits: NDArray[np.uint32] = rows.astype(np.uint32) << np.uint32(16)
        return bits.view(np.float32)
    if source == F16:
        return rows.astype(np.float32)
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


def _to_bf16(wide: NDArray[np.float32]) -> NDArray[np.generic]:
    bits = wide.view(np.uint32)
    odd: NDArray[np.uint32] = (bits >> np.uint32(16)) & np.uint32(1)
    rounded: NDArray[np.uint32] = (bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)
    return rounded.astype(np.uint16)
