"""The sizes of a DeepSeek-V3 checkpoint, and what of its config llama.cpp's deepseek2 cannot run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import InputError, Unsupported
from .dense import MAX_LAYERS, count
from .rope import MEND, OTHER

Config = Mapping[str, Any]
MAX_EXPERTS = 1024  # llama.cpp's own limit
_MAX_WIDTH = 1 << 20
GATES = {"softmax": 1, "sigmoid": 2}  # scoring_func → expert_gating_func
_NO_BIAS = ("greedy",)  # topk_method without a bias on the choice of experts


@dataclass(frozen=True, slots=True)
class Shape:
    """Numbers of elements; `q_lora` 0: queries are made in one step; `nope` and `rope`: parts of a key."""

    n_vocab: int
    n_embd: int
    n_ff: int
    n_layer: int
    n_head: int
    q_lora: int
    kv_lora: int
    nope: int
    rope: int
    value: int
    n_dense: int
    n_expert: int
    n_used: int
    n_shared: int
    n_ff_exp: int
    tied: bool
    biased: bool

    @property
    def n_key(self) -> int:
        """A head's whole key."""
        return self.nope + self.rope


def shape_of(config: Config) -> Shape:
    """Raises InputError for a size that is missing or none, Unsupported for what llama.cpp does not run."""
    _runs(config)
    n_layer = count(config, "num_hidden_layers", most=MAX_LAYERS)
    n_expert = count(config, "n_routed_experts", most=MAX_EXPERTS)
    shape = Shape(
        count(config, "vocab_size"),
        count(config, "hidden_size"),
        count(config, "intermediate_size"),
        n_layer,
        count(config, "num_attention_heads", most=_MAX_WIDTH),
        count(config, "q_lora_rank", most=_MAX_WIDTH) if config.get("q_lora_rank") is not None else 0,
        count(config, "kv_lora_rank", most=_MAX_WIDTH),
        count(config, "qk_nope_head_dim", most=_MAX_WIDTH),
        count(config, "qk_rope_head_dim", most=_MAX_WIDTH),
        count(config, "v_head_dim", most=_MAX_WIDTH),
        _dense(config, n_layer),
        n_expert,
        count(config, "num_experts_per_tok", most=n_expert),
        count(config, "n_shared_experts", most=MAX_EXPERTS),
        count(config, "moe_intermediate_size"),
        bool(config.get("tie_word_embeddings", False)),
        config.get("topk_method", "noaux_tc") not in _NO_BIAS,
    )
    if shape.rope % 2:
        raise InputError(
            f"config.json: qk_rope_head_dim {shape.rope} is odd", "positions turn pairs of numbers", MEND
        )
    return shape


def _dense(config: Config, n_layer: int) -> int:
    """Leading layers without experts."""
    value = config.get("first_k_dense_replace", 0)
    if type(value) is not int or not 0 <= value <= n_layer:
        raise InputError(
            f"config.json: first_k_dense_replace is {value!r}",
            f"it must be a whole number from 0 to {n_layer}",
            "check the checkpoint",
        )
    return value


def _runs(config: Config) -> None:
    """Raises Unsupported for what changes the sums and has no key in llama.cpp."""
    fixed = {
        "hidden_act": ("silu", "swish"),
        "attention_bias": (False,),
        "moe_layer_freq": (1,),
        "rope_interleave": (True,),
        "scoring_func": tuple(GATES),
        "topk_method": ("noaux_tc", *_NO_BIAS),
    }
    for name, values in fixed.items():
        found = config.get(name)
        if found is not None and found not in values:
            raise Unsupported(
                f"config.json: {name} {found} is not supported",
                f"llama.cpp runs deepseek2 with {' or '.join(map(str, values))}",
                OTHER,
            )


def groups(config: Config, shape: Shape) -> tuple[int, int]:
    """(groups of experts, how many are open to a token); (0, 0) where there is one expert only.

    llama.cpp ends the process when all of several groups are open: that is the same as one group.
    Raises InputError where the numbers do not fit together.
    """
    n_group = count(config, "n_group", 1, most=shape.n_expert)
    used = count(config, "topk_group", 1, most=n_group)
    size = shape.n_expert // n_group
    fits = shape.n_expert % n_group == 0 and (n_group == 1 or size >= 2) and used * size >= shape.n_used
    if not fits:
        raise InputError(
            f"config.json: {shape.n_expert} experts, n_group {n_group}, topk_group {used} and "
            f"num_experts_per_tok {shape.n_used} do not fit together",
            "equal groups of two or more hold all experts, the open ones enough for a token",
            MEND,
        )
    if used == n_group:
        return (1, 1) if shape.n_expert > 1 else (0, 0)
    if not shape.biased:
        raise Unsupported(
            f"config.json: topk_method {config['topk_method']} with n_group {n_group} is not supported",
            "llama.cpp ranks groups of experts by their two best",
            OTHER,
        )
    return n_group, used


def needs_q_lora(shape: Shape) -> bool:
    """Whether llama.cpp wants the key; it knows models without by their number of layers alone.

    Raises Unsupported where it would take a model with q_lora_rank for one without.
    """
    lite = shape.n_layer in (26, 27) or (shape.n_layer == 48 and shape.n_vocab == 128256)
    if lite and shape.q_lora:
        raise Unsupported(
            f"config.json: q_lora_rank with {shape.n_layer} layers is not supported",
            "llama.cpp takes a deepseek2 of so many layers for one without",
            OTHER,
        )
    return not lite
