"""deepseek2: libllama's logits on the converted file are those of the checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lowlevel
import numpy as np
import numpy_mla
import pytest
import tiny
import tiny_mla

from gguftools import arch
from gguftools.errors import InputError
from gguftools.header import read_header
from gguftools.verbs.convert import convert
from gguftools.vocab import Vocab

IDS = np.random.default_rng(7).integers(0, 288, 120).tolist()


def logits(path: Path, config: dict[str, Any], ids: list[int]) -> Any:
    """libllama's, with the beta_fast that its graph takes from the context alone."""
    scaling = config.get("rope_scaling") or {}
    return lowlevel.logits(path, ids, yarn_beta_fast=scaling.get("beta_fast", 32.0))


@pytest.mark.parametrize("kind", tiny_mla.KINDS)
def test_libllamas_logits_are_those_of_a_plain_forward_pass(
    tmp_path: Path, tokenizer: Path, kind: str
) -> None:
    config = tiny_mla.KINDS[kind]
    weights = tiny.weights(config)
    tiny.write_checkpoint(tmp_path / "m", config, weights, shards=2, tokenizer=tokenizer)
    convert(tmp_path / "m", tmp_path / "m.gguf", outtype="f32")
    text, prefix = config.get("text_config", config), "language_model." if "text_config" in config else ""
    wanted = numpy_mla.forward(text, weights, IDS, prefix)
    assert np.abs(wanted).max() > 1
    assert np.abs(logits(tmp_path / "m.gguf", text, IDS) - wanted).max() < 1e-3


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.1.self_attn.kv_b_proj.weight",
        "model.layers.1.self_attn.q_b_proj.weight",
        "model.layers.2.mlp.experts.5.down_proj.weight",
        "model.layers.2.mlp.gate.e_score_correction_bias",
        "model.layers.2.mlp.shared_experts.up_proj.weight",
    ],
)
def test_a_wrong_layout_would_show_in_the_logits(tmp_path: Path, tokenizer: Path, name: str) -> None:
    config = tiny_mla.DEEPSEEK
    weights = tiny.weights(config)
    tiny.write_checkpoint(tmp_path / "m", config, weights, tokenizer=tokenizer)
    convert(tmp_path / "m", tmp_path / "m.gguf", outtype="f32")
    weights[name] = np.roll(weights[name], 1, axis=0)
    wrong = numpy_mla.forward(config, weights, IDS)
    assert np.abs(logits(tmp_path / "m.gguf", config, IDS) - wrong).max() > 0.03


def test_without_the_contexts_beta_fast_libllama_turns_k2_otherwise(tmp_path: Path, tokenizer: Path) -> None:
    config = tiny_mla.KINDS["yarn, K2's beta_fast"]
    weights = tiny.weights(config)
    tiny.write_checkpoint(tmp_path / "m", config, weights, tokenizer=tokenizer)
    convert(tmp_path / "m", tmp_path / "m.gguf", outtype="f32")
    wanted = numpy_mla.forward(config, weights, IDS)
    assert np.abs(lowlevel.logits(tmp_path / "m.gguf", IDS) - wanted).max() > 0.03
    assert read_header(tmp_path / "m.gguf").get_float("deepseek2.rope.scaling.yarn_beta_fast") == 1.0


