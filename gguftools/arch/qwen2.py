"""Qwen2 and Qwen2.5: q, k and v have biases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import Unsupported
from ..gguf_write import Key
from ..header import Header
from .dense import Extras, dense_config, dense_keys, dense_slots, shape_of
from .rope import OTHER
from .slot import Slot

NAME = "qwen2"
CLASSES = ("Qwen2ForCausalLM",)


def keys(config: Mapping[str, Any]) -> list[Key]:
    shape = shape_of(config)
    if shape.n_head * shape.head_dim != shape.n_embd:
        raise Unsupported(
            f"config.json: {shape.n_head} heads of {shape.head_dim} do not make hidden_size {shape.n_embd}",
            "llama.cpp's qwen2 needs them to",
            OTHER,
        )
    return dense_keys(NAME, config)


def slots(config: Mapping[str, Any]) -> list[Slot]:
    return dense_slots(config, Extras(qkv_bias=True))


def config(header: Header) -> dict[str, Any]:
    return dense_config(header, CLASSES[0], NAME)
