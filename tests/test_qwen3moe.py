"""Qwen3 with experts: the logits of a plain forward pass, experts as one tensor, what is refused."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lowlevel
import numpy as np
import pytest
import tiny
from numpy_forward import Array, Weights, attention, mlp, norm, rotary

from gguftools import arch
from gguftools.errors import InputError, Unsupported
from gguftools.header import read_header
from gguftools.verbs.convert import convert

QWEN3MOE: dict[str, Any] = {
    **tiny.QWEN3,
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 32,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}


def forward(config: Mapping[str, Any], w: Weights, ids: list[int]) -> Array:
    """Logits by transformers' modeling_qwen3_moe: softmax over all experts, the best made to add up to 1."""
    eps = config["rms_norm_eps"]
    cos, sin = rotary(config, len(ids))
    x = w["model.embed_tokens.weight"][ids].astype(np.float64)
    for i in range(config["num_hidden_layers"]):
        p = f"model.layers.{i}."
        h = norm(x, w[p + "input_layernorm.weight"], eps)
        x = x + attention(config, w, p + "self_attn.", h, cos, sin)
        x = x + experts(config, w, p + "mlp.", norm(x, w[p + "post_attention_layernorm.weight"], eps))
    return norm(x, w["model.norm.weight"], eps) @ w["lm_head.weight"].T


def experts(config: Mapping[str, Any], w: Weights, p: str, x: Array) -> Array:
    chance = np.exp(x @ w[p + "gate.weight"].T)
    out = np.zeros_like(x)
    for token, row in enumerate(chance):
        best = np.argsort(-row)[: config["num_experts_per_tok"]]
        for i in best:
            out[token] += row[i] / row[best].sum() * mlp(w, f"{p}experts.{i}.", x[token])
    return out


@pytest.mark.parametrize("change", [{}, {"rope_scaling": tiny.YARN}], ids=["plain", "yarn"])
def test_libllamas_logits_are_those_of_a_plain_forward_pass(
    tmp_path: Path, tokenizer: Path, change: dict[str, Any]
) -> None:
    config = {**QWEN3MOE, **change}
    weights = tiny.weights(config)
    tiny.write_checkpoint(tmp_path / "m", config, weights, shards=3, tokenizer=tokenizer)
    convert(tmp_path / "m", tmp_path / "m.gguf", outtype="f32")
    ids = np.random.default_rng(7).integers(0, config["vocab_size"], 120).tolist()
    found = lowlevel.logits(tmp_path / "m.gguf", ids)
    wanted = forward(config, weights, ids)
    assert np.abs(wanted).max() > 1
    assert np.abs(found - wanted).max() < 1e-3


@pytest.mark.parametrize("outtype", ["auto", "q8_0", "q4_0"])
def test_experts_are_one_tensor_of_the_asked_type_and_the_router_stays_f32(
    tmp_path: Path, tokenizer: Path, outtype: Any
) -> None:
    stored = {name: tiny.bf16(t) for name, t in tiny.weights(QWEN3MOE).items()}
    tiny.write_checkpoint(tmp_path / "m", QWEN3MOE, stored, tokenizer=tokenizer)
    convert(tmp_path / "m", tmp_path / "m.gguf", outtype=outtype)
    found = {t.name: (t.type, t.shape) for t in read_header(tmp_path / "m.gguf").tensors}
    kind = {"auto": 30, "q8_0": 8, "q4_0": 2}[outtype]
    assert found["blk.1.ffn_gate_exps.weight"] == (kind, (64, 32, 8))
    assert found["blk.1.ffn_up_exps.weight"] == (kind, (64, 32, 8))
    assert found["blk.1.ffn_down_exps.weight"] == (kind, (32, 64, 8))
    assert found["blk.1.ffn_gate_inp.weight"] == (0, (64, 8))
    assert len(lowlevel.greedy(tmp_path / "m.gguf", [1, 2, 3], 2)) == 2


def test_the_keys_are_qwen3s_and_three_more() -> None:
    found = {name: value for name, value, _ in arch.for_config(QWEN3MOE).keys(QWEN3MOE)}
    plain = {
        name.replace("qwen3.", "qwen3moe."): v for name, v, _ in arch.for_config(tiny.QWEN3).keys(tiny.QWEN3)
    }
    assert {name: v for name, v in found.items() if name not in plain} == {
        "qwen3moe.expert_count": 8,
        "qwen3moe.expert_used_count": 3,
        "qwen3moe.expert_feed_forward_length": 32,
    }
    assert plain.items() <= found.items()


@pytest.mark.parametrize(
    ("change", "error", "why"),
    [
        ({"norm_topk_prob": False}, Unsupported, "norm_topk_prob is not true"),
        ({"norm_topk_prob": None}, Unsupported, "norm_topk_prob is not true"),
        ({"mlp_only_layers": [0]}, Unsupported, "layers without experts"),
        ({"decoder_sparse_step": 2}, Unsupported, "layers without experts"),
        ({"num_experts": None}, InputError, "num_experts is missing"),
        ({"num_experts": 1, "num_experts_per_tok": 1}, InputError, "at least two experts"),
        ({"num_experts_per_tok": 9}, InputError, "num_experts_per_tok 9"),
        ({"num_experts": 10**6}, InputError, "num_experts is 1000000"),
        ({"moe_intermediate_size": None}, InputError, "moe_intermediate_size is missing"),
        ({"attention_bias": True}, Unsupported, "attention_bias"),
    ],
)
def test_what_llama_cpp_cannot_run_is_one_clear_message(change: Any, error: Any, why: str) -> None:
    config = {**QWEN3MOE, **change}
    with pytest.raises(error, match=why):
        arch.for_config(config).keys(config)


def test_a_missing_expert_is_one_clear_message(tmp_path: Path, tokenizer: Path) -> None:
    weights = tiny.weights(QWEN3MOE)
    del weights["model.layers.1.mlp.experts.5.up_proj.weight"]
    tiny.write_checkpoint(tmp_path / "m", QWEN3MOE, weights, tokenizer=tokenizer)
    with pytest.raises(InputError, match=r"lacks model.layers.1.mlp.experts.5.up_proj.weight"):
        convert(tmp_path / "m", tmp_path / "m.gguf")
    assert not (tmp_path / "m.gguf").exists()


def test_any_config_is_converted_or_refused_and_never_crashes() -> None:
    odd: list[Any] = [None, -1, 0, 1, 3, 2.5, "x", [], [1], {}, True, 10**40, float("nan")]
    for name in [*QWEN3MOE, "num_local_experts"]:
        for value in odd:
            config = {**QWEN3MOE, name: value, "architectures": QWEN3MOE["architectures"]}
            with contextlib.suppress(InputError, Unsupported):
                arch.for_config(config).keys(config)
                arch.for_config(config).slots(config)
