"""EAGLE-3 heads: one decoder layer that reads three states of a target and drafts for it (docs/eagle3.md).

A head is known only beside its target, so its config holds a `Head` under HEAD, which
verbs/convert/heads.py makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, Unsupported
from ..gguf_write import Key
from ..header import Header
from ..header.ggml_types import ValueType
from .dense import Shape, dense_keys, shape_of
from .rope import llama3_factors
from .slot import Slot

NAME = "eagle3"
CLASSES = ("LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM", "Eagle3Speculator", "Eagle3DraftModel")
HEAD = "gguftools.head"  # the key of a Head in a config
BETA_FAST = "gguftools.yarn_beta_fast"  # of what dense.py would refuse, since only a context takes it
EMBEDDING, OUTPUT, INPUT_NORM = "embed_tokens.weight", "lm_head.weight", "input_norm.weight"
_I64 = 27  # the ggml type of d2t: libllama asserts it


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """What config.json does not say, or says in the words of one of the formats.

    `target_layers`: the target's states that are read, each the input of that layer (the number of layers:
    the last one's output). `target_ids` [draft tokens]: the target's id of each, None where all are the
    same. `names`: this module's name of a tensor → the checkpoint's.
    """

    target_layers: tuple[int, ...]
    target_hidden_size: int
    norm_before_residual: bool
    norm_before_fc: bool
    target_ids: NDArray[np.int64] | None
    names: Mapping[str, str]


def keys(config: Mapping[str, Any]) -> list[Key]:
    head = _head(config)
    values: list[tuple[str, Any, int]] = [
        ("target_layers", np.array(head.target_layers, np.int32), ValueType.I32),
        ("target_hidden_size", head.target_hidden_size, ValueType.U32),
        ("norm_before_residual", head.norm_before_residual, ValueType.BOOL),
        ("norm_before_fc", head.norm_before_fc, ValueType.BOOL),
    ]
    if BETA_FAST in config:
        values.append(("rope.scaling.yarn_beta_fast", config[BETA_FAST], ValueType.F32))
    own = [(f"{NAME}.{name}", value, kind) for name, value, kind in values]
    return [*dense_keys(NAME, config, factors=True), *own]


def slots(config: Mapping[str, Any]) -> list[Slot]:
    head, s = _head(config), shape_of(config)
    found = _ends(head, s)
    if head.target_ids is not None:
        found.append(Slot("d2t", "", head.target_ids.shape, made=head.target_ids, kind=_I64))
    found += _layer(head, s)
    factors = llama3_factors(config, s.head_dim)
    if factors is not None:
        found.append(Slot("rope_freqs.weight", "", factors.shape, made=factors))
    return found


def config(header: Header) -> dict[str, Any]:
    raise Unsupported(
        f"{header.path} is an EAGLE-3 head",
        "the formats of heads differ, and none is written here",
        "keep the checkpoint that it was made from",
    )


def needs_target(name: str) -> InputError:
    """The error about a head alone."""
    return InputError(
        f"{name} is an EAGLE-3 head",
        "its vocabulary, and which layers it reads, are those of the model that it drafts for",
        "give that model with --target: a GGUF, a folder with its tokenizer, or a name on the Hub",
    )


def _head(config: Mapping[str, Any]) -> Head:
    head = config.get(HEAD)
    if not isinstance(head, Head):
        raise needs_target("the checkpoint")
    return head


def _ends(head: Head, s: Shape) -> list[Slot]:
    """What lies before and behind the layer; no embedding or output where they are the target's."""
    n_draft = s.n_vocab if head.target_ids is None else len(head.target_ids)
    width = len(head.target_layers) * head.target_hidden_size
    rows = [
        ("token_embd.weight", EMBEDDING, (s.n_vocab, s.n_embd), EMBEDDING in head.names),
        ("enc.output_norm.weight", INPUT_NORM, (width,), head.norm_before_fc),
        ("fc.weight", "fc.weight", (s.n_embd, width), True),
        ("output_norm.weight", "norm.weight", (s.n_embd,), True),
        ("output.weight", OUTPUT, (n_draft, s.n_embd), OUTPUT in head.names),
    ]
    return [Slot(gguf, head.names.get(hf, hf), shape) for gguf, hf, shape, there in rows if there]


def _layer(head: Head, s: Shape) -> list[Slot]:
    """q and k rows are regrouped as Llama's are; q, k and v read the embedding and the state side by side."""
    q, kv = s.n_head * s.head_dim, s.n_head_kv * s.head_dim
    rows: list[tuple[str, str, tuple[int, ...], int]] = [
        ("attn_norm", "input_layernorm", (s.n_embd,), 0),
        ("attn_norm_2", "hidden_norm", (s.n_embd,), 0),
        ("attn_q", "self_attn.q_proj", (q, 2 * s.n_embd), s.head_dim),
        ("attn_k", "self_attn.k_proj", (kv, 2 * s.n_embd), s.head_dim),
        ("attn_v", "self_attn.v_proj", (kv, 2 * s.n_embd), 0),
        ("attn_output", "self_attn.o_proj", (s.n_embd, q), 0),
        ("ffn_norm", "post_attention_layernorm", (s.n_embd,), 0),
        ("ffn_gate", "mlp.gate_proj", (s.n_ff, s.n_embd), 0),
        ("ffn_up", "mlp.up_proj", (s.n_ff, s.n_embd), 0),
        ("ffn_down", "mlp.down_proj", (s.n_embd, s.n_ff), 0),
    ]
    found = []
    for gguf, hf, shape, turn in rows:
        name = f"layers.0.{hf}.weight"
        found.append(Slot(f"blk.0.{gguf}.weight", head.names.get(name, name), shape, turn))
    return found
