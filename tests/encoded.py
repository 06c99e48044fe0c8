"""Tiny quantized checkpoints: FP8 in blocks and packed int4, encoded number by number in plain Python."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tiny
from numpy.typing import NDArray

FP8 = {
    "quant_method": "fp8",
    "fmt": "e4m3",
    "weight_block_size": [128, 128],
    "activation_scheme": "dynamic",
}
INT4 = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "ignore": [
        "lm_head",
        "re:.*self_attn.*",
        "re:.*shared_experts.*",
        "re:.*mlp\\.(gate|up|gate_up|down)_proj.*",
    ],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "input_activations": None,
            "output_activations": None,
            "weights": {
                "actorder": None,
                "dynamic": False,
                "group_size": 32,
                "num_bits": 4,
                "strategy": "group",
                "symmetric": True,
                "type": "int",
            },
        }
    },
}


def e4m3(byte: int) -> float:
    """OCP's 8-bit floating point, by its table of meanings."""
    sign, exponent, mantissa = byte >> 7, byte >> 3 & 15, byte & 7
    if byte & 127 == 127:
        return math.nan
    size = mantissa * 2.0**-9 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return -size if sign else size


NUMBERS = np.array([e4m3(byte) for byte in range(256)])


def fp8(values: NDArray[np.float32], name: str) -> tuple[dict[str, NDArray[Any]], NDArray[np.float32]]:
    """Its two tensors, and what they mean."""
    rows, width = values.shape
    scale = np.empty((-(-rows // 128), -(-width // 128)), np.float32)
    codes = np.empty(values.shape, np.uint8)
    meant = np.empty(values.shape, np.float32)
    order = np.argsort(NUMBERS[:127])
    for i, j in np.ndindex(scale.shape):
        block = np.s_[i * 128 : (i + 1) * 128, j * 128 : (j + 1) * 128]
        scale[i, j] = np.abs(values[block]).max() / 448
        near = np.searchsorted(NUMBERS[:127][order], np.abs(values[block]) / scale[i, j])
        codes[block] = order[np.minimum(near, 126)] + 128 * (values[block] < 0)
        meant[block] = NUMBERS[codes[block]].astype(np.float32) * scale[i, j]
    return {name: codes, name + "_scale_inv": scale}, meant


def int4(
    values: NDArray[np.float32], name: str, scale_type: str = "BF16", smallest: float = 0.0
) -> tuple[dict[str, NDArray[Any]], NDArray[np.float32]]:
    """Its three tensors, and what they mean; `smallest` is the least scale of the first group."""
    rows, width = values.shape
    groups = values.reshape(rows, -1, 32)
    scale = (np.abs(groups).max(-1) / 7.5).astype(np.float32)
    if smallest:
        scale[0, 0] = smallest
    stored: NDArray[Any] = scale
    if scale_type == "BF16":
        stored = tiny.bf16(scale)
        scale = (stored.astype(np.uint32) << 16).view(np.float32)
    elif scale_type == "F16":
        stored = scale.astype(np.float16)
        scale = stored.astype(np.float32)
    numbers = np.clip(np.rint(groups / scale[..., None]), -8, 7).astype(np.int64)
    meant = (numbers * scale[..., None].astype(np.float64)).astype(np.float32).reshape(rows, width)
    eights = (numbers.reshape(rows, -1, 8) + 8).astype(np.uint64)
    words = sum(eights[..., k] << np.uint64(4 * k) for k in range(8))
    packed = np.asarray(words, np.uint64).astype(np.uint32).view(np.int32)
    shape = np.array([rows, width], np.int64)
    return {name + "_packed": packed, name + "_scale": stored, name + "_shape": shape}, meant


def quantized(
    weights: Mapping[str, NDArray[np.float32]], encode: Any, only: Any = lambda name: ".experts." in name
) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[np.float32]]]:
    """All tensors stored, the chosen ones encoded and the others BF16; and what each means."""
    stored: dict[str, NDArray[Any]] = {}
    meant = {}
    for name, values in weights.items():
        if values.ndim == 2 and only(name):
            parts, meant[name] = encode(values, name)
            stored |= parts
        else:
            stored[name] = tiny.bf16(values)
            meant[name] = (stored[name].astype(np.uint32) << 16).view(np.float32)
    return stored, meant
