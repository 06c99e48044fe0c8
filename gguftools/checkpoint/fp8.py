"""FP8 weights with a scale for each block of 128 × 128, as DeepSeek-V3 and Kimi-K2 come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, Unsupported
from . import floats, safetensors
from .safetensors import Entry

BLOCK = 128
SCALE = "_scale_inv"  # despite its name it is what the numbers are multiplied by
_SCALES = {"F32": floats.F32, "F16": floats.F16, "BF16": floats.BF16}


def _e4m3() -> NDArray[np.float32]:
    """The 256 numbers of E4M3 without infinities: sign, 4 bits of exponent (bias 7), 3 of mantissa."""
    bits = np.arange(256)
    exponent, mantissa = bits >> 3 & 15, bits & 7
    value = np.where(exponent == 0, np.ldexp(mantissa, -9), np.ldexp(8 + mantissa, exponent - 10))
    value = np.where(bits & 127 == 127, np.nan, value)
    return np.where(bits > 127, -value, value).astype(np.float32)


E4M3 = _e4m3()


@dataclass(frozen=True, slots=True)
class Fp8:
    """One matrix: a byte a number, a scale a block (at the edges a partial one); widened as it is read."""

    entry: Entry
    scale: Entry
    kind: int = floats.F32
    auto: int = floats.BF16  # what its makers widen it to

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def shape(self) -> tuple[int, ...]:
        return self.entry.shape

    def read(self, first_row: int, n_rows: int) -> NDArray[Any]:
        width = self.shape[1]
        raw = safetensors.read_bytes(self.entry, first_row * width, n_rows * width).reshape(n_rows, width)
        scales, at = self._scales(first_row, first_row + n_rows)
        wide = E4M3.take(raw)
        for block, scale in enumerate(scales):
            rows = slice(max(block * BLOCK - at, 0), (block + 1) * BLOCK - at)
            wide[rows] *= np.repeat(scale, BLOCK)[:width]
        floats.check_finite(wide, floats.F32, self.name)
        return wide

    def _scales(self, first_row: int, stop: int) -> tuple[NDArray[np.float32], int]:
        """The scales of the blocks that hold these rows; how many rows of the first block come before."""
        kind = _SCALES[self.scale.dtype]
        first, last = first_row // BLOCK, -(-stop // BLOCK)
        per_row = self.scale.shape[1]
        stride = per_row * floats.PLAIN[kind].itemsize
        raw = safetensors.read_bytes(self.scale, first * stride, (last - first) * stride)
        rows = raw.view(floats.PLAIN[kind]).reshape(-1, per_row)
        floats.check_finite(rows, kind, self.scale.name)
        return floats.to_f32(rows, kind), first_row - first * BLOCK


def check_config(quantization: Mapping[str, Any]) -> None:
    """Raises Unsupported for FP8 of another make."""
    size, form = quantization.get("weight_block_size"), quantization.get("fmt", "e4m3")
    if size != [BLOCK, BLOCK] or form != "e4m3":
        raise Unsupported(
            f"the checkpoint is quantized (fp8, {form}, weight_block_size {size})",
            f"fp8 is converted as e4m3 with a scale for each block of {BLOCK} × {BLOCK}",
            "use the checkpoint that it was made from; llama.cpp's convert_hf_to_gguf.py knows more",
        )


def find(tensors: Mapping[str, Entry]) -> dict[str, Fp8]:
    """The FP8 matrices of a checkpoint by name. Raises InputError, Unsupported."""
    return {name: _pair(entry, tensors) for name, entry in tensors.items() if entry.dtype == "F8_E4M3"}


def _pair(entry: Entry, tensors: Mapping[str, Entry]) -> Fp8:
    scale = tensors.get(entry.name + SCALE)
    if scale is None:
        raise InputError(
            f"{entry.name} is F8_E4M3 and has no {entry.name.rpartition('.')[2]}{SCALE}",
            "an FP8 matrix needs its scales",
            "download the checkpoint again",
        )
    if scale.dtype not in _SCALES:
        raise Unsupported(
            f"{scale.name} is {scale.dtype}",
            f"scales are read as {', '.join(_SCALES)}",
            "use the checkpoint that it was made from",
        )
    blocks = tuple(-(-extent // BLOCK) for extent in entry.shape)
    if len(entry.shape) != 2 or scale.shape != blocks:
        raise InputError(
            f"{scale.name} has the shape {list(scale.shape)}",
            f"{entry.name}, {list(entry.shape)}, has {list(blocks)} blocks of {BLOCK} × {BLOCK}",
            "download the checkpoint again",
        )
    return Fp8(entry, scale)
