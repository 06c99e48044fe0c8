"""The cases of the parity test: small configs of each class, as transformers' own config would have them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tiny

VOCAB = 288

_SMALL = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "torch_dtype": "bfloat16",
}
_GEMMA3 = {
    **_SMALL,
    "num_hidden_layers": 7,
    "head_dim": 32,
    "query_pre_attn_scalar": 32,
    "sliding_window": 16,
    "bos_token_id": 2,
    "eos_token_id": 1,
}
_DEEPSEEK = {
    **_SMALL,
    "num_key_value_heads": 4,
    "moe_intermediate_size": 32,
    "kv_lora_rank": 32,
    "q_lora_rank": 32,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 2.827,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
}
_VISION = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}


_GROUPS = {"num_bits": 4, "group_size": 32, "strategy": "group", "symmetric": True, "type": "int"}
QUANTIZED: dict[str, dict[str, Any]] = {
    "fp8": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]},
    "int4": {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": _GROUPS}},
        "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*"],
    },
}


@dataclass(frozen=True)
class Case:
    """`changes` to the defaults of transformers' config `model_type`.

    `pre`: the pre-tokenizer's name, "" for sentencepiece. `packed`: linear weights are stored as QUANTIZED
    says under this name, "" as BF16.
    """

    model_type: str
    architecture: str
    changes: Mapping[str, Any]
    pre: str = ""
    outtypes: tuple[str, ...] = ("bf16",)
    packed: str = ""


CASES = {
    "llama": Case(
        "llama",
        "LlamaForCausalLM",
        {
            **_SMALL,
            "head_dim": 32,
            "rope_theta": 500000.0,
            "rope_scaling": {**tiny.LLAMA3, "factor": 32.0},
        },
        outtypes=("bf16", "f32", "f16", "q8_0"),
    ),
    "llama with biases, byte-level": Case(
        "llama", "LlamaForCausalLM", {**_SMALL, "attention_bias": True, "mlp_bias": True}, pre="llama-bpe"
    ),
    "qwen2": Case(
        "qwen2",
        "Qwen2ForCausalLM",
        {**_SMALL, "rope_scaling": {**tiny.YARN, "attention_factor": 1.3}},
        pre="qwen2",
    ),
    "qwen2 with windows": Case(
        "qwen2",
        "Qwen2ForCausalLM",
        {**_SMALL, "use_sliding_window": True, "sliding_window": 64, "max_window_layers": 1},
        pre="qwen2",
    ),
    "qwen3": Case(
        "qwen3", "Qwen3ForCausalLM", {**_SMALL, "head_dim": 32, "tie_word_embeddings": True}, pre="qwen2"
    ),
    "qwen3moe": Case(
        "qwen3_moe",
        "Qwen3MoeForCausalLM",
        {
            **_SMALL,
            "head_dim": 32,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "norm_topk_prob": True,
        },
        pre="qwen2",
        outtypes=("bf16", "q8_0"),
    ),
    "deepseek2, as Kimi-K2": Case(
        "deepseek_v3",
        "DeepseekV3ForCausalLM",
        {
            **_DEEPSEEK,
            "rope_theta": 50000.0,
            "rope_scaling": {
                **tiny.YARN,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "beta_fast": 1.0,
                "beta_slow": 1.0,
            },
        },
        pre="deepseek-v3",
        outtypes=("bf16", "q8_0"),
    ),
    "deepseek2 in FP8": Case(
        "deepseek_v3", "DeepseekV3ForCausalLM", _DEEPSEEK, pre="deepseek-v3", packed="fp8"
    ),
    "deepseek2 in int4": Case(
        "deepseek_v3", "DeepseekV3ForCausalLM", _DEEPSEEK, pre="deepseek-v3", packed="int4"
    ),
    "deepseek2, as Moonlight": Case(
        "deepseek_v3",
        "DeepseekV3ForCausalLM",
        {**_DEEPSEEK, "q_lora_rank": None, "n_shared_experts": 2},
        pre="deepseek-v3",
    ),
    "gemma3": Case("gemma3_text", "Gemma3ForCausalLM", _GEMMA3, outtypes=("bf16", "q8_0")),
    "gemma3 with vision": Case(
        "gemma3",
        "Gemma3ForConditionalGeneration",
        {
            "text_config": {**_GEMMA3, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
            "vision_config": _VISION,
            "mm_tokens_per_image": 4,
        },
    ),
}
