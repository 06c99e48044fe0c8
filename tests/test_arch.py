"""Architectures: keys and tensor names from config.json, what llama.cpp cannot run is refused, ways back."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
import tiny

from gguftools import arch
from gguftools.arch import rope
from gguftools.arch.slot import to_gguf, to_hf
from gguftools.errors import InputError, Unsupported

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def keys_of(config: dict[str, Any]) -> dict[str, Any]:
    return {name.split(".", 1)[1]: value for name, value, _ in arch.for_config(config).keys(config)}


def keys_and_slots(config: dict[str, Any]) -> None:
    model = arch.for_config(config)
    model.keys(config)
    model.slots(config)


def test_llama_keys_hold_the_sizes_under_llama_cpps_names() -> None:
    assert keys_of(tiny.LLAMA) == {
        "vocab_size": 288,
        "context_length": 256,
        "embedding_length": 64,
        "block_count": 2,
        "feed_forward_length": 96,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.key_length": 32,
        "attention.value_length": 32,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": 32,
        "rope.freq_base": 10000.0,
    }


def test_what_config_json_leaves_out_has_hugging_faces_defaults() -> None:
    config = {
        k: v for k, v in tiny.LLAMA.items() if k not in ("head_dim", "num_key_value_heads", "rope_theta")
    }
    found = keys_of(config)
    assert found["attention.key_length"] == 16
    assert found["attention.head_count_kv"] == 4
    assert found["rope.freq_base"] == 10000.0


def test_both_spellings_of_rope_parameters_mean_the_same() -> None:
    scaling = {"factor": 4.0, "original_max_position_embeddings": 64}
    old = {**tiny.QWEN2, "rope_theta": 5e5, "rope_scaling": {"type": "yarn", **scaling}}
    new = {k: v for k, v in tiny.QWEN2.items() if k != "rope_theta"}
    new["rope_parameters"] = {"rope_type": "yarn", "rope_theta": 5e5, **scaling}
    assert keys_of(old) == keys_of(new)
    assert keys_of(old)["rope.scaling.type"] == "yarn"
    assert keys_of(old)["rope.scaling.original_context_length"] == 64


def test_llama3_factors_keep_short_waves_and_divide_long_ones() -> None:
    factors = rope.llama3_factors({"rope_theta": 500000.0, "rope_scaling": LLAMA3}, 128)
    assert factors is not None
    assert factors.dtype == np.float32
    assert factors.shape == (64,)
    assert factors[0] == 1.0
    assert factors[-1] == 32.0
    assert (np.diff(factors) >= 0).all()


@pytest.mark.parametrize(
    ("change", "error", "why"),
    [
        ({"architectures": ["MambaForCausalLM"]}, Unsupported, "MambaForCausalLM cannot be converted"),
        ({"architectures": None}, Unsupported, "without architectures"),
        ({"hidden_size": None}, InputError, "hidden_size is missing"),
        ({"hidden_size": "64"}, InputError, "hidden_size is '64'"),
        ({"num_hidden_layers": 0}, InputError, "num_hidden_layers is 0"),
        ({"vocab_size": True}, InputError, "vocab_size is True"),
        ({"num_key_value_heads": 3}, InputError, "do not fit together"),
        ({"head_dim": None, "hidden_size": 65}, InputError, "no multiple"),
        ({"hidden_act": "gelu"}, Unsupported, "hidden_act gelu"),
        ({"rope_scaling": {"rope_type": "longrope"}}, Unsupported, "longrope is not supported"),
        ({"rope_scaling": {"rope_type": "linear"}}, InputError, "factor is missing"),
        ({"rope_scaling": {"rope_type": "linear", "factor": -1}}, InputError, "factor is -1"),
        ({"rope_scaling": {**LLAMA3, "high_freq_factor": 1.0}}, InputError, "high_freq_factor"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 16}}, Unsupported, "beta_fast"),
        ({"partial_rotary_factor": 0.5}, Unsupported, "partial_rotary_factor"),
    ],
)
def test_a_config_that_cannot_be_converted_is_one_clear_message(change: Any, error: Any, why: str) -> None:
    config = {**tiny.LLAMA, **change}
    with pytest.raises(error, match=why):
        keys_and_slots(config)


def test_an_unknown_class_is_answered_with_the_known_ones() -> None:
    with pytest.raises(Unsupported, match="LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM"):
        arch.for_config({"architectures": ["GemmaForCausalLM"]})


@pytest.mark.parametrize("config", [tiny.QWEN2, tiny.QWEN3])
def test_llama3_scaling_is_refused_where_llama_cpp_would_ignore_it(config: dict[str, Any]) -> None:
    with pytest.raises(Unsupported, match="llama3 is not supported"):
        arch.for_config(config).keys({**config, "rope_scaling": LLAMA3})


def test_forms_of_qwen_that_llama_cpp_does_not_run_are_refused() -> None:
    with pytest.raises(Unsupported, match="do not make hidden_size"):
        arch.for_config(tiny.QWEN2).keys({**tiny.QWEN2, "head_dim": 32})
    with pytest.raises(Unsupported, match="attention_bias"):
        arch.for_config(tiny.QWEN3).keys({**tiny.QWEN3, "attention_bias": True})


def test_tensors_differ_by_family_as_they_should() -> None:
    def names(config: dict[str, Any]) -> set[str]:
        return {slot.gguf for slot in arch.for_config(config).slots(config)}

    common = names(tiny.LLAMA)
    assert names({**tiny.LLAMA, "tie_word_embeddings": True}) == common - {"output.weight"}
    assert names(tiny.QWEN2) - common == {f"blk.{i}.attn_{x}.bias" for i in (0, 1) for x in "qkv"}
    assert names(tiny.QWEN3) - common == {f"blk.{i}.attn_{x}_norm.weight" for i in (0, 1) for x in "qk"}
    biased = names({**tiny.LLAMA, "attention_bias": True, "mlp_bias": True}) - common
    assert len(biased) == 14
    assert names({**tiny.LLAMA, "rope_scaling": LLAMA3}) - common == {"rope_freqs.weight"}


def test_regrouping_turns_halves_into_neighbours_and_back() -> None:
    head = np.arange(8)
    assert to_gguf(head, 8).tolist() == [0, 4, 1, 5, 2, 6, 3, 7]
    rows = np.arange(4 * 8 * 3).reshape(32, 3)
    assert (to_hf(to_gguf(rows, 8), 8) == rows).all()
    assert (to_gguf(rows, 8)[8:16] == to_gguf(rows[8:16], 8)).all()


def test_any_config_is_converted_or_refused_and_never_crashes() -> None:
    odd: list[Any] = [
        None,
        -1,
        0,
        1,
        3,
        2.5,
        "x",
        [],
        [1],
        {},
        {"a": 1},
        True,
        10**9,
        10**40,
        1e300,
        float("nan"),
    ]
    names = [
        *tiny.LLAMA,
        "rope_scaling",
        "rope_parameters",
        "partial_rotary_factor",
        "attention_bias",
        "mlp_bias",
    ]
    inside = [*LLAMA3, "rope_theta", "attention_factor", "beta_fast", "truncate"]
    kinds = [LLAMA3, {**LLAMA3, "rope_type": "yarn"}, {"type": "linear", "factor": 2.0}]
    trials: list[dict[str, Any]] = [{name: value} for name in names for value in odd]
    trials += [{"rope_scaling": {**kind, name: value}} for kind in kinds for name in inside for value in odd]
    for config in (tiny.LLAMA, tiny.QWEN2, tiny.QWEN3):
        for trial in trials:
            with contextlib.suppress(InputError, Unsupported):
                keys_and_slots({**config, **trial})


WINDOW = {**tiny.QWEN2, "sliding_window": 64, "max_window_layers": 0}


@pytest.mark.parametrize(
    ("change", "context"),
    [
        ({"use_sliding_window": True}, 64),
        ({"use_sliding_window": True, "max_window_layers": 2}, 256),
        ({"use_sliding_window": True, "sliding_window": None}, 256),
        ({"use_sliding_window": True, "sliding_window": 4096}, 256),
        ({"use_sliding_window": False}, 256),
        ({"layer_types": ["full_attention", "sliding_attention"]}, 64),
        ({"use_sliding_window": True, "layer_types": ["full_attention"] * 2}, 256),
    ],
)
def test_the_context_ends_where_a_sliding_window_would_begin_to_matter(
    change: dict[str, Any], context: int
) -> None:
    assert keys_of({**WINDOW, **change})["context_length"] == context
