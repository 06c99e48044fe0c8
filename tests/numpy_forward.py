"""A plain forward pass of a Llama, Qwen2 or Qwen3 checkpoint in NumPy (float64), by Hugging Face's formulas.

It reads names, shapes and the rotary layout as Hugging Face has them, so it knows nothing of GGUF.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Weights = Mapping[str, NDArray[Any]]


def forward(config: Mapping[str, Any], w: Weights, ids: list[int]) -> Array:
    """Logits of every position, shape (len(ids), vocab_size)."""
    eps = config["rms_norm_eps"]
    cos, sin = rotary(config, len(ids))
    x = w["model.embed_tokens.weight"][ids].astype(np.float64)
    for i in range(config["num_hidden_layers"]):
        p = f"model.layers.{i}."
        x = x + attention(
            config, w, p + "self_attn.", norm(x, w[p + "input_layernorm.weight"], eps), cos, sin
        )
        x = x + mlp(w, p + "mlp.", norm(x, w[p + "post_attention_layernorm.weight"], eps))
    head = w.get("lm_head.weight", w["model.embed_tokens.weight"])
    return norm(x, w["model.norm.weight"], eps) @ head.T


def attention(
    config: Mapping[str, Any], w: Weights, p: str, x: Array, cos: Array, sin: Array, window: int | None = None
) -> Array:
    """`window`: how many of the last tokens, itself among them, each token sees; all where it is None."""
    n, heads = len(x), config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads") or heads
    size = config.get("head_dim") or config["hidden_size"] // heads
    q = linear(w, p + "q_proj", x).reshape(n, heads, size)
    k = linear(w, p + "k_proj", x).reshape(n, kv_heads, size)
    v = linear(w, p + "v_proj", x).reshape(n, kv_heads, size)
    if p + "q_norm.weight" in w:
        q = norm(q, w[p + "q_norm.weight"], config["rms_norm_eps"])
        k = norm(k, w[p + "k_norm.weight"], config["rms_norm_eps"])
    q, k = rotate(q, cos, sin), rotate(k, cos, sin)
    k, v = (np.repeat(t, heads // kv_heads, axis=1) for t in (k, v))
    scores = np.einsum("qhd,khd->hqk", q, k) / math.sqrt(size)
    back = np.arange(n)[:, None] - np.arange(n)
    scores[:, (back < 0) | (back >= (window or n))] = -np.inf
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    scores /= scores.sum(-1, keepdims=True)
    return linear(w, p + "o_proj", np.einsum("hqk,khd->qhd", scores, v).reshape(n, heads * size))


def mlp(w: Weights, p: str, x: Array) -> Array:
    gate = linear(w, p + "gate_proj", x)
    return linear(w, p + "down_proj", gate / (1 + np.exp(-gate)) * linear(w, p + "up_proj", x))


def linear(w: Weights, name: str, x: Array) -> Array:
    return x @ w[name + ".weight"].T + w.get(name + ".bias", 0.0)


def norm(x: Array, weight: Array, eps: float) -> Array:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def rotate(x: Array, cos: Array, sin: Array) -> Array:
    """Halves, not neighbours: Hugging Face's rotate_half."""
    half = x.shape[-1] // 2
    turned = np.concatenate([-x[..., half:], x[..., :half]], axis=-1)
    return x * cos[:, None] + turned * sin[:, None]


def rotary(config: Mapping[str, Any], n: int) -> tuple[Array, Array]:
    """cos and sin, each (n, head_dim), by transformers' modeling_rope_utils."""
    size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    base = config["rope_theta"]
    scaling = config.get("rope_scaling") or {}
    kind = scaling.get("rope_type", "default")
    inverse = base ** (-np.arange(0, size, 2) / size)
    scale = 1.0
    if kind == "linear":
        inverse = inverse / scaling["factor"]
    elif kind == "llama3":
        inverse = llama3(inverse, scaling)
    elif kind == "yarn":
        inverse = yarn(inverse, scaling, base, size)
        scale = scaling.get("attention_factor") or 0.1 * math.log(scaling["factor"]) + 1
    angles = np.arange(n)[:, None] * inverse
    angles = np.concatenate([angles, angles], axis=-1)
    return np.cos(angles) * scale, np.sin(angles) * scale


def llama3(inverse: Array, scaling: Mapping[str, Any]) -> Array:
    factor, low, high = scaling["factor"], scaling["low_freq_factor"], scaling["high_freq_factor"]
    original = scaling["original_max_position_embeddings"]
    out = []
    for f in inverse:
        wave = 2 * math.pi / f
        smooth = (original / wave - low) / (high - low)
        if wave < original / high:
            out.append(f)
        elif wave > original / low:
            out.append(f / factor)
        else:
            out.append((1 - smooth) * f / factor + smooth * f)
    return np.array(out)


def yarn(inverse: Array, scaling: Mapping[str, Any], base: float, size: int) -> Array:
    original = scaling["original_max_position_embeddings"]

    def dimension(rotations: float) -> float:
        return size * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(base))

    low = max(math.floor(dimension(scaling.get("beta_fast", 32))), 0)
    high = min(math.ceil(dimension(scaling.get("beta_slow", 1))), size - 1)
    ramp = np.clip((np.arange(size // 2) - low) / max(high - low, 0.001), 0, 1)
    return inverse / scaling["factor"] * ramp + inverse * (1 - ramp)
