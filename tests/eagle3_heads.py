"""Tiny random EAGLE-3 heads in each of the formats, and what they compute by the formulas of vLLM's model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy_forward
import pytest
import tiny
from numpy.typing import NDArray

from gguftools.checkpoint.safetensors import table_bytes
from gguftools.errors import GGUFToolsError
from gguftools.header import Header, read_header
from gguftools.verbs.convert import convert

DTYPES = {**tiny.DTYPES, "bool": "BOOL", "int32": "I32"}
TARGET: dict[str, Any] = {**tiny.LLAMA, "num_hidden_layers": 6}
N_DRAFT = 100
LAYERS = (2, 3, 3)  # EAGLE-3's default for six layers, as llama.cpp counts

SPECFORGE: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "vocab_size": 288,
    "draft_vocab_size": N_DRAFT,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 4], "use_aux_hidden_state": True},
}
ANGELSLIM: dict[str, Any] = {
    key: value
    for key, value in {**SPECFORGE, "architectures": ["Eagle3LlamaForCausalLM"]}.items()
    if key != "eagle_config"
}
_LAYER = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
_LAYER += ("num_key_value_heads", "head_dim", "hidden_act", "max_position_embeddings", "rms_norm_eps")
SPECULATORS: dict[str, Any] = {
    "architectures": ["Eagle3Speculator"],
    "speculators_model_type": "eagle3",
    "draft_vocab_size": N_DRAFT,
    "norm_before_residual": True,
    "target_hidden_size": None,
    "eagle_aux_hidden_state_layer_ids": [2, 4, 5],
    "transformer_layer_config": {
        **{key: SPECFORGE[key] for key in _LAYER},
        "model_type": "llama",
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
}
PREFIXES = {"specforge": ("", "midlayer."), "angelslim": ("", "midlayer."), "speculators": ("", "layers.0.")}
PREFIXES |= {"vllm": ("model.", "model.layers.0.")}


def draft_ids(n_draft: int = N_DRAFT, n_vocab: int = 288, seed: int = 3) -> NDArray[np.int64]:
    """Ascending ids of the target."""
    return np.sort(np.random.default_rng(seed).choice(n_vocab, n_draft, replace=False))


def shapes(config: Mapping[str, Any], width: int = 0) -> dict[str, tuple[int, ...]]:
    """Every weight of a head by vLLM's names without `model.`; `width`: of the target."""
    inner = {**config, **config.get("transformer_layer_config", {})}
    e, ff, n = inner["hidden_size"], inner["intermediate_size"], inner["vocab_size"]
    q, kv = (inner[key] * inner["head_dim"] for key in ("num_attention_heads", "num_key_value_heads"))
    found: dict[str, tuple[int, ...]] = {
        "embed_tokens.weight": (n, e),
        "fc.weight": (e, 3 * (width or e)),
        "norm.weight": (e,),
        "lm_head.weight": (config["draft_vocab_size"], e),
        **{f"layers.0.{name}.weight": (e,) for name in ("input_layernorm", "hidden_norm")},
        "layers.0.post_attention_layernorm.weight": (e,),
        "layers.0.self_attn.q_proj.weight": (q, 2 * e),
        "layers.0.self_attn.k_proj.weight": (kv, 2 * e),
        "layers.0.self_attn.v_proj.weight": (kv, 2 * e),
        "layers.0.self_attn.o_proj.weight": (e, q),
        "layers.0.mlp.gate_proj.weight": (ff, e),
        "layers.0.mlp.up_proj.weight": (ff, e),
        "layers.0.mlp.down_proj.weight": (e, ff),
    }
    if config.get("norm_before_fc"):
        found["input_norm.weight"] = (3 * (width or e),)
    return found


def weights(config: Mapping[str, Any], *, seed: int = 1, width: int = 0) -> dict[str, NDArray[Any]]:
    """Random float32 tensors for `shapes`, with d2t and t2d."""
    n = {**config, **config.get("transformer_layer_config", {})}["vocab_size"]
    random = np.random.default_rng(seed)
    out: dict[str, NDArray[Any]] = {}
    for name, shape in shapes(config, width).items():
        scale = 0.3 if len(shape) == 1 else 2 * shape[-1] ** -0.5
        out[name] = (random.standard_normal(shape) * scale + name.endswith("norm.weight")).astype(np.float32)
    ids = draft_ids(config["draft_vocab_size"], n)
    out["d2t"] = ids - np.arange(len(ids))
    out["t2d"] = np.isin(np.arange(n), ids)
    return out


