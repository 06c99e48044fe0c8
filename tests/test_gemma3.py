"""Gemma 3: the logits of a plain forward pass, windows, vision left out, what is refused."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import lowlevel
import numpy as np
import parity_files
import pytest
import tiny
from gemma3_forward import GEMMA3, KINDS, LINEAR, forward, weights

from gguftools import arch
from gguftools.checkpoint import floats
from gguftools.errors import InputError, Unsupported
from gguftools.header import read_header, read_tensor
from gguftools.verbs.convert import convert


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    parity_files.write_gemma(folder)
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_libllamas_logits_are_those_of_a_plain_forward_pass(
    tmp_path: Path, tokenizer: Path, kind: str
) -> None:
    config = KINDS[kind]
    stored = weights(config)
    tiny.write_checkpoint(tmp_path / "m", config, stored, tokenizer=tokenizer)
    convert(tmp_path / "m", tmp_path / "m.gguf", outtype="f32")
    ids = np.random.default_rng(7).integers(0, config["vocab_size"], 120).tolist()
    found = lowlevel.logits(tmp_path / "m.gguf", ids)
    wanted = forward(config, stored, ids)
    assert np.abs(wanted).max() > 1
    assert np.abs(found - wanted).max() < 1e-3


def test_a_wrong_window_would_show_in_the_logits() -> None:
    stored, ids = weights(GEMMA3), list(range(1, 60))
    right = forward(GEMMA3, stored, ids)
    wrong = forward({**GEMMA3, "sliding_window": 17}, stored, ids)
    assert np.abs(right - wrong)[:16].max() < 1e-9
    assert np.abs(right - wrong)[16:].max() > 0.1


def keys_of(config: dict[str, Any]) -> dict[str, Any]:
    return {name.split(".", 1)[1]: value for name, value, _ in arch.for_config(config).keys(config)}


def test_what_the_4b_leaves_out_of_its_config_has_transformers_defaults() -> None:
    """google/gemma-3-4b-it says no more than this of its text part."""
    text = {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "rope_scaling": LINEAR,
        "sliding_window": 1024,
    }
    config = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "text_config": text,
        "vision_config": {"hidden_size": 1152},
        "mm_tokens_per_image": 256,
    }
    found = keys_of(config)
    assert found == {
        "vocab_size": 262208,
        "context_length": 131072,
        "embedding_length": 2560,
        "block_count": 34,
        "feed_forward_length": 10240,
        "attention.head_count": 8,
        "attention.head_count_kv": 4,
        "attention.key_length": 256,
        "attention.value_length": 256,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.dimension_count": 256,
        "rope.freq_base": 1000000.0,
        "rope.scaling.type": "linear",
        "rope.scaling.factor": 8.0,
        "attention.sliding_window": 1024,
        "rope.freq_base_swa": 10000.0,
    }
    shapes = {slot.gguf: slot.shape for slot in arch.for_config(config).slots(config)}
    assert shapes["token_embd.weight"] == (262208, 2560)
    assert "output.weight" not in shapes
    assert shapes["blk.33.attn_q.weight"] == (2048, 2560)


def test_the_27b_has_its_own_scale_for_queries() -> None:
    big = {
        **GEMMA3,
        "num_hidden_layers": 62,
        "hidden_size": 672,
        "head_dim": 128,
        "query_pre_attn_scalar": 168,
    }
    assert keys_of(big)["block_count"] == 62
    with pytest.raises(Unsupported, match="query_pre_attn_scalar 128"):
        keys_of({**big, "query_pre_attn_scalar": 128})


@pytest.mark.parametrize(
    ("change", "error", "why"),
    [
        ({"query_pre_attn_scalar": 64}, Unsupported, "query_pre_attn_scalar 64"),
        ({"hidden_activation": "gelu"}, Unsupported, "the activation gelu"),
        ({"hidden_act": "silu"}, Unsupported, "the activation silu"),
        ({"attn_logit_softcapping": 50.0}, Unsupported, "attn_logit_softcapping"),
        ({"use_bidirectional_attention": True}, Unsupported, "use_bidirectional_attention"),
        ({"attention_bias": True}, Unsupported, "attention_bias"),
        ({"rope_scaling": tiny.YARN}, Unsupported, "rope scaling yarn"),
        ({"rope_parameters": {"sliding_attention": {**LINEAR}}}, Unsupported, "linear of sliding attention"),
        ({"rope_parameters": {"full_attention": 3}}, InputError, "full_attention are 3"),
        ({"rope_scaling": [1]}, InputError, "rope_scaling is"),
        ({"layer_types": ["full_attention"]}, InputError, "for each of 7 layers"),
        ({"layer_types": ["linear_attention"] * 7}, InputError, "layer_types is"),
        ({"sliding_window": None}, InputError, "sliding_window is missing"),
        ({"sliding_window_pattern": 0}, InputError, "sliding_window_pattern is 0"),
        ({"text_config": [1]}, InputError, "text_config is"),
    ],
)
def test_what_llama_cpp_cannot_run_is_one_clear_message(change: Any, error: Any, why: str) -> None:
    with pytest.raises(error, match=why):
        keys_of({**GEMMA3, **change})


def test_any_config_is_converted_or_refused_and_never_crashes() -> None:
    odd: list[Any] = [None, -1, 0, 1, 3, 2.5, "x", [], [1], {}, {"a": 1}, True, 10**40, float("nan")]
    names = [*GEMMA3, "rope_scaling", "rope_parameters", "layer_types", "text_config"]
    names += [
        "final_logit_softcapping",
        "attn_logit_softcapping",
        "attention_bias",
        "_sliding_window_pattern",
    ]
    trials: list[dict[str, Any]] = [{name: value} for name in names for value in odd]
    for kind in ("full_attention", "sliding_attention"):
        trials += [{"rope_parameters": {kind: value}} for value in odd]
        trials += [{"rope_parameters": {kind: {"rope_type": "linear", "factor": value}}} for value in odd]
        trials += [{"rope_parameters": {kind: {"rope_theta": value}}} for value in odd]
    for trial in trials:
        config = {**GEMMA3, **trial, "architectures": GEMMA3["architectures"]}
        with contextlib.suppress(InputError, Unsupported):
            arch.for_config(config).keys(config)
            arch.for_config(config).slots(config)


@pytest.mark.parametrize("start", ["model.", "language_model.model.", "model.language_model."])
def test_a_checkpoint_with_vision_gives_its_text_part(
    tmp_path: Path, tokenizer: Path, start: str, caplog: pytest.LogCaptureFixture
) -> None:
    stored = weights(GEMMA3)
    tiny.write_checkpoint(tmp_path / "text", GEMMA3, stored, tokenizer=tokenizer)
    convert(tmp_path / "text", tmp_path / "text.gguf")
    other = {start + name.removeprefix("model."): tensor for name, tensor in stored.items()}
    seeing = "model.vision_tower.x.weight" if start.startswith("model.l") else "vision_tower.x.weight"
    other[seeing] = np.ones((2, 2), np.float32)
    text = {name: value for name, value in GEMMA3.items() if name != "architectures"}
    config = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "text_config": text,
    }
    tiny.write_checkpoint(tmp_path / "seeing" / "text", config, other, tokenizer=tokenizer)
    convert(tmp_path / "seeing" / "text", tmp_path / "seeing.gguf")
    assert (tmp_path / "seeing.gguf").read_bytes() == (tmp_path / "text.gguf").read_bytes()
    assert "left out: the vision tower and its projector (1 tensor)" in caplog.text


def test_a_tensor_that_no_gemma_has_is_one_clear_message(tmp_path: Path, tokenizer: Path) -> None:
    stored = {**weights(GEMMA3), "model.layers.0.mlp.router.weight": np.ones((2, 2), np.float32)}
    tiny.write_checkpoint(tmp_path / "m", GEMMA3, stored, tokenizer=tokenizer)
    with pytest.raises(InputError, match=r"has model\.layers\.0\.mlp\.router\.weight"):
        convert(tmp_path / "m", tmp_path / "m.gguf")


def test_norms_are_f32_and_one_more_whatever_the_type_of_the_rest(tmp_path: Path, tokenizer: Path) -> None:
    stored = {name: tiny.bf16(tensor) for name, tensor in weights(GEMMA3).items()}
    tiny.write_checkpoint(tmp_path / "m", GEMMA3, stored, tokenizer=tokenizer)
    done = convert(tmp_path / "m", tmp_path / "m.gguf", outtype="q8_0")
    assert done.types == {"Q8_0": 50, "F32": 43}
    header = read_header(tmp_path / "m.gguf")
    info = next(t for t in header.tensors if t.name == "blk.3.post_ffw_norm.weight")
    found = np.frombuffer(read_tensor(header, info), "<f4")
    exact = stored["model.layers.3.post_feedforward_layernorm.weight"]
    assert (found == floats.to_f32(exact, floats.BF16) + np.float32(1)).all()
