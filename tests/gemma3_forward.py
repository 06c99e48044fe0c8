"""Tiny Gemma 3 checkpoints, and a plain forward pass of one by transformers' formulas (float64)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tiny
from numpy.typing import NDArray
from numpy_forward import Array, Weights, attention, linear, norm, rotary

GEMMA3: dict[str, Any] = {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "vocab_size": 288,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 7,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "rope_local_base_freq": 10000.0,
    "query_pre_attn_scalar": 32,
    "sliding_window": 16,
    "sliding_window_pattern": 6,
}
LINEAR = {"rope_type": "linear", "factor": 8.0}
KINDS = {
    "as the 1B": GEMMA3,
    "scaled, as the 4B": {**GEMMA3, "rope_scaling": LINEAR},
    "a pattern of its own": {**GEMMA3, "sliding_window_pattern": 2},
    "layers named one by one": {
        **GEMMA3,
        "layer_types": [*["full_attention"] * 3, *["sliding_attention"] * 4],
        "rope_parameters": {
            "full_attention": {"rope_theta": 500000.0, **LINEAR},
            "sliding_attention": {"rope_theta": 5000.0, "rope_type": "default"},
        },
    },
    "no windows": {**GEMMA3, "sliding_window_pattern": 1},
    "an output of its own, a soft cap": {
        **GEMMA3,
        "tie_word_embeddings": False,
        "final_logit_softcapping": 3.0,
    },
}


def weights(config: Mapping[str, Any]) -> dict[str, NDArray[np.float32]]:
    """Random ones; what the feed-forward part adds is small.

    libllama's CPU code looks GELU up in a table of F16 numbers, each wrong by up to 2^-11 of itself. Were
    that part as large as attention's, the logits would differ by 3e-3, and by 1e-3 from those of a forward
    pass with such a table.
    """
    out = tiny.weights(config)
    for name in out:
        if name.endswith("norm.weight"):
            out[name] = out[name] * np.float32(0.25 if "post_feedforward" in name else 1) - np.float32(1)
    return out


def forward(config: Mapping[str, Any], stored: Weights, ids: list[int]) -> Array:
    """Logits by transformers' modeling_gemma3: norms times 1 + weight, four of them in a layer."""
    w = {name: t + 1.0 if name.endswith("norm.weight") else t for name, t in stored.items()}
    eps = config["rms_norm_eps"]
    x = w["model.embed_tokens.weight"][ids].astype(np.float64) * config["hidden_size"] ** 0.5
    for i in range(config["num_hidden_layers"]):
        p = f"model.layers.{i}."
        local = slides(config, i)
        cos, sin = rotary(rope(config, local), len(ids))
        window = config["sliding_window"] if local else None
        h = norm(x, w[p + "input_layernorm.weight"], eps)
        h = attention(config, w, p + "self_attn.", h, cos, sin, window)
        x = x + norm(h, w[p + "post_attention_layernorm.weight"], eps)
        h = norm(x, w[p + "pre_feedforward_layernorm.weight"], eps)
        h = gelu(linear(w, p + "mlp.gate_proj", h)) * linear(w, p + "mlp.up_proj", h)
        x = x + norm(linear(w, p + "mlp.down_proj", h), w[p + "post_feedforward_layernorm.weight"], eps)
    logits: Array = (
        norm(x, w["model.norm.weight"], eps) @ w.get("lm_head.weight", w["model.embed_tokens.weight"]).T
    )
    cap = config.get("final_logit_softcapping")
    return np.tanh(logits / cap) * cap if cap else logits


def slides(config: Mapping[str, Any], i: int) -> bool:
    if "layer_types" in config:
        return bool(config["layer_types"][i] == "sliding_attention")
    return (i + 1) % config["sliding_window_pattern"] != 0


def rope(config: Mapping[str, Any], local: bool) -> Mapping[str, Any]:
    """The config with the rotation of one kind of layer in the place of the whole's."""
    if "rope_parameters" in config:
        own = config["rope_parameters"]["sliding_attention" if local else "full_attention"]
        return {**config, "rope_theta": own["rope_theta"], "rope_scaling": own}
    return (
        {**config, "rope_theta": config["rope_local_base_freq"], "rope_scaling": None}
        if local
        else {**config}
    )


def gelu(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))
