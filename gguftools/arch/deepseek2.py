"""DeepSeek-V3, Kimi-K2 and its successors, Moonlight: latent attention and experts; llama.cpp's deepseek2.

Of checkpoints with vision, the language model alone. Layers that predict further tokens (MTP) are left out,
as llama.cpp's converter does for this architecture.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..checkpoint.floats import F32
from ..errors import InputError, Unsupported
from ..gguf_write import Key
from ..header import Header
from ..header.ggml_types import ValueType
from .deepseek2_shape import GATES, Shape, groups, needs_q_lora, shape_of
from .dense import MAX_LAYERS, count
from .mla import KeyPart, ValuePart
from .nested import text_part
from .rope import MEND, OTHER, number, rope_of
from .slot import Slot

NAME = "deepseek2"
CLASSES = (
    "DeepseekV3ForCausalLM",
    "KimiK2ForCausalLM",
    "KimiK25ForConditionalGeneration",
    "KimiVLForConditionalGeneration",
)
_VISION = ("vision_tower.", "mm_projector.", "multi_modal_projector.")


def keys(config: Mapping[str, Any]) -> list[Key]:
    config = text_part(config)
    s = shape_of(config)
    values: list[Key] = [
        ("vocab_size", s.n_vocab, ValueType.U32),
        ("context_length", count(config, "max_position_embeddings"), ValueType.U32),
        ("embedding_length", s.n_embd, ValueType.U32),
        ("block_count", s.n_layer, ValueType.U32),
        ("feed_forward_length", s.n_ff, ValueType.U32),
        ("leading_dense_block_count", s.n_dense, ValueType.U32),
        ("attention.layer_norm_rms_epsilon", number(config, "rms_norm_eps", 1e-6), ValueType.F32),
        *_attention(s),
        *_experts(config, s),
        ("rope.dimension_count", s.rope, ValueType.U32),
        *_rope(config),
    ]
    return [(f"{NAME}.{name}", value, kind) for name, value, kind in values]


def _attention(s: Shape) -> list[Key]:
    """llama.cpp lets all heads share one key and value, the latent vector: its lengths, then a head's own."""
    lengths = {
        "head_count": s.n_head,
        "head_count_kv": 1,
        **({"q_lora_rank": s.q_lora} if needs_q_lora(s) else {}),
        "kv_lora_rank": s.kv_lora,
        "key_length": s.kv_lora + s.rope,
        "value_length": s.kv_lora,
        "key_length_mla": s.n_key,
        "value_length_mla": s.value,
    }
    return [(f"attention.{name}", value, ValueType.U32) for name, value in lengths.items()]


def _experts(config: Mapping[str, Any], s: Shape) -> list[Key]:
    n_group, open_groups = groups(config, s)
    grouped = {"expert_group_count": n_group, "expert_group_used_count": open_groups} if n_group else {}
    counts = {
        "expert_feed_forward_length": s.n_ff_exp,
        "expert_count": s.n_expert,
        "expert_used_count": s.n_used,
        "expert_shared_count": s.n_shared,
        "expert_gating_func": GATES[config.get("scoring_func") or "sigmoid"],
        **grouped,
    }
    scale = number(config, "routed_scaling_factor")
    return [
        *((name, value, ValueType.U32) for name, value in counts.items()),
        ("expert_weights_scale", scale, ValueType.F32),
        ("expert_weights_norm", bool(config.get("norm_topk_prob", True)), ValueType.BOOL),
    ]


def _rope(config: Mapping[str, Any]) -> list[Key]:
    """Raises Unsupported for a scaling that llama.cpp sums up otherwise.

    Its graph scales rotations by mscale / mscale_all_dim as if both were equal; without yarn's keys it would
    still scale all scores, so linear is wrong there. It reads beta_fast from the context's parameters alone.
    """
    rope = rope_of(config)
    found: list[Key] = [("rope.freq_base", number(rope, "rope_theta"), ValueType.F32)]
    if rope["rope_type"] == "default":
        return found
    if rope["rope_type"] != "yarn":
        raise Unsupported(
            f"config.json: rope scaling {rope['rope_type']} is not supported",
            "llama.cpp has for this architecture: default, yarn",
            OTHER,
        )
    factor = number(rope, "factor")
    if factor < 1:
        raise InputError(f"config.json: yarn's factor is {factor}", "it must be at least 1", MEND)
    mscale = _mscale(rope)
    original = number(
        {**config, **rope}, "original_max_position_embeddings", config.get("max_position_embeddings")
    )
    return [
        *found,
        ("rope.scaling.type", "yarn", ValueType.STR),
        ("rope.scaling.factor", factor, ValueType.F32),
        ("rope.scaling.original_context_length", int(original), ValueType.U32),
        ("rope.scaling.yarn_beta_fast", number(rope, "beta_fast", 32), ValueType.F32),
        ("rope.scaling.yarn_beta_slow", number(rope, "beta_slow", 1), ValueType.F32),
        ("rope.scaling.yarn_log_multiplier", 0.1 * mscale, ValueType.F32),
    ]


def _mscale(rope: Mapping[str, Any]) -> float:
    mscale = number(rope, "mscale")
    same = mscale == number(rope, "mscale_all_dim")
    if not same or (rope.get("beta_slow") or 1) != 1 or rope.get("attention_factor") is not None:
        raise Unsupported(
            "config.json: yarn with mscale other than mscale_all_dim, with an attention_factor, or with "
            "beta_slow other than 1 is not supported",
            "llama.cpp's deepseek2 takes the first two for equal and reads neither of the others",
            OTHER,
        )
    if not rope.get("truncate", True):
        raise Unsupported(
            "config.json: yarn without truncate is not supported", "llama.cpp does not read it", OTHER
        )
    return mscale


