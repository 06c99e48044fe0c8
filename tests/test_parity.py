"""convert writes what llama.cpp's own converter writes, but for differences that are named."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import parity_cases
import parity_files
import pytest
from conftest import REPO

from gguftools.header import read_header
from gguftools.verbs.convert import convert

EXPECTED = json.loads(parity_files.EXPECTED.read_text())["cases"]
RUNS = [(name, outtype) for name, case in parity_cases.CASES.items() for outtype in case.outtypes]
DOCUMENT = REPO / "docs" / "convert-differences.md"

ALL = set(parity_cases.CASES)
LLAMA = {name for name in ALL if name.startswith("llama")}
GEMMA = {name for name in ALL if name.startswith("gemma")}
DEEPSEEK = {name for name in ALL if name.startswith("deepseek")}
QWEN2 = {name for name in ALL if name.startswith("qwen2")}

# Keys without their architecture -> the cases where one side has another value, or none.
DIFFERENCES = {
    "general.name": ALL,
    "general.size_label": {"qwen3moe"} | DEEPSEEK,
    "vocab_size": ALL - LLAMA - DEEPSEEK,
    "rope.dimension_count": ALL - LLAMA - DEEPSEEK,
    "attention.key_length": QWEN2,
    "attention.value_length": QWEN2,
    "attention.q_lora_rank": {"deepseek2, as Moonlight"},
    "context_length": {"qwen2 with windows"},
    "rope.scaling.attn_factor": {"qwen2"},
    "rope.scaling.yarn_attn_factor": {"qwen2"},
    "tokenizer.ggml.eot_token_id": ALL - {"llama"},
    "tokenizer.ggml.unknown_token_id": {"llama"},
    "tokenizer.ggml.add_sep_token": GEMMA,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], dict[str, Any]]:
    """Gives the digest of what convert writes for a case and an outtype."""

    @functools.cache
    def make(name: str, outtype: str) -> dict[str, Any]:
        root = tmp_path_factory.mktemp("parity")
        checkpoint = parity_files.write(root / "tiny", parity_cases.CASES[name], EXPECTED[name])
        convert(checkpoint, root / "m.gguf", outtype=outtype)  # type: ignore[arg-type]
        return parity_files.digest(read_header(root / "m.gguf"))

    return make


def plain(key: str) -> str:
    """A key without its architecture."""
    head, _, tail = key.partition(".")
    return key if head in ("general", "tokenizer") else tail


@pytest.mark.parametrize(("name", "outtype"), RUNS)
def test_the_tensors_have_the_same_names_shapes_types_and_bytes(
    made: Callable[[str, str], dict[str, Any]], name: str, outtype: str
) -> None:
    assert made(name, outtype)["tensors"] == EXPECTED[name]["files"][outtype]["tensors"]


@pytest.mark.parametrize(("name", "outtype"), RUNS)
def test_the_keys_differ_where_it_is_said_and_nowhere_else(
    made: Callable[[str, str], dict[str, Any]], name: str, outtype: str
) -> None:
    ours, theirs = made(name, outtype)["keys"], EXPECTED[name]["files"][outtype]["keys"]
    apart = {plain(key): (ours.get(key), theirs.get(key)) for key in ours.keys() | theirs.keys()}
    apart = {key: pair for key, pair in apart.items() if pair[0] != pair[1]}
    assert apart.keys() == {key for key, cases in DIFFERENCES.items() if name in cases}, apart


def test_each_difference_is_explained() -> None:
    text = DOCUMENT.read_text()
    assert [key for key in DIFFERENCES if f"`{key}`" not in text] == []
