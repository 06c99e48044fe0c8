"""check FILE: the numbers that a model needs, a template that fails, and a vocabulary alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pairs import IF, LOOP, made
from tiny_gguf import T

from gguftools import Model, read_header
from gguftools.errors import FormatError, InputError, LoadError, NotFound, TemplateError
from gguftools.template import ChatTemplate
from gguftools.verbs.check import Report, check

SIZES = {
    "llama.context_length": 64,
    "llama.embedding_length": 32,
    "llama.block_count": 1,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
}
TENSORS = {"blk.0.attn_q.weight": (32, 32)}


def found(folder: Path, name: str, **change: Any) -> tuple[Report, bool, str]:
    """The report, and of the rule whether it passed and its value."""
    report = check(made(folder, "m", **change))
    rule = next(rule for rule in report.rules if rule.name == name)
    return report, rule.passed, rule.target


def test_a_model_with_its_sizes_is_ok(tmp_path: Path) -> None:
    assert found(tmp_path, "sizes", keys=SIZES, tensors=TENSORS)[1:] == (True, "as expected")


@pytest.mark.parametrize("key", [key for key in SIZES if not key.endswith("_kv")])
def test_a_size_that_is_missing_makes_the_file_one_that_does_not_load(tmp_path: Path, key: str) -> None:
    keys = {name: value for name, value in SIZES.items() if name != key}
    report, passed, value = found(tmp_path, "sizes", keys=keys, tensors=TENSORS)
    assert (report.verdict, report.usable, passed, value) == ("faulty", False, False, f"{key}: missing")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.block_count", 0),
        ("llama.context_length", "64"),
        ("llama.embedding_length", 32.0),
        ("llama.attention.head_count", "4"),
        ("llama.attention.head_count", 3),
        ("llama.attention.head_count_kv", 3),
    ],
)
def test_a_size_that_cannot_be_is_named(tmp_path: Path, key: str, value: Any) -> None:
    _, passed, said = found(tmp_path, "sizes", keys={**SIZES, key: value}, tensors=TENSORS)
    assert not passed
    assert key in said


def test_heads_may_differ_from_layer_to_layer(tmp_path: Path) -> None:
    keys = {key: value for key, value in SIZES.items() if "head" not in key}
    typed = {"llama.attention.head_count": ([4, 2], T.ARRAY)}
    assert found(tmp_path, "sizes", keys=keys, typed=typed, tensors=TENSORS)[1]


@pytest.mark.parametrize("template", ["{% for m in", "{{ messages[0].nothing.at_all }}", "{{ f(1) }}"])
def test_a_template_that_cannot_write_a_conversation_is_reported(tmp_path: Path, template: str) -> None:
    report, passed, why = found(tmp_path, "template works", keys={"tokenizer.chat_template": template})
    assert (report.verdict, passed) == ("faulty", False)
    assert why
    assert found(tmp_path, "template works", keys={"tokenizer.chat_template": LOOP + "{% endfor %}" + IF})[1]


def test_the_error_of_a_broken_template_says_how_to_do_without() -> None:
    with pytest.raises(TemplateError, match="--raw"):
        ChatTemplate("{% for m in", ())


def test_the_level_of_a_rule_that_passed_is_null(tmp_path: Path) -> None:
    rules = check(made(tmp_path, "m")).to_json()["rules"]
    assert {rule["level"] for rule in rules if rule["passed"]} == {None}
    assert None not in {rule["level"] for rule in rules if not rule["passed"]}


# What is no model to run


def test_a_vocabulary_alone_is_refused_as_such(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="is a vocabulary alone"):
        Model.load(made(tmp_path, "m"))


def test_a_checkpoint_where_a_gguf_is_wanted_is_to_be_converted_first(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(NotFound, match="convert it first: gguftools convert"):
        read_header(tmp_path)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no such device")
def test_a_device_is_no_empty_file() -> None:
    with pytest.raises(InputError, match="no ordinary file"):
        read_header("/dev/zero")


def test_a_big_endian_file_is_to_be_fetched_in_another_order(tmp_path: Path) -> None:
    path = tmp_path / "big.gguf"
    path.write_bytes(b"GGUF" + (3).to_bytes(4, "big") + bytes(16))
    with pytest.raises(FormatError, match="for this kind of machine"):
        check(path)
