"""Qwen3: q and k are normalized in each head; no biases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import Unsupported
from ..gguf_write import Key
from ..header import Header
from .dense import Extras, dense_config, dense_keys, dense_slots
from .rope import OTHER
from .slot import Slot

NAME = "qwen3"
CLASSES = ("Qwen3ForCausalLM",)


def keys(config: Mapping[str, Any]) -> list[Key]:
    if config.get("attention_bias"):
        raise Unsupported(
            "config.json: attention_bias is not supported",
            "llama.cpp's qwen3 has no bias after attention",
            OTHER,
        )
    return dense_keys(NAME, config)


def slots(config: Mapping[str, Any]) -> list[Slot]:
    return dense_slots(config, Extras(qk_norm=True))


def config(header: Header) -> dict[str, Any]:
    return {**dense_config(header, CLASSES[0], NAME), "attention_bias": False}