def test_the_vision_and_the_layers_after_the_last_are_left_out_and_named(
    tmp_path: Path, tokenizer: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = {**tiny_mla.DEEPSEEK, "num_nextn_predict_layers": 1}
    config = {**tiny_mla.K25, "text_config": text}
    weights = tiny.weights(config)
    convert(
        tiny.write_checkpoint(tmp_path / "a/m", config, weights, tokenizer=tokenizer), tmp_path / "a.gguf"
    )
    assert not caplog.records
    more = ["vision_tower.patch_embed.proj.weight", "mm_projector.pre_norm.weight"]
    more += ["language_model.model.layers.3.eh_proj.weight"]
    extra = {name: np.ones((2, 2), np.float32) for name in more}
    convert(
        tiny.write_checkpoint(tmp_path / "b/m", config, {**weights, **extra}, tokenizer=tokenizer),
        tmp_path / "b.gguf",
    )
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()
    assert "left out: the vision tower and its projector (2 tensors)" in caplog.text
    assert "left out: MTP layers, which predict further tokens (1 tensor)" in caplog.text


def test_other_unknown_tensors_are_no_vision(tmp_path: Path, tokenizer: Path) -> None:
    config = tiny_mla.DEEPSEEK
    for name in ("vision_tower.x", "model.layers.3.eh_proj.weight"):
        tensors = {**tiny.weights(config), name: np.ones(2, np.float32)}
        tiny.write_checkpoint(tmp_path / "m", config, tensors, tokenizer=tokenizer)
        with pytest.raises(InputError, match=f"has {name}"):
            convert(tmp_path / "m", tmp_path / "m.gguf")


def test_kimis_own_vocabulary_and_files(tmp_path: Path, kimi_folder: Path) -> None:
    config = {**tiny_mla.DEEPSEEK, "vocab_size": 163840, "hidden_size": 32, "num_hidden_layers": 2}
    config |= {"rope_scaling": {**tiny_mla.YARN, "beta_fast": 1.0}}
    weights = tiny.weights(config)
    tiny.write_checkpoint(tmp_path / "m", config, weights, tokenizer=kimi_folder)
    done = convert(tmp_path / "m", tmp_path / "m.gguf", outtype="f32")
    assert (done.n_tokens, done.architecture) == (163840, "deepseek2")
    assert Vocab.from_gguf(tmp_path / "m.gguf") == Vocab.from_checkpoint(kimi_folder)
    ids = [163587, 2482, 163601, 22931, 163586, 163588, 69702, 163601]
    wanted = numpy_mla.forward(config, weights, ids)
    assert np.abs(logits(tmp_path / "m.gguf", config, ids) - wanted).max() < 1e-3


def test_kimi_k2s_own_config_gives_the_names_and_keys_that_its_ggufs_have(shared_data: Path) -> None:
    """Names and sizes as in published GGUFs of Kimi-K2: 1,096 tensors."""
    config = json.loads((shared_data / "kimi" / "config.json").read_text("utf-8"))
    model = arch.for_config(config)
    slots = {slot.gguf: slot for slot in model.slots(config)}
    assert len(slots) == 1096
    assert slots["blk.60.ffn_down_exps.weight"].shape == (384, 7168, 2048)
    assert (
        slots["blk.60.ffn_down_exps.weight"].names[383] == "model.layers.60.mlp.experts.383.down_proj.weight"
    )
    assert slots["blk.0.attn_k_b.weight"].shape == (64, 512, 128)
    assert slots["blk.0.attn_k_b.weight"].source_shape == (16384, 512)
    assert slots["blk.0.attn_v_b.weight"].shape == (64, 128, 512)
    assert slots["blk.0.ffn_up.weight"].shape == (18432, 7168)
    keys = {name.removeprefix("deepseek2."): value for name, value, _ in model.keys(config)}
    assert keys == {
        "vocab_size": 163840,
        "context_length": 131072,
        "embedding_length": 7168,
        "block_count": 61,
        "feed_forward_length": 18432,
        "leading_dense_block_count": 1,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.head_count": 64,
        "attention.head_count_kv": 1,
        "attention.q_lora_rank": 1536,
        "attention.kv_lora_rank": 512,
        "attention.key_length": 576,
        "attention.value_length": 512,
        "attention.key_length_mla": 192,
        "attention.value_length_mla": 128,
        "expert_feed_forward_length": 2048,
        "expert_count": 384,
        "expert_used_count": 8,
        "expert_shared_count": 1,
        "expert_gating_func": 2,
        "expert_group_count": 1,
        "expert_group_used_count": 1,
        "expert_weights_scale": 2.827,
        "expert_weights_norm": True,
        "rope.dimension_count": 64,
        "rope.freq_base": 50000.0,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 32.0,
        "rope.scaling.original_context_length": 4096,
        "rope.scaling.yarn_beta_fast": 1.0,
        "rope.scaling.yarn_beta_slow": 1.0,
        "rope.scaling.yarn_log_multiplier": 0.1,
    }
