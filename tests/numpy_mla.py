"""A plain forward pass of a DeepSeek-V3 checkpoint in NumPy (float64), by its authors' formulas.

It reads names, shapes and the rotary layout as Hugging Face has them, so it knows nothing of GGUF.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy_forward import Array, Weights, linear, mlp, norm, yarn


def forward(config: Mapping[str, Any], w: Weights, ids: list[int], prefix: str = "") -> Array:
    """Logits of every position, shape (len(ids), vocab_size)."""
    w = {name.removeprefix(prefix): np.asarray(t, np.float64) for name, t in w.items()}
    eps = config["rms_norm_eps"]
    x = w["model.embed_tokens.weight"][ids]
    for i in range(config["num_hidden_layers"]):
        p = f"model.layers.{i}."
        x = x + attention(config, w, p + "self_attn.", norm(x, w[p + "input_layernorm.weight"], eps))
        y = norm(x, w[p + "post_attention_layernorm.weight"], eps)
        dense = i < config["first_k_dense_replace"]
        x = x + (mlp(w, p + "mlp.", y) if dense else experts(config, w, p + "mlp.", y))
    head = w.get("lm_head.weight", w["model.embed_tokens.weight"])
    return norm(x, w["model.norm.weight"], eps) @ head.T


def attention(config: Mapping[str, Any], w: Weights, p: str, x: Array) -> Array:
    n, heads, eps = len(x), config["num_attention_heads"], config["rms_norm_eps"]
    nope, rope, value = (config[k] for k in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
    if config["q_lora_rank"] is None:
        q = linear(w, p + "q_proj", x)
    else:
        low = norm(linear(w, p + "q_a_proj", x), w[p + "q_a_layernorm.weight"], eps)
        q = linear(w, p + "q_b_proj", low)
    q = q.reshape(n, heads, nope + rope)
    latent = linear(w, p + "kv_a_proj_with_mqa", x)
    latent, k_rope = latent[:, : config["kv_lora_rank"]], latent[:, config["kv_lora_rank"] :]
    kv = linear(w, p + "kv_b_proj", norm(latent, w[p + "kv_a_layernorm.weight"], eps))
    kv = kv.reshape(n, heads, nope + value)
    angles, scale = rotary(config, n)
    q_rope, k_rope = turn(q[..., nope:], angles), turn(k_rope[:, None], angles)
    scores = np.einsum("qhd,khd->hqk", q[..., :nope], kv[..., :nope])
    scores = (scores + np.einsum("qhd,kd->hqk", q_rope, k_rope[:, 0])) * scale
    scores[:, np.triu(np.ones((n, n), bool), 1)] = -np.inf
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    scores /= scores.sum(-1, keepdims=True)
    return linear(w, p + "o_proj", np.einsum("hqk,khd->qhd", scores, kv[..., nope:]).reshape(n, -1))


def turn(x: Array, angles: Array) -> Array:
    """Neighbours (2i, 2i + 1) are a pair."""
    pairs = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * angles)[:, None]
    return np.stack([pairs.real, pairs.imag], axis=-1).reshape(x.shape)


def rotary(config: Mapping[str, Any], n: int) -> tuple[Array, float]:
    """The angle of each pair at each position, and what scores are multiplied by."""
    size, base = config["qk_rope_head_dim"], config["rope_theta"]
    inverse = base ** (-np.arange(0, size, 2) / size)
    scale = (config["qk_nope_head_dim"] + size) ** -0.5
    if scaling := config.get("rope_scaling"):
        inverse = yarn(inverse, scaling, base, size)
        scale *= (0.1 * scaling["mscale_all_dim"] * math.log(scaling["factor"]) + 1) ** 2
    return np.arange(n)[:, None] * inverse, scale


def experts(config: Mapping[str, Any], w: Weights, p: str, x: Array) -> Array:
    scores = linear(w, p + "gate", x)
    if config["scoring_func"] == "sigmoid":
        scores = 1 / (1 + np.exp(-scores))
    else:
        scores = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    out = mlp(w, p + "shared_experts.", x)
    choice = scores + w.get(p + "gate.e_score_correction_bias", 0.0)
    for t, row in enumerate(choice):
        chosen = np.argsort(-grouped(config, row), kind="stable")[: config["num_experts_per_tok"]]
        weights = scores[t, chosen]
        if config["norm_topk_prob"]:
            weights = weights / weights.sum()
        for i, weight in zip(chosen, weights * config["routed_scaling_factor"], strict=True):
            out[t] += weight * mlp(w, f"{p}experts.{i}.", x[t : t + 1])[0]
    return out


def grouped(config: Mapping[str, Any], row: Array) -> Array:
    """One token's scores with those of closed groups at -inf: open are the best by their two best experts."""
    groups = row.reshape(config["n_group"], -1)
    if config["n_group"] == 1:
        return row
    best = np.sort(groups, axis=1)[:, -2:].sum(1)
    closed = np.argsort(-best)[config["topk_group"] :]
    groups = groups.copy()
    groups[closed] = -np.inf
    return groups.reshape(-1)
