"""ggml's quantizers: rows of numbers in any of its types and back.

ggml_quantize_chunk is what llama_model_quantize calls, and no row depends on another: so the same bytes come
in pieces and from any thread. Which type each tensor gets: see mixes.py.
"""

from __future__ import annotations

import ctypes

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, Unsupported
from ..header.ggml_types import TENSOR_TYPES
from .compat import function

F32, F16, BF16 = 0, 1, 30  # ggml's type ids
# Names of llama.cpp's mixes → llama_ftype (llama.h); Q3_K, Q4_K, Q5_K alone mean the middle one, as there.
FILE_TYPES = {
    "F32": 0,
    "F16": 1,
    "BF16": 32,
    "Q8_0": 7,
    "Q6_K": 18,
    "Q5_K_M": 17,
    "Q5_K_S": 16,
    "Q5_K": 17,
    "Q5_1": 9,
    "Q5_0": 8,
    "Q4_K_M": 15,
    "Q4_K_S": 14,
    "Q4_K": 15,
    "Q4_1": 3,
    "Q4_0": 2,
    "IQ4_NL": 25,
    "IQ4_XS": 30,
    "Q3_K_L": 13,
    "Q3_K_M": 12,
    "Q3_K_S": 11,
    "Q3_K": 12,
    "IQ3_M": 27,
    "IQ3_S": 26,
    "IQ3_XS": 22,
    "IQ3_XXS": 23,
    "Q2_K": 10,
    "Q2_K_S": 21,
    "IQ2_M": 29,
    "IQ2_S": 28,
    "IQ2_XS": 20,
    "IQ2_XXS": 19,
    "IQ1_M": 31,
    "IQ1_S": 24,
    "TQ2_0": 37,
    "TQ1_0": 36,
    "MXFP4_MOE": 38,
}
# What one tensor may be: ggml_quantize_chunk has code for these.
ROW_TYPES = {
    TENSOR_TYPES[kind].name: kind
    for kind in (0, 1, 30, 2, 3, 6, 7, 8, 10, 11, 12, 13, 14, 16, 17, 18, 19, 20, 21, 22, 23, 29, 34, 35, 39)
}
# Far beyond any model's, and within what the sums of the K- and IQ-quants hold: beyond, they give zeros
# without a word, or end the process.
MAX_NUMBER = 32768.0
MAX_WEIGHT = 1e12
_PLAIN_BLOCKS = (2, 3, 6, 7, 8)  # Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 take what their scale holds
VERSION = 2  # GGML_QNT_VERSION, ggml.h: how the blocks are laid out


def needs_weights(kind: int) -> bool:
    """Whether ggml ends the process where rows of this type are made without an importance matrix."""
    return bool(function("ggml_quantize_requires_imatrix", ctypes.c_bool, ctypes.c_int)(kind))


def quantize_rows(
    rows: NDArray[np.float32], kind: int, weights: NDArray[np.float32] | None, name: str
) -> NDArray[np.uint8]:
    """Float rows [n, width] as blocks of type `kind`, as bytes; width is whole blocks.

    `weights` [width], up to MAX_WEIGHT, says how much each column matters. The rows must be finite: with
    others some of ggml's quantizers end the process. Raises InputError, naming the tensor, where the numbers
    are too large.
    """
    n_rows, width = rows.shape
    form = TENSOR_TYPES[kind]
    if kind not in _PLAIN_BLOCKS and max(rows.max(initial=0), -rows.min(initial=0)) > MAX_NUMBER:
        raise _too_large(name, kind)
    out = np.empty(n_rows * (width // form.block) * form.nbytes, np.uint8)
    void, i64 = ctypes.c_void_p, ctypes.c_int64
    call = function("ggml_quantize_chunk", ctypes.c_size_t, ctypes.c_int, void, void, i64, i64, i64, void)
    rows = np.ascontiguousarray(rows, np.float32)
    per_column = None if weights is None else weights.ctypes.data
    call(kind, rows.ctypes.data, out.ctypes.data, 0, n_rows, width, per_column)
    if not is_sound(out, kind):
        raise _too_large(name, kind)
    return out


def _too_large(name: str, kind: int) -> InputError:
    return InputError(
        f"{name} cannot be written as {TENSOR_TYPES[kind].name}",
        "it has a number too large for its blocks",
        "give this tensor another type with --tensor-type, as f32",
    )


def widen(raw: NDArray[np.uint8], kind: int, name: str) -> NDArray[np.float32]:
    """Rows of any type, as bytes, as floats. Raises Unsupported for a type that holds no weights."""
    form = TENSOR_TYPES[kind]
    if kind == F32:
        return raw.view(np.float32)
    if kind in (F16, BF16):
        call = "ggml_fp16_to_fp32_row" if kind == F16 else "ggml_bf16_to_fp32_row"
    elif form.block > 1 and form.name != "Q8_1":
        call = "dequantize_row_" + form.name.lower().replace("_k", "_K")
    else:
        raise Unsupported(
            f"{name} is {form.name}", "that type holds no weights to quantize", "use another source"
        )
    wide = np.empty(raw.size // form.nbytes * form.block, np.float32)
    function(call, None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(
        raw.ctypes.data, wide.ctypes.data, wide.size
    )
    return wide


def is_sound(raw: NDArray[np.uint8], kind: int) -> bool:
    """Whether no number of these rows, and no scale of their blocks, is a NaN or infinite."""
    call = function("ggml_validate_row_data", ctypes.c_bool, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
    return bool(call(kind, raw.ctypes.data, raw.nbytes))