def named(tensors: Mapping[str, NDArray[Any]], style: str) -> dict[str, NDArray[Any]]:
    """The tensors under the names of a format."""
    top, layer = PREFIXES[style]
    out = {}
    for name, tensor in tensors.items():
        if name in ("d2t", "t2d", "lm_head.weight"):
            out[name] = tensor
        elif name.startswith("layers.0."):
            out[layer + name.removeprefix("layers.0.")] = tensor
        else:
            out[top + name] = tensor
    return out


def write(
    folder: Path, config: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]], style: str = "specforge"
) -> Path:
    """A folder with config.json and model.safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(dict(config)))
    stored = named(tensors, style)
    table = [(name, DTYPES[str(t.dtype)], t.shape, t.nbytes) for name, t in stored.items()]
    data = b"".join(t.tobytes() for t in stored.values())
    (folder / "model.safetensors").write_bytes(table_bytes(table) + data)
    return folder


def encode(config: Mapping[str, Any], w: Mapping[str, Any], features: NDArray[Any]) -> NDArray[Any]:
    """The head's own state for each position, of the three states of the target side by side."""
    if config.get("norm_before_fc"):
        features = numpy_forward.norm(features, w["input_norm.weight"], 1e-5)
    return features.astype(np.float64) @ w["fc.weight"].T


def decode(
    config: Mapping[str, Any], w: Mapping[str, Any], embedding: NDArray[Any], ids: list[int], g: NDArray[Any]
) -> NDArray[Any]:
    """Logits over the draft's tokens for (token, state) pairs at positions 0, 1, …"""
    inner = {**config, **config.get("transformer_layer_config", {})}
    inner.setdefault("rope_theta", 10000.0)
    if (inner.get("rope_scaling") or {}).get("mscale"):  # with an equal mscale_all_dim
        inner["rope_scaling"] = {**inner["rope_scaling"], "attention_factor": 1.0}
    eps, p = inner["rms_norm_eps"], "layers.0."
    cos, sin = numpy_forward.rotary(inner, len(ids))
    token = numpy_forward.norm(embedding[ids].astype(np.float64), w[p + "input_layernorm.weight"], eps)
    state = numpy_forward.norm(g, w[p + "hidden_norm.weight"], eps)
    residual = state if config.get("norm_before_residual") else g
    both = np.concatenate([token, state], axis=-1)
    x = residual + numpy_forward.attention(inner, w, p + "self_attn.", both, cos, sin)
    x = x + numpy_forward.mlp(
        w, p + "mlp.", numpy_forward.norm(x, w[p + "post_attention_layernorm.weight"], eps)
    )
    return numpy_forward.norm(x, w["norm.weight"], eps) @ w["lm_head.weight"].T


def write_target(folder: Path, config: Mapping[str, Any], tokenizer: Path) -> Path:
    """A whole model as a GGUF; the folder that it was made from, `m`, is beside it."""
    tiny.write_checkpoint(folder / "m", config, tiny.weights(config), tokenizer=tokenizer)
    convert(folder / "m", folder / "target.gguf")
    return folder / "target.gguf"


def converted(folder: Path, target: Any, config: Any = SPECFORGE, **more: Any) -> Header:
    """The header of a head's GGUF; `tensors`: others than the usual."""
    tensors = more.pop("tensors", None) or weights(config)
    style = more.pop("style", "specforge")
    write(folder / "head", config, tensors, style)
    convert(folder / "head", folder / "head.gguf", target=target, **more)
    return read_header(folder / "head.gguf")


def refused(folder: Path, target: Any, config: Any = SPECFORGE, **more: Any) -> GGUFToolsError:
    with pytest.raises(GGUFToolsError) as caught:
        converted(folder, target, config, **more)
    assert caught.value.why
    assert caught.value.hint
    assert not (folder / "head.gguf").exists()
    return caught.value


def layers(header: Header) -> list[int]:
    array = header.get_array("eagle3.target_layers")
    assert array is not None
    return [int(i) for i in array]


def ids(*numbers: Any) -> dict[str, Any]:
    return {"eagle_aux_hidden_state_layer_ids": list(numbers)}
