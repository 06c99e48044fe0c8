"""A llama written as a qwen2, whose graph in llama.cpp adds an output.bias: the same numbers, turned.

The two graphs differ in how they pair the numbers of a head for the rotation: llama takes neighbours, qwen2
halves. Rows of q and k in the other order give the same products, whatever their type.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ...arch.slot import to_hf
from ...header import Header

_TURNED = re.compile(r"blk\.\d+\.attn_[qk]\.weight")
_KNOWN = re.compile(
    r"token_embd\.weight|output\.weight|output_norm\.weight"
    r"|blk\.\d+\.(attn_norm|attn_[qkv]|attn_output|ffn_(norm|gate|up|down))\.weight"
)
_OTHER_KEYS = ("attention.scale", "expert_count", "logit_scale", "residual_scale", "embedding_scale")


def is_possible(header: Header) -> bool:
    """Whether qwen2's graph computes the same: no biases, no rope_freqs, heads that fill a state."""
    if header.architecture != "llama" or not all(_KNOWN.fullmatch(info.name) for info in header.tensors):
        return False
    size, heads = header.get_int("llama.embedding_length", 0), header.keys.get("llama.attention.head_count")
    if (
        not isinstance(heads, int)
        or heads < 1
        or size % heads
        or any(header.keys.get(f"llama.{key}") for key in _OTHER_KEYS)
    ):
        return False
    head_dim = size // heads
    sizes = ("attention.key_length", "attention.value_length", "rope.dimension_count")
    return all(header.get_int(f"llama.{key}", head_dim) == head_dim for key in sizes) and not head_dim % 2


def turn(header: Header, name: str) -> Callable[[NDArray[np.uint8]], NDArray[np.uint8]] | None:
    """What turns a tensor's bytes into those of a qwen2; None for a tensor that stays as it is."""
    if not _TURNED.fullmatch(name):
        return None
    info = next(info for info in header.tensors if info.name == name)
    head_dim = header.get_int("llama.embedding_length", 0) // header.get_int("llama.attention.head_count", 1)
    n_rows = info.shape[1]
    return lambda data: to_hf(data.reshape(n_rows, -1), head_dim).reshape(-1)
