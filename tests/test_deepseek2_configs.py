"""deepseek2: any config.json is converted or refused with one clear message, and never crashes."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tiny_mla

from gguftools import arch
from gguftools.arch.mla import KeyPart, ValuePart
from gguftools.errors import InputError, Unsupported

YARN = {**tiny_mla.DEEPSEEK, "rope_scaling": tiny_mla.YARN}


def keys_and_slots(config: dict[str, Any]) -> dict[str, Any]:
    model = arch.for_config(config)
    keys = {name.removeprefix("deepseek2."): value for name, value, _ in model.keys(config)}
    assert model.slots(config)
    arch.left_out(config)
    return keys


def scaled(**change: Any) -> dict[str, Any]:
    return {"rope_scaling": {**tiny_mla.YARN, **change}}


@pytest.mark.parametrize(
    ("change", "error", "why"),
    [
        ({"kv_lora_rank": None}, InputError, "kv_lora_rank is missing"),
        ({"qk_rope_head_dim": 15}, InputError, "15 is odd"),
        ({"q_lora_rank": 0}, InputError, "q_lora_rank is 0"),
        ({"n_routed_experts": None}, InputError, "n_routed_experts is missing"),
        ({"n_routed_experts": 10**9}, InputError, "from 1 to 1,024"),
        ({"num_experts_per_tok": 9}, InputError, "from 1 to 8"),
        ({"n_shared_experts": 0}, InputError, "n_shared_experts is 0"),
        ({"first_k_dense_replace": 4}, InputError, "from 0 to 3"),
        ({"routed_scaling_factor": None}, InputError, "routed_scaling_factor is missing"),
        ({"n_group": 3, "topk_group": 2}, InputError, "do not fit together"),
        ({"n_group": 8, "topk_group": 2}, InputError, "do not fit together"),
        ({"n_group": 4, "topk_group": 1}, InputError, "do not fit together"),
        ({"n_group": 4, "topk_group": 2, "topk_method": "greedy"}, Unsupported, "n_group 4"),
        ({"topk_method": "group_limited_greedy"}, Unsupported, "topk_method group_limited_greedy"),
        ({"scoring_func": "sqrtsoftplus"}, Unsupported, "scoring_func sqrtsoftplus"),
        ({"hidden_act": "gelu"}, Unsupported, "hidden_act gelu"),
        ({"attention_bias": True}, Unsupported, "attention_bias True"),
        ({"moe_layer_freq": 2}, Unsupported, "moe_layer_freq 2"),
        ({"rope_interleave": False}, Unsupported, "rope_interleave False"),
        ({"num_hidden_layers": 27}, Unsupported, "q_lora_rank with 27 layers"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, Unsupported, "rope scaling linear"),
        (scaled(mscale_all_dim=0.5), Unsupported, "mscale"),
        (scaled(mscale_all_dim=None), InputError, "mscale_all_dim is missing"),
        (scaled(beta_slow=2), Unsupported, "beta_slow"),
        (scaled(attention_factor=1.0), Unsupported, "attention_factor"),
        (scaled(truncate=False), Unsupported, "truncate"),
        (scaled(factor=0.5), InputError, "factor is 0.5"),
    ],
)
def test_what_llama_cpp_would_run_otherwise_is_refused(change: Any, error: Any, why: str) -> None:
    with pytest.raises(error, match=why) as caught:
        keys_and_slots({**tiny_mla.DEEPSEEK, **change})
    assert caught.value.hint


@pytest.mark.parametrize(
    ("change", "written"),
    [
        ({"n_group": 4, "topk_group": 2}, (4, 2)),
        ({"n_group": 4, "topk_group": 4}, (1, 1)),
        ({"n_group": None, "topk_group": None}, (1, 1)),
        ({"n_routed_experts": 1, "num_experts_per_tok": 1}, (None, None)),
    ],
)
def test_groups_are_written_only_as_llama_cpp_survives_them(change: Any, written: Any) -> None:
    keys = keys_and_slots({**tiny_mla.DEEPSEEK, **change})
    assert (keys.get("expert_group_count"), keys.get("expert_group_used_count")) == written


@pytest.mark.parametrize(
    ("change", "written"),
    [
        ({}, 48),
        ({"q_lora_rank": None}, 0),
        ({"q_lora_rank": None, "num_hidden_layers": 27}, None),
        ({"q_lora_rank": None, "num_hidden_layers": 48, "vocab_size": 128256}, None),
    ],
)
def test_q_lora_rank_is_left_out_where_llama_cpp_knows_by_the_number_of_layers(
    change: Any, written: int | None
) -> None:
    assert keys_and_slots({**tiny_mla.DEEPSEEK, **change}).get("attention.q_lora_rank") == written


def test_any_config_is_converted_or_refused_and_never_crashes() -> None:
    odd: list[Any] = [None, -1, 0, 1, 3, 2.5, "x", [], [1], {}, {"a": 1}, True, 10**9, 10**40, 1e300]
    odd.append(float("nan"))
    trials: list[dict[str, Any]] = [
        {name: value} for name in (*YARN, "rope_parameters", "text_config") for value in odd
    ]
    trials += [
        scaled(**{name: value}) for name in (*tiny_mla.YARN, "rope_theta", "truncate") for value in odd
    ]
    done = 0
    for trial in trials:
        for config in ({**YARN, **trial}, {**tiny_mla.K25, "text_config": {**YARN, **trial}}):
            with contextlib.suppress(InputError, Unsupported):
                keys_and_slots(config)
                done += 1
    assert 0 < done < 2 * len(trials)


def test_text_config_means_the_same_as_no_vision() -> None:
    keys = keys_and_slots(tiny_mla.K25)
    assert keys == keys_and_slots(tiny_mla.K25["text_config"])
    slots = arch.for_config(tiny_mla.K25).slots(tiny_mla.K25)
    plain = arch.for_config(YARN).slots(YARN)
    assert [slot.gguf for slot in slots] == [slot.gguf for slot in plain]
    for ours, theirs in zip(slots, plain, strict=True):
        assert ours.names == tuple(f"language_model.{name}" for name in theirs.names)


def test_the_two_parts_of_kv_b_are_taken_head_by_head() -> None:
    rows = np.arange(2 * 5 * 4).reshape(10, 4)
    assert KeyPart(3, 2)(rows).tolist() == [rows[:3].T.tolist(), rows[5:8].T.tolist()]
    assert ValuePart(3, 2)(rows).tolist() == [rows[3:5].tolist(), rows[8:].tolist()]
    assert KeyPart(3, 2).shape_of_source((2, 4, 3)) == ValuePart(3, 2).shape_of_source((2, 2, 4)) == (10, 4)


@pytest.mark.parametrize(
    ("name", "lacks"),
    [
        ("KimiK3ForConditionalGeneration", "MXFP4"),
        ("KimiLinearForCausalLM", "kimi-linear"),
        ("DeepseekV32ForCausalLM", "sparse attention"),
        ("MambaForCausalLM", "tensor names"),
    ],
)
def test_a_class_that_cannot_be_converted_is_told_with_what_is_missing_and_who_can(
    name: str, lacks: str
) -> None:
    with pytest.raises(Unsupported, match=f"{name} cannot be converted\n.*{lacks}.*\n.*convert_hf_to_gguf"):
        arch.for_config({"architectures": [name]})


def test_deepseek2_has_no_way_back() -> None:
    with pytest.raises(Unsupported, match="architecture deepseek2\nexported are llama, qwen2, qwen3"):
        arch.for_header(SimpleNamespace(architecture="deepseek2", path="x.gguf"))  # type: ignore[arg-type]
