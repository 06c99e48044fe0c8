"""Llama: q and k rows are regrouped for llama.cpp's rotation; Llama 3's frequency factors become a tensor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import Unsupported
from ..gguf_write import Key
from ..header import Header, read_tensor
from .dense import Extras, dense_config, dense_keys, dense_slots, shape_of
from .rope import OTHER, llama3_config, llama3_factors
from .slot import Slot

NAME = "llama"
CLASSES = ("LlamaForCausalLM",)


def keys(config: Mapping[str, Any]) -> list[Key]:
    return dense_keys(NAME, config, factors=True)


def slots(config: Mapping[str, Any]) -> list[Slot]:
    attention, ffn = bool(config.get("attention_bias")), bool(config.get("mlp_bias"))
    found = dense_slots(config, Extras(permuted=True, qkv_bias=attention, out_bias=attention, ffn_bias=ffn))
    factors = llama3_factors(config, shape_of(config).head_dim)
    if factors is not None:
        found.append(Slot("rope_freqs.weight", "", factors.shape, made=factors))
    return found


def config(header: Header) -> dict[str, Any]:
    out = dense_config(header, CLASSES[0], NAME)
    tensors = {tensor.name: tensor for tensor in header.tensors}
    out["attention_bias"] = "blk.0.attn_output.bias" in tensors
    out["mlp_bias"] = "blk.0.ffn_down.bias" in tensors
    factors = tensors.get("rope_freqs.weight")
    if factors is not None:
        if factors.type != 0 or factors.shape != (out["head_dim"] // 2,):
            raise Unsupported(
                f"{header.path}: rope_freqs.weight has a strange type or shape",
                "one F32 factor for each pair of a head is expected",
                OTHER,
            )
        values = np.frombuffer(read_tensor(header, factors), "<f4")
        out["rope_scaling"] = llama3_config(header, values, out["rope_theta"])
    return out