def slots(config: Mapping[str, Any]) -> list[Slot]:
    prefix = _prefix(config)
    s = shape_of(text_part(config))
    found = [
        Slot("token_embd.weight", f"{prefix}model.embed_tokens.weight", (s.n_vocab, s.n_embd)),
        Slot("output_norm.weight", f"{prefix}model.norm.weight", (s.n_embd,)),
    ]
    if not s.tied:
        found.append(Slot("output.weight", f"{prefix}lm_head.weight", (s.n_vocab, s.n_embd)))
    for i in range(s.n_layer):
        g, h = f"blk.{i}.", f"{prefix}model.layers.{i}."
        found += _latent_attention(g, h, s)
        found.append(Slot(f"{g}ffn_norm.weight", f"{h}post_attention_layernorm.weight", (s.n_embd,)))
        if i < s.n_dense:
            found += _feed_forward(g, f"{h}mlp.", "", s.n_embd, s.n_ff)
        else:
            found += _expert_layer(g, f"{h}mlp.", s)
    return found


def _latent_attention(g: str, h: str, s: Shape) -> list[Slot]:
    a = f"{h}self_attn."
    q_rows = s.n_head * s.n_key
    query = [Slot(f"{g}attn_q.weight", f"{a}q_proj.weight", (q_rows, s.n_embd))]
    if s.q_lora:
        query = [
            Slot(f"{g}attn_q_a.weight", f"{a}q_a_proj.weight", (s.q_lora, s.n_embd)),
            Slot(f"{g}attn_q_a_norm.weight", f"{a}q_a_layernorm.weight", (s.q_lora,)),
            Slot(f"{g}attn_q_b.weight", f"{a}q_b_proj.weight", (q_rows, s.q_lora)),
        ]
    key, value = (s.n_head, s.kv_lora, s.nope), (s.n_head, s.value, s.kv_lora)
    both = f"{a}kv_b_proj.weight"
    return [
        Slot(f"{g}attn_norm.weight", f"{h}input_layernorm.weight", (s.n_embd,)),
        *query,
        Slot(f"{g}attn_kv_a_mqa.weight", f"{a}kv_a_proj_with_mqa.weight", (s.kv_lora + s.rope, s.n_embd)),
        Slot(f"{g}attn_kv_a_norm.weight", f"{a}kv_a_layernorm.weight", (s.kv_lora,)),
        Slot(f"{g}attn_k_b.weight", both, key, change=KeyPart(s.nope, s.value)),
        Slot(f"{g}attn_v_b.weight", both, value, change=ValuePart(s.nope, s.value)),
        Slot(f"{g}attn_output.weight", f"{a}o_proj.weight", (s.n_embd, s.n_head * s.value)),
    ]


def _feed_forward(g: str, h: str, kind: str, n_embd: int, n_ff: int) -> list[Slot]:
    """gate, up and down of one network. `kind` ends llama.cpp's names: "", "_shexp"."""
    shapes = {"gate": (n_ff, n_embd), "up": (n_ff, n_embd), "down": (n_embd, n_ff)}
    return [
        Slot(f"{g}ffn_{name}{kind}.weight", f"{h}{name}_proj.weight", shape) for name, shape in shapes.items()
    ]


def _expert_layer(g: str, h: str, s: Shape) -> list[Slot]:
    """The router, the experts as one tensor each for gate, up and down, the shared experts."""
    found = [Slot(f"{g}ffn_gate_inp.weight", f"{h}gate.weight", (s.n_expert, s.n_embd), kind=F32)]
    if s.biased:
        found.append(Slot(f"{g}exp_probs_b.bias", f"{h}gate.e_score_correction_bias", (s.n_expert,)))
    for one in _feed_forward(g, f"{h}experts.*.", "_exps", s.n_embd, s.n_ff_exp):
        names = tuple(str(one.hf).replace("*", str(i)) for i in range(s.n_expert))
        found.append(Slot(one.gguf, names, (s.n_expert, *one.shape)))
    return found + _feed_forward(g, f"{h}shared_experts.", "_shexp", s.n_embd, s.n_ff_exp * s.n_shared)


def left_out(config: Mapping[str, Any]) -> dict[str, str]:
    prefix = _prefix(config)
    found = dict.fromkeys(_VISION, "the vision tower and its projector") if prefix else {}
    text = text_part(config)
    n_layer = count(text, "num_hidden_layers", most=MAX_LAYERS)
    more = count(text, "num_nextn_predict_layers", most=MAX_LAYERS) if _has_mtp(text) else 0
    for i in range(n_layer, n_layer + more):
        found[f"{prefix}model.layers.{i}."] = "MTP layers, which predict further tokens"
    return found


def _has_mtp(config: Mapping[str, Any]) -> bool:
    return config.get("num_nextn_predict_layers") not in (None, 0)


def _prefix(config: Mapping[str, Any]) -> str:
    """What stands before the language model's tensor names."""
    return "language_model." if config.get("text_config") is not None else ""


def config(header: Header) -> dict[str, Any]:
    raise Unsupported(
        f"{header.path} has experts", "export is for the dense families", "keep the GGUF, or its checkpoint"
    )
