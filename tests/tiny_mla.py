"""Tiny configurations of DeepSeek-V3's class, each with one thing that differs from Kimi-K2's."""

from __future__ import annotations

from typing import Any

DEEPSEEK: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "kimi_k2",
    "attention_bias": False,
    "first_k_dense_replace": 1,
    "hidden_act": "silu",
    "hidden_size": 64,
    "intermediate_size": 96,
    "kv_lora_rank": 32,
    "max_position_embeddings": 256,
    "moe_intermediate_size": 32,
    "moe_layer_freq": 1,
    "n_group": 1,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_attention_heads": 4,
    "num_experts_per_tok": 3,
    "num_hidden_layers": 3,
    "num_key_value_heads": 4,
    "num_nextn_predict_layers": 0,
    "q_lora_rank": 48,
    "qk_nope_head_dim": 24,
    "qk_rope_head_dim": 16,
    "rms_norm_eps": 1e-6,
    "rope_theta": 50000.0,
    "rope_scaling": None,
    "routed_scaling_factor": 2.827,
    "scoring_func": "sigmoid",
    "tie_word_embeddings": False,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "v_head_dim": 40,
    "vocab_size": 288,
}
YARN = {
    "type": "yarn",
    "factor": 8.0,
    "original_max_position_embeddings": 32,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
}
MOONLIGHT = {**DEEPSEEK, "model_type": "deepseek_v3", "q_lora_rank": None, "num_hidden_layers": 27}
K25 = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "model_type": "kimi_k25",
    "text_config": {**DEEPSEEK, "rope_scaling": YARN},
    "vision_config": {"hidden_size": 1152},
    "tie_word_embeddings": False,
}
KINDS: dict[str, dict[str, Any]] = {
    "Kimi-K2": DEEPSEEK,
    "yarn": {**DEEPSEEK, "rope_scaling": YARN},
    "yarn, K2's beta_fast": {**DEEPSEEK, "rope_scaling": {**YARN, "beta_fast": 1.0}},
    "yarn, DeepSeek-V2's mscale": {
        **DEEPSEEK,
        "rope_scaling": {**YARN, "mscale": 0.707, "mscale_all_dim": 0.707},
    },
    "groups of experts, DeepSeek-V3": {**DEEPSEEK, "n_group": 4, "topk_group": 2},
    "all groups open": {**DEEPSEEK, "n_group": 4, "topk_group": 4},
    "two shared experts, softmax, weights not normalized": {
        **DEEPSEEK,
        "n_shared_experts": 2,
        "scoring_func": "softmax",
        "norm_topk_prob": False,
    },
    "no bias on the choice": {**DEEPSEEK, "topk_method": "greedy"},
    "tied, no dense layer": {**DEEPSEEK, "tie_word_embeddings": True, "first_k_dense_replace": 0},
    "queries in one step, an unknown number of layers": {**DEEPSEEK, "q_lora_rank": None},
    "Moonlight": MOONLIGHT,
    "Kimi-K2.5": K25,
}
