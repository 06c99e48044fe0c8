"""Qwen3 with experts: in each layer a router picks some of them, and their weights add up to one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..checkpoint.floats import F32
from ..errors import InputError, Unsupported
from ..gguf_write import Key
from ..header import Header
from ..header.ggml_types import ValueType
from .dense import count
from .qwen3 import NAME as QWEN3
from .qwen3 import keys as qwen3_keys
from .qwen3 import slots as qwen3_slots
from .rope import MEND, OTHER
from .slot import Slot

NAME = "qwen3moe"
CLASSES = ("Qwen3MoeForCausalLM",)
MAX_EXPERTS = 1024  # llama.cpp's own limit
_FFN = ("ffn_gate", "ffn_up", "ffn_down")


def keys(config: Mapping[str, Any]) -> list[Key]:
    n_expert, n_used, n_ff = _experts(config)
    _refuse(config)
    found = [(name.replace(QWEN3, NAME, 1), value, kind) for name, value, kind in qwen3_keys(config)]
    own = [
        ("expert_count", n_expert),
        ("expert_used_count", n_used),
        ("expert_feed_forward_length", n_ff),
    ]
    return found + [(f"{NAME}.{name}", value, ValueType.U32) for name, value in own]


def slots(config: Mapping[str, Any]) -> list[Slot]:
    n_expert, _, n_ff = _experts(config)
    found = []
    for slot in qwen3_slots(config):
        part = slot.gguf.split(".")[-2]
        if part in _FFN:
            found.append(_merged(slot, part, n_expert, n_ff))
        else:
            found.append(slot)
        if part == "ffn_norm":
            width = slot.shape[0]
            gate = slot.names[0].replace("post_attention_layernorm", "mlp.gate")
            router = slot.gguf.replace(part, "ffn_gate_inp")
            found.append(Slot(router, gate, (n_expert, width), kind=F32))
    return found


def config(header: Header) -> dict[str, Any]:
    raise Unsupported(
        f"{header.path} has the architecture {NAME}",
        "export is for the dense families",
        "use the checkpoint that the GGUF was made from",
    )


def _merged(slot: Slot, part: str, n_expert: int, n_ff: int) -> Slot:
    """One projection of all experts of a layer, in the place of the dense model's one."""
    names = tuple(slot.names[0].replace("mlp.", f"mlp.experts.{i}.") for i in range(n_expert))
    n_embd = slot.shape[0] if part == "ffn_down" else slot.shape[1]
    shape = (n_embd, n_ff) if part == "ffn_down" else (n_ff, n_embd)
    return Slot(slot.gguf.replace(part, f"{part}_exps"), names, (n_expert, *shape))


def _experts(config: Mapping[str, Any]) -> tuple[int, int, int]:
    """(experts, experts used for a token, width of one). Raises InputError."""
    name = "num_local_experts" if config.get("num_experts") is None else "num_experts"
    if config.get(name) is None:
        name = "num_experts"
    n_expert = count(config, name, most=MAX_EXPERTS)
    n_used = count(config, "num_experts_per_tok", 8)
    if not 1 < n_expert >= n_used:
        raise InputError(
            f"config.json: {name} is {n_expert}, num_experts_per_tok {n_used}",
            "a token needs that many of at least two experts",
            MEND,
        )
    return n_expert, n_used, count(config, "moe_intermediate_size")


def _refuse(config: Mapping[str, Any]) -> None:
    """Raises Unsupported for what llama.cpp's graph does not do."""
    if config.get("norm_topk_prob") is not True:
        raise Unsupported(
            "config.json: norm_topk_prob is not true",
            f"llama.cpp's {NAME} always makes the chosen experts' weights add up to one",
            OTHER,
        )
    if config.get("mlp_only_layers") or count(config, "decoder_sparse_step", 1) != 1:
        raise Unsupported(
            "config.json: layers without experts are not supported (mlp_only_layers, decoder_sparse_step)",
            f"llama.cpp's {NAME} has experts in each layer",
            OTHER,
        )
