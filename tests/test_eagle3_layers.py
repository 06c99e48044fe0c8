"""convert: what an EAGLE-3 head's layer ids mean, and which layers llama.cpp reads then."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import eagle3_heads as heads
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from gguftools.arch import eagle3_config
from gguftools.errors import GGUFToolsError


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory, tokenizer: Path) -> Path:
    """A llama of six layers as a GGUF."""
    return heads.write_target(tmp_path_factory.mktemp("target"), heads.TARGET, tokenizer)


TOP = {key: value for key, value in heads.SPECFORGE.items() if key != "eagle_config"}
CASES = [
    pytest.param({"eagle_config": heads.ids(1, 3, 4)}, "auto", [2, 4, 5], id="nested, first 1: outputs"),
    pytest.param({"eagle_config": heads.ids(2, 3, 4)}, "auto", [2, 3, 4], id="nested, first 2: inputs"),
    pytest.param(heads.ids(1, 3, 4), "auto", [1, 3, 4], id="on top: inputs"),
    pytest.param(
        {**heads.ids(2, 3, 5), "eagle_config": heads.ids(1, 3, 4)}, "auto", [2, 3, 5], id="the top counts"
    ),
    pytest.param({"eagle_config": {"layer_ids": [1, 3, 4]}}, "auto", [1, 3, 4], id="vLLM's: inputs"),
    pytest.param({}, "auto", [2, 3, 3], id="none: EAGLE-3's own"),
    pytest.param({}, "outputs", [2, 3, 3], id="none, whatever they would mean"),
    pytest.param(heads.ids(1, 3, 4), "outputs", [2, 4, 5], id="outputs, said so"),
    pytest.param({"eagle_config": heads.ids(1, 3, 4)}, "inputs", [1, 3, 4], id="inputs, said so"),
    pytest.param(heads.ids(2, 3, 5), "outputs", [3, 4, 6], id="up to the last output"),
    pytest.param(heads.ids(2, 3, 5), "0,1,2", [0, 1, 2], id="three numbers"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "layer_ids", "wanted"), CASES)
def test_layer_ids_become_the_layers_whose_inputs_llama_cpp_reads(
    tmp_path: Path, target: Path, config: dict[str, Any], layer_ids: str, wanted: list[int]
) -> None:
    assert heads.layers(heads.converted(tmp_path, target, {**TOP, **config}, layer_ids=layer_ids)) == wanted


@pytest.mark.parametrize("config", [{"eagle_config": heads.ids(1, 3, 4)}, heads.ids(1, 3, 4)])
def test_ids_that_may_mean_either_are_told(
    tmp_path: Path, target: Path, config: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        heads.converted(tmp_path, target, {**TOP, **config})
        assert "--layer-ids" in caplog.text
        caplog.clear()
        heads.converted(tmp_path, target, {**TOP, **config}, layer_ids="inputs", force=True)
        assert not caplog.text


@pytest.mark.parametrize(
    "text", ["input", "1,2", "1,2,3,4", "-1,2,3", "", "a,b,c", "2,3,7", "2,2,3", "3,2,1"]
)
def test_layer_ids_that_mean_nothing_are_refused(tmp_path: Path, target: Path, text: str) -> None:
    assert heads.refused(tmp_path, target, layer_ids=text)


def test_without_ids_and_without_a_depth_three_numbers_are_asked_for(tmp_path: Path, tokenizer: Path) -> None:
    folder = tiny.write_tokenizer(tmp_path / "tokenizer")
    (folder / "config.json").write_text('{"vocab_size": 288}')
    error = heads.refused(tmp_path, folder, TOP)
    assert "layers that the head reads are not known" in error.what
    assert heads.layers(heads.converted(tmp_path, folder, TOP, layer_ids="2,18,33")) == [2, 18, 33]


KEYS = st.sampled_from(
    (
        "eagle_aux_hidden_state_layer_ids",
        "eagle_config",
        "transformer_layer_config",
        "layer_ids",
        "num_hidden_layers",
        "norm_output",
        "fc_norm",
        "rope_scaling",
        "rope_parameters",
        "type",
        "factor",
        "mscale",
    )
)
PLAIN = st.sampled_from((None, True, False, 0, 1, 2, -1, 0.5, float("nan"), 1e39, "x", "yarn", [], {}))
IDS = st.lists(st.integers(-1, 70), min_size=2, max_size=4)
CONFIGS = st.dictionaries(KEYS, PLAIN | IDS | st.dictionaries(KEYS, PLAIN | IDS))


@given(CONFIGS, st.sampled_from(("auto", "inputs", "outputs", "1,2,3", "x")), st.integers(0, 70))
def test_any_config_gives_three_layers_of_the_target_or_our_error(
    config: dict[str, Any], layer_ids: str, n_layer: int
) -> None:
    try:
        flat = eagle3_config.flat(config)
        eagle3_config.refuse(flat, ["fc.weight", "layers.0.x", "layers."])
        found = eagle3_config.target_layers(config, layer_ids, n_layer)
    except GGUFToolsError:
        return
    assert len(found) == 3
    assert min(found) >= 0
    assert max(found) <= (n_layer or 1 << 31)
