"""convert: heads and targets that do not fit llama.cpp's eagle3 or each other are refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import eagle3_heads as heads
import numpy as np
import pytest
import tiny

from gguftools.errors import InputError, Unsupported
from gguftools.verbs.convert import convert


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory, tokenizer: Path) -> Path:
    """A llama of six layers as a GGUF."""
    return heads.write_target(tmp_path_factory.mktemp("target"), heads.TARGET, tokenizer)


def changed(name: str, tensor: Any) -> dict[str, Any]:
    return heads.weights(heads.SPECFORGE) | {name: tensor}


def test_a_head_without_its_target_says_what_to_give(tmp_path: Path) -> None:
    error = heads.refused(tmp_path, None)
    assert "is an EAGLE-3 head" in error.what
    assert "--target" in error.hint


def test_a_whole_model_with_a_target_is_refused(tmp_path: Path, llama: Path, target: Path) -> None:
    with pytest.raises(InputError, match="is no EAGLE-3 head"):
        convert(llama, tmp_path / "m.gguf", target=target)


def test_another_models_target_is_refused(tmp_path: Path, target: Path, tokenizer: Path) -> None:
    wide = {**heads.TARGET, "hidden_size": 128}
    tiny.write_checkpoint(tmp_path / "m", wide, tiny.weights(wide), tokenizer=tokenizer)
    assert "made for a target of width 64" in heads.refused(tmp_path, tmp_path / "m").what
    other = {**heads.SPECFORGE, "vocab_size": 300}
    assert "made for 300 tokens" in heads.refused(tmp_path, target, other).what
    heads.converted(tmp_path, target)
    with pytest.raises(InputError, match="is a head itself"):
        convert(tmp_path / "head", tmp_path / "again.gguf", target=tmp_path / "head.gguf")


FAULTS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "two layers": ({"num_hidden_layers": 2}, {}, "more than one layer"),
    "a second layer": ({}, {"layers.1.mlp.up_proj.weight": np.zeros((96, 64), "f4")}, "more than one layer"),
    "norms for each state": ({"fc_norm": True}, {}, "fc_norm"),
    "a norm for one state": ({}, {"fc_norm.0.weight": np.zeros(64, "f4")}, "fc_norm"),
    "post-norm states": ({"norm_output": True}, {}, "norm_output"),
    "one state": ({"eagle_config": {"use_aux_hidden_state": False}}, {}, "use_aux_hidden_state"),
    "four states": ({"eagle_config": heads.ids(1, 2, 3, 4)}, {}, "reads 4 states"),
    "biases": ({}, {"layers.0.self_attn.q_proj.bias": np.zeros(128, "f4")}, "biases"),
    "Qwen3's norms": ({}, {"layers.0.self_attn.q_norm.weight": np.zeros(32, "f4")}, "norms of q and k"),
    "MLA": ({}, {"layers.0.self_attn.kv_a_proj_with_mqa.weight": np.zeros((8, 64), "f4")}, "MLA"),
    "another activation": ({"hidden_act": "gelu"}, {}, "gelu"),
    "a flag that is a text": ({"norm_before_residual": "no"}, {}, "norm_before_residual is 'no'"),
    "eagle_config that is a list": ({"eagle_config": [1]}, {}, "eagle_config is"),
    "ids that are no numbers": ({"eagle_config": heads.ids(1, "x", 3)}, {}, "list of layers"),
    "another width": ({"target_hidden_size": 128}, {}, "target_hidden_size is 128"),
    "layers that are not there": ({"eagle_config": heads.ids(2, 30, 58)}, {}, "reads layers 2, 30, 58"),
    "a strange tensor": ({}, {"adapter.weight": np.zeros((4, 4), "f4")}, "adapter.weight"),
    "fc of another shape": ({}, {"fc.weight": np.zeros((64, 190), "f4")}, "the shape [64, 190]"),
    "d2t of another length": ({}, {"d2t": np.zeros(99, "i8")}, "d2t has the shape [99]"),
    "d2t of fractions": ({}, {"d2t": np.zeros(100, "f4")}, "d2t is F32"),
    "d2t beyond the vocabulary": ({}, {"d2t": np.arange(100) * 3}, "outside the vocabulary"),
    "d2t below zero": ({}, {"d2t": np.full(100, -1)}, "draft token 0 outside the vocabulary"),
    "d2t far below zero": ({}, {"d2t": np.full(100, -(2**63))}, "outside the vocabulary"),
    "d2t with one token twice": ({}, {"d2t": np.array([0, -1, *[5] * 98])}, "two draft tokens"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_what_llama_cpp_cannot_use_is_refused_by_name(tmp_path: Path, target: Path, fault: str) -> None:
    config, tensors, what = FAULTS[fault]
    merged = {**heads.SPECFORGE, **config}
    error = heads.refused(tmp_path, target, merged, tensors=heads.weights(heads.SPECFORGE) | tensors)
    assert what in f"{error.what} {error.why}"


@pytest.mark.parametrize("name", ["fc.weight", "d2t", "norm.weight", "layers.0.hidden_norm.weight"])
def test_a_tensor_that_lacks_is_named(tmp_path: Path, target: Path, name: str) -> None:
    tensors = heads.weights(heads.SPECFORGE)
    del tensors[name]
    error = heads.refused(tmp_path, target, tensors=tensors)
    assert name.rpartition("layers.0.")[2] in f"{error.what} {error.why}"


@pytest.mark.parametrize("name", ["embed_tokens.weight", "lm_head.weight"])
def test_a_targets_embedding_or_output_is_not_taken_where_it_cannot_fit(
    tmp_path: Path, tokenizer: Path, name: str
) -> None:
    wide = {**heads.TARGET, "hidden_size": 128}
    tiny.write_checkpoint(tmp_path / "m", wide, tiny.weights(wide), tokenizer=tokenizer)
    tensors = heads.weights(heads.SPECFORGE, width=128)
    del tensors[name]
    assert f"has no {name}" in heads.refused(tmp_path, tmp_path / "m", tensors=tensors).what


def test_a_tensor_under_two_names_is_refused(tmp_path: Path, target: Path) -> None:
    tensors = changed("model.layers.0.hidden_norm.weight", np.ones(64, "f4"))
    assert "twice" in heads.refused(tmp_path, target, tensors=tensors).what


def test_a_head_that_is_a_pickle_alone_is_refused_with_what_to_do(tmp_path: Path, target: Path) -> None:
    (tmp_path / "head").mkdir()
    (tmp_path / "head" / "config.json").write_text(json.dumps(heads.SPECFORGE))
    (tmp_path / "head" / "pytorch_model.bin").write_bytes(b"\x80\x02")
    with pytest.raises(Unsupported, match="pickles only") as caught:
        convert(tmp_path / "head", tmp_path / "head.gguf", target=target)
    assert "safetensors" in caught.value.hint


OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "MTP": ({"architectures": ["DeepseekV3ForCausalLMNextN"]}, "multi-token prediction"),
    "MTP of speculators": ({"speculators_model_type": "mtp"}, "multi-token"),
    "Medusa": ({"medusa_num_heads": 5}, "Medusa"),
    "Medusa's class": ({"architectures": ["MedusaModel"]}, "Medusa"),
    "EAGLE-1": ({"architectures": ["EagleLlamaForCausalLM"]}, "EAGLE-1 or EAGLE-2"),
    "EAGLE-1 of SGLang": ({"architectures": ["LlamaForCausalLMEagle"]}, "EAGLE-1 or EAGLE-2"),
    "EAGLE-2 of SafeAILab": ({"architectures": ["LlamaForCausalLM"]}, "EAGLE-1 or EAGLE-2"),
    "EAGLE-3 with MLA": ({"architectures": ["Eagle3DeepseekV2ForCausalLM"]}, "another layer than Llama's"),
    "P-EAGLE": ({"architectures": ["PEagleDraftModel"], "speculators_model_type": "peagle"}, "P-EAGLE"),
    "DFlash": ({"architectures": ["DFlashDraftModel"]}, "DFlash"),
}  # fmt: skip


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("with_target", [True, False])
def test_heads_of_other_kinds_are_named(tmp_path: Path, target: Path, kind: str, with_target: bool) -> None:
    config, what = OTHERS[kind]
    fc = np.zeros((64, 128), "f4")
    tensors = {"fc.weight": fc, "layers.0.mlp.up_proj.weight": np.zeros((96, 64), "f4")}
    if kind == "Medusa":
        tensors = {"0.0.linear.weight": fc}
    error = heads.refused(
        tmp_path, target if with_target else None, config, tensors=tensors, style="speculators"
    )
    assert isinstance(error, Unsupported)
    assert what in error.what


def test_a_head_takes_no_other_tokenizer(tmp_path: Path, target: Path, tokenizer: Path) -> None:
    assert "--tokenizer" in heads.refused(tmp_path, target, tokenizer=tokenizer).what
