"""Tiny random checkpoints: folders as Hugging Face has them, small enough to make in a test."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gguftools import arch
from gguftools.checkpoint import floats
from gguftools.checkpoint.safetensors import table_bytes

Tensors = Mapping[str, NDArray[Any]]
DTYPES = {
    "float32": "F32",
    "float16": "F16",
    "uint16": "BF16",
    "uint8": "F8_E4M3",
    "int32": "I32",
    "int64": "I64",
}

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 288,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}
QWEN2: dict[str, Any] = {
    **LLAMA,
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "head_dim": 16,
}
QWEN3: dict[str, Any] = {**LLAMA, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
KINDS: dict[str, dict[str, Any]] = {
    "llama, head_dim is not hidden / heads": LLAMA,
    "llama, tied": {**LLAMA, "tie_word_embeddings": True},
    "llama, biases everywhere": {**LLAMA, "attention_bias": True, "mlp_bias": True},
    "llama, llama3 frequencies": {**LLAMA, "rope_scaling": LLAMA3},
    "llama, linear scaling": {**LLAMA, "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "llama, yarn": {**LLAMA, "rope_scaling": YARN},
    "qwen2": QWEN2,
    "qwen2, tied": {**QWEN2, "tie_word_embeddings": True},
    "qwen2, yarn with its own attention factor": {
        **QWEN2,
        "rope_scaling": {**YARN, "attention_factor": 1.3},
    },
    "qwen3": QWEN3,
    "qwen3, tied, yarn": {**QWEN3, "tie_word_embeddings": True, "rope_scaling": YARN},
}


def weights(config: Mapping[str, Any], seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """Random float32 tensors with every name and shape that the configuration demands."""
    random = np.random.default_rng(seed)
    out: dict[str, NDArray[np.float32]] = {}
    for slot in arch.for_config(config).slots(config):
        shape = slot.source_shape
        for name in slot.names:
            if name not in out:
                values = random.standard_normal(shape) * (0.3 if len(shape) == 1 else shape[-1] ** -0.5)
                out[name] = (values + name.endswith("norm.weight")).astype(np.float32)
    return out


def bf16(values: NDArray[np.float32]) -> NDArray[Any]:
    return floats.recode(values, floats.F32, floats.BF16)


def write_shard(path: Path, tensors: Tensors) -> None:
    table = [(name, DTYPES[str(t.dtype)], t.shape, t.nbytes) for name, t in tensors.items()]
    path.write_bytes(table_bytes(table) + b"".join(t.tobytes() for t in tensors.values()))


def write_checkpoint(
    folder: Path,
    config: Mapping[str, Any],
    tensors: Tensors,
    *,
    shards: int = 1,
    tokenizer: Path | None = None,
) -> Path:
    """A folder with config.json, the weights in `shards` files, and copies of a folder's tokenizer files."""
    folder.mkdir(parents=True, exist_ok=True)
    if tokenizer is not None:
        for path in tokenizer.iterdir():
            if not path.name.startswith(("config", "model")):
                (folder / path.name).write_bytes(path.read_bytes())
    (folder / "config.json").write_text(json.dumps(dict(config)))
    if shards == 1:
        write_shard(folder / "model.safetensors", tensors)
        return folder
    names = list(tensors)
    weight_map = {}
    for i in range(shards):
        part = names[i::shards]
        file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        write_shard(folder / file, {name: tensors[name] for name in part})
        weight_map |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": sum(t.nbytes for t in tensors.values())}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


# Qwen2's pattern.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_letters() -> list[str]:
    """GPT-2's printable letter for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(rest)) for b in range(256)]


def write_tokenizer(folder: Path, **config: Any) -> Path:
    """A byte-level BPE with three merges and three specials, as Qwen2 writes it: 262 tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    merges = [("t", "h"), ("th", "e"), ("Ġ", "the")]
    vocab = {letter: i for i, letter in enumerate([*byte_letters(), *("".join(pair) for pair in merges)])}
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": SPLIT}, "behavior": "Isolated", "invert": False}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [{"id": len(vocab) + i, "content": text, **flags} for i, text in enumerate(specials)],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]},
        "decoder": level,
        "model": {"type": "BPE", "vocab": vocab, "merges": [" ".join(pair) for pair in merges]},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = {
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "tokenizer_class": "Qwen2Tokenizer",
    } | config
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder
