"""deepseek2: libllama's logits on the converted file are those of the checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lowlevel
import numpy as np
import numpy_mla
import pytest
import tiny
import tiny_mla

from gguftools.verbs.convert import convert

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
