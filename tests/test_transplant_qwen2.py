"""Which llamas can be written as a qwen2."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tiny
import transplants as tp

from gguftools.header import TensorInfo, read_header
from gguftools.verbs.transplant.qwen2 import is_possible


@pytest.fixture(scope="module")
def header(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("llama")
    return read_header(tp.donor_gguf(folder, {**tiny.LLAMA, "head_dim": 16, "rope_scaling": tiny.YARN}))


def test_a_plain_llama_can_be_a_qwen2(header: Any) -> None:
    assert is_possible(header)
    assert is_possible(replace(header, keys={**header.keys, "llama.expert_count": 0}))


@pytest.mark.parametrize(
    "keys",
    [
        {"llama.attention.head_count": 3},
        {"llama.attention.head_count": 0},
        {"llama.attention.head_count": 64},  # heads of one number
        {"llama.attention.head_count": np.array([4, 4])},
        {"llama.attention.key_length": 32},
        {"llama.attention.value_length": 32},
        {"llama.rope.dimension_count": 8},
        {"llama.attention.scale": 0.5},
        {"llama.expert_count": 8},
        {"llama.logit_scale": 2.0},
        {"llama.residual_scale": 0.5},
        {"llama.embedding_scale": 12.0},
    ],
)
def test_a_llama_whose_graph_does_more_stays_a_llama(header: Any, keys: dict[str, Any]) -> None:
    sizes = {"llama.attention.key_length", "llama.attention.value_length", "llama.rope.dimension_count"}
    kept = {key: value for key, value in header.keys.items() if key not in sizes - keys.keys()}
    assert is_possible(replace(header, keys=kept))
    assert not is_possible(replace(header, keys={**kept, **keys}))


@pytest.mark.parametrize(
    "name", ["rope_freqs.weight", "blk.0.attn_q.bias", "blk.1.ffn_down.bias", "blk.0.ffn_gate_inp.weight"]
)
def test_a_llama_with_other_tensors_stays_a_llama(header: Any, name: str) -> None:
    one = header.tensors[0]
    other = TensorInfo(**{**{f: getattr(one, f) for f in one.__slots__}, "name": name})
    assert not is_possible(replace(header, tensors=(*header.tensors, other)))


def test_only_a_llama_becomes_a_qwen2(header: Any) -> None:
    assert not is_possible(replace(header, keys={**header.keys, "general.architecture": "qwen3"}))
