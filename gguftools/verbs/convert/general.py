"""The general.* keys that convert writes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...checkpoint import Checkpoint, floats
from ...gguf_write import Announced, Key
from ...header.ggml_types import ValueType
from ...vocab.hf_tokenizer import json_object

# generation_config.json's names → those of the general.sampling keys.
SAMPLING = {
    "temperature": ("temp", ValueType.F32),
    "top_k": ("top_k", ValueType.I32),
    "top_p": ("top_p", ValueType.F32),
    "min_p": ("min_p", ValueType.F32),
    "repetition_penalty": ("penalty_repeat", ValueType.F32),
}
_FILE_TYPES = {
    floats.F32: 0,
    floats.F16: 1,
    floats.Q4_0: 2,
    floats.Q8_0: 7,
    floats.BF16: 32,
}  # llama.cpp's LLAMA_FTYPE


def keys(checkpoint: Checkpoint, name: str, tensors: Sequence[Announced]) -> list[Key]:
    """general.*: what the file is, its size and types, and the sampling that generation_config.json names."""
    kinds = {tensor.name: tensor.type for tensor in tensors}
    kind = next(kinds[name] for name in ("blk.0.ffn_up.weight", "token_embd.weight") if name in kinds)
    weights = sum(math.prod(tensor.shape) for tensor in tensors)
    found: list[Key] = [
        *named(checkpoint, name),
        ("general.size_label", size_label(weights), ValueType.STR),
        ("general.file_type", _FILE_TYPES[kind], ValueType.U32),
        ("general.quantization_version", 2, ValueType.U32),
    ]
    wanted = json_object("generation_config.json", checkpoint.files.get("generation_config.json", b"{}"))
    for theirs, (ours, value_type) in SAMPLING.items():
        value = wanted.get(theirs)
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1 << 31:
            value = float(value) if value_type == ValueType.F32 else int(value)
            found.append((f"general.sampling.{ours}", value, value_type))
    return found


def size_label(weights: int) -> str:
    """The number of weights as people say it: "135M", "1.5B", "31K"."""
    for unit, letter in ((10**9, "B"), (10**6, "M"), (1000, "K")):
        if weights >= unit:
            return f"{weights / unit:.{int(weights < 10 * unit)}f}{letter}"
    return str(weights)


def named(checkpoint: Checkpoint, name: str) -> list[Key]:
    """The first keys of every file: architecture, type and name."""
    texts = {"architecture": name, "type": "model", "name": checkpoint.name}
    return [(f"general.{key}", text, int(ValueType.STR)) for key, text in texts.items()]
