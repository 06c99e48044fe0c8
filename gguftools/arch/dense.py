"""What the dense decoders share: sizes, GGUF keys, tensor names, and config.json from a header."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import InputError, Unsupported
from ..gguf_write import Key
from ..header import Header
from ..header.ggml_types import ValueType
from .rope import MEND, OTHER, number, rope_config, rope_keys, short
from .slot import Slot

Config = Mapping[str, Any]
MAX_LAYERS = 512  # llama.cpp's own limit
MAX_HEAD_DIM = 1 << 16


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes that every dense decoder has; numbers of elements."""

    n_vocab: int
    n_embd: int
    n_ff: int
    n_layer: int
    n_head: int
    n_head_kv: int
    head_dim: int
    tied: bool


@dataclass(frozen=True, slots=True)
class Extras:
    """What an architecture has beyond the common weights; `permuted`: q and k rows are regrouped for RoPE."""

    permuted: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    ffn_bias: bool = False
    qk_norm: bool = False


def shape_of(config: Config) -> Shape:
    """The sizes of a checkpoint. Raises InputError (missing or no count), Unsupported (activation)."""
    n_embd, n_head = count(config, "hidden_size"), count(config, "num_attention_heads")
    n_head_kv = count(config, "num_key_value_heads", n_head)
    if config.get("head_dim") is None and n_embd % n_head:
        raise InputError(
            f"config.json: hidden_size {n_embd} is no multiple of num_attention_heads {n_head}",
            "the heads share the width evenly",
            MEND,
        )
    head_dim = count(config, "head_dim", n_embd // n_head, MAX_HEAD_DIM)
    if n_head % n_head_kv or head_dim % 2:
        raise InputError(
            f"config.json: {n_head} heads and {n_head_kv} key-value heads of {head_dim} do not fit together",
            "the heads share the width evenly",
            MEND,
        )
    if (act := config.get("hidden_act", "silu")) not in ("silu", "swish"):
        raise Unsupported(
            f"config.json: hidden_act {act} is not supported",
            "llama.cpp runs this class with silu",
            OTHER,
        )
    return Shape(
        count(config, "vocab_size"),
        n_embd,
        count(config, "intermediate_size"),
        count(config, "num_hidden_layers", most=MAX_LAYERS),
        n_head,
        n_head_kv,
        head_dim,
        bool(config.get("tie_word_embeddings", False)),
    )


def count(config: Config, name: str, default: int | None = None, most: int = (1 << 31) - 1) -> int:
    """A number from 1 to `most` of config.json; null counts as missing. Raises InputError."""
    value = config.get(name)
    if value is None:
        value = default
    if type(value) is not int or not 1 <= value <= most:
        what = "is missing" if value is None else f"is {value!r}"
        raise InputError(
            f"config.json: {name} {what}",
            f"it must be a whole number from 1 to {most:,}",
            "check the checkpoint",
        )
    return value


def dense_keys(arch: str, config: Config, factors: bool = False) -> list[Key]:
    """The architecture's own keys, in a fixed order. `factors`: llama.cpp reads rope_freqs.weight there."""
    shape = shape_of(config)
    values: list[tuple[str, Any, int]] = [
        ("vocab_size", shape.n_vocab, ValueType.U32),
        ("context_length", _context_length(config), ValueType.U32),
        ("embedding_length", shape.n_embd, ValueType.U32),
        ("block_count", shape.n_layer, ValueType.U32),
        ("feed_forward_length", shape.n_ff, ValueType.U32),
        ("attention.head_count", shape.n_head, ValueType.U32),
        ("attention.head_count_kv", shape.n_head_kv, ValueType.U32),
        ("attention.key_length", shape.head_dim, ValueType.U32),
        ("attention.value_length", shape.head_dim, ValueType.U32),
        ("attention.layer_norm_rms_epsilon", number(config, "rms_norm_eps", 1e-6), ValueType.F32),
        ("rope.dimension_count", shape.head_dim, ValueType.U32),
        *rope_keys(config, factors),
    ]
    return [(f"{arch}.{name}", value, kind) for name, value, kind in values]


def _context_length(config: Config) -> int:
    """max_position_embeddings; at most the window where layers have one: llama.cpp's graphs have none."""
    most = count(config, "max_position_embeddings")
    layers = config.get("layer_types")
    if isinstance(layers, list):
        windowed = "sliding_attention" in layers
    else:
        full = config.get("max_window_layers")
        full = full if type(full) is int else 28  # transformers' default
        windowed = bool(config.get("use_sliding_window")) and full < count(config, "num_hidden_layers")
    return min(most, count(config, "sliding_window", most)) if windowed else most


def dense_slots(config: Config, extras: Extras) -> list[Slot]:
    """Every tensor that the checkpoint must have, in the order of the GGUF."""
    s = shape_of(config)
    slots = [Slot("token_embd.weight", "model.embed_tokens.weight", (s.n_vocab, s.n_embd))]
    slots.append(Slot("output_norm.weight", "model.norm.weight", (s.n_embd,)))
    if not s.tied:
        slots.append(Slot("output.weight", "lm_head.weight", (s.n_vocab, s.n_embd)))
    for i in range(s.n_layer):
        slots += _layer(i, s, extras)
    return slots


def _layer(i: int, s: Shape, extras: Extras) -> list[Slot]:
    g, h = f"blk.{i}.", f"model.layers.{i}."
    q, kv = s.n_head * s.head_dim, s.n_head_kv * s.head_dim
    turn = s.head_dim if extras.permuted else 0
    linear = [
        ("attn_q", "self_attn.q_proj", q, s.n_embd, turn, extras.qkv_bias),
        ("attn_k", "self_attn.k_proj", kv, s.n_embd, turn, extras.qkv_bias),
        ("attn_v", "self_attn.v_proj", kv, s.n_embd, 0, extras.qkv_bias),
        ("attn_output", "self_attn.o_proj", s.n_embd, q, 0, extras.out_bias),
        ("ffn_gate", "mlp.gate_proj", s.n_ff, s.n_embd, 0, extras.ffn_bias),
        ("ffn_up", "mlp.up_proj", s.n_ff, s.n_embd, 0, extras.ffn_bias),
        ("ffn_down", "mlp.down_proj", s.n_embd, s.n_ff, 0, extras.ffn_bias),
    ]
    slots = [Slot(f"{g}attn_norm.weight", f"{h}input_layernorm.weight", (s.n_embd,))]
    if extras.qk_norm:
        slots.append(Slot(f"{g}attn_q_norm.weight", f"{h}self_attn.q_norm.weight", (s.head_dim,)))
        slots.append(Slot(f"{g}attn_k_norm.weight", f"{h}self_attn.k_norm.weight", (s.head_dim,)))
    for gguf, hf, rows, width, head_dim, bias in linear:
        slots.append(Slot(f"{g}{gguf}.weight", f"{h}{hf}.weight", (rows, width), head_dim))
        if bias:
            slots.append(Slot(f"{g}{gguf}.bias", f"{h}{hf}.bias", (rows,), head_dim))
    slots.append(Slot(f"{g}ffn_norm.weight", f"{h}post_attention_layernorm.weight", (s.n_embd,)))
    return slots


def dense_config(header: Header, class_name: str, model_type: str) -> dict[str, Any]:
    """config.json of a GGUF, in Hugging Face's words. Raises InputError, Unsupported (experts)."""
    arch = header.architecture
    need = {name: need_int(header, f"{arch}.{key}") for name, key in _SIZES.items()}
    if header.get_int(f"{arch}.expert_count", 0):
        raise Unsupported(
            f"{header.path} has experts", "only dense models of this family are exported", OTHER
        )
    heads = need["num_attention_heads"]
    embd = next((t for t in header.tensors if t.name == "token_embd.weight"), None)
    if embd is None or len(embd.shape) != 2:
        raise InputError(
            f"{header.path} has no token_embd.weight", "it holds a vocabulary alone or is no model", OTHER
        )
    tied = all(t.name != "output.weight" for t in header.tensors)
    head_dim = header.get_int(f"{arch}.attention.key_length", need["hidden_size"] // heads)
    if (turned := header.get_int(f"{arch}.rope.dimension_count", head_dim)) != head_dim:
        raise Unsupported(
            f"{header.path} rotates {turned} of the {head_dim} numbers of a head",
            "its Hugging Face class rotates all",
            OTHER,
        )
    return {
        "architectures": [class_name],
        "model_type": model_type,
        "vocab_size": embd.shape[1],
        **need,
        "num_key_value_heads": header.get_int(f"{arch}.attention.head_count_kv", heads),
        "head_dim": head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": short(header.get_float(f"{arch}.attention.layer_norm_rms_epsilon", 1e-6)),
        "tie_word_embeddings": tied,
        **rope_config(header),
    }


def need_int(header: Header, key: str) -> int:
    """A count that the header must hold. Raises InputError."""
    value = header.get_int(key, 0)
    if not value or value < 1:
        raise InputError(f"{header.path} has no {key}", "without it there is no config.json to write", OTHER)
    return value


_SIZES = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "max_position_embeddings": "context_length",
}
