"""edit: what a key takes, what changes and what stays, and which results are refused."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edits import KEYS, P, model, only, plain, same_tensors
from gguf_files import Typed, write_gguf
from pairs import TOKENS, N

import gguftools
from gguftools.errors import InputError, NotFound
from gguftools.header import read_header
from gguftools.header.ggml_types import ValueType
from gguftools.verbs.check import check
from gguftools.verbs.edit import plan

Values = dict[str, Any]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return model(tmp_path / "m.gguf")


def edited(file: Path, **how: Any) -> dict[str, Any]:
    """The keys after an edit; the tensors must be as they were."""
    out = file.with_name("out.gguf")
    gguftools.edit(file, out, **how)
    assert same_tensors(file, out)
    return plain(read_header(out))


def test_one_key_changes_keeps_its_type_and_all_else_stays(file: Path) -> None:
    before = plain(read_header(file))
    after = edited(file, set={P + "eos_token_id": "302"})
    assert after.pop(P + "eos_token_id") == (302, ValueType.U32)
    before.pop(P + "eos_token_id")
    assert after == before


SETTINGS: dict[str, tuple[Values, str, Any, ValueType]] = {
    "a new key with a type": ({"general.author:str": "me"}, "general.author", "me", ValueType.STR),
    "a new key whose type is known": (
        {P + "eot_token_id": "300"},
        P + "eot_token_id",
        300,
        ValueType.U32,
    ),
    "a flag": ({P + "add_bos_token": "true"}, P + "add_bos_token", True, ValueType.BOOL),
    "a float": ({"llama.rope.freq_base": "500000"}, "llama.rope.freq_base", 500000.0, ValueType.F32),
    "a negative number": ({"x.y:i8": "-128"}, "x.y", -128, ValueType.I8),
    "a new list": ({"x.y:i32[]": "[1, -2]"}, "x.y", [1, -2], ValueType.I32),
    "a new list of texts": ({"x.y:str[]": ["a", "ü"]}, "x.y", [b"a", "ü".encode()], ValueType.STR),
    "another type for a new value": (
        {"llama.rope.freq_base:f64": "0.1"},
        "llama.rope.freq_base",
        0.1,
        ValueType.F64,
    ),
    "another type for the same value": (
        {"general.architecture": "llama", "llama.rope.freq_base:f64": None},
        "llama.rope.freq_base",
        10000.0,
        ValueType.F64,
    ),
    "one of a list": ({P + "token_type[302]": "4"}, P + "token_type", None, ValueType.I32),
    "a list in place of a list": (
        {P + "merges": '["t o", "o k"]'},
        P + "merges",
        [b"t o", b"o k"],
        ValueType.STR,
    ),
    "values of numpy": ({"x.y:u16": np.uint8(3)}, "x.y", 3, ValueType.U16),
    "the largest number of 64 bits": ({"x.y:u64": str(2**64 - 1)}, "x.y", 2**64 - 1, ValueType.U64),
    "a text with an equals sign and a new line": (
        {"general.name": "a=b\nc"},
        "general.name",
        "a=b\nc",
        ValueType.STR,
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_value_is_written_with_its_type(file: Path, name: str) -> None:
    settings_, key, value, kind = SETTINGS[name]
    after = edited(file, set=settings_)
    if key == P + "token_type":
        value = [*KEYS[key].tolist()[:-1], 4]
    assert after[key] == (value, kind)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "too large": ({"set": {P + "eos_token_id": "5000000000"}}, "from 0 to 4,294,967,295"),
    "negative": ({"set": {P + "eos_token_id": "-1"}}, "from 0 to"),
    "no number": ({"set": {P + "eos_token_id": "0x10"}}, "whole number"),
    "half a number": ({"set": {P + "eos_token_id": 1.5}}, "whole number"),
    "a flag for a number": ({"set": {P + "eos_token_id": True}}, "whole number"),
    "no flag": ({"set": {P + "add_bos_token": "yes"}}, "true or false"),
    "infinity": ({"set": {"llama.rope.freq_base": "inf"}}, "finite"),
    "beyond f32": ({"set": {"llama.rope.freq_base": "1e39"}}, "finite"),
    "no text": ({"set": {"general.name": 5}}, "a text"),
    "no UTF-8": ({"set": {"general.name": "\udcff"}}, "UTF-8"),
    "nothing": ({"set": {"general.name": ""}}, "empty"),
    "a new key without a type": ({"set": {"x.y": "5"}}, "a new key needs a type"),
    "no such type": ({"set": {"x.y:int": "5"}}, "the types are u8"),
    "a list for one": ({"set": {"x.y:u8[]": "5"}}, "no JSON list"),
    "one for a list": ({"set": {P + "merges": "t o"}}, "holds a list of str"),
    "a list in a list": ({"set": {"x.y:u8[]": "[[1]]"}}, "whole number"),
    "an index too large": ({"set": {P + f"tokens[{N + 3}]": "x"}}, "303 elements"),
    "an element of no list": ({"set": {"general.name[0]": "x"}}, "no list"),
    "an element with another type": ({"set": {P + "token_type[1]:u8": "1"}}, "type of its own"),
    "an empty name": ({"set": {":u8": "1"}}, "cannot be a key"),
    "a blank in a name": ({"set": {"x y:u8": "1"}}, "cannot be a key"),
    "no value": ({"set": {"general.name": None}}, "needs none"),
    "the alignment": ({"set": {"general.alignment:u32": "64"}}, "tensors would have to move"),
    "what shards say": ({"remove": ["split.count"]}, "shards belong together"),
    "a key that is not there": ({"remove": ["general.nam"]}, "did you mean general.name"),
    "copying without a file": ({"copy": ["general.name"]}, "--from"),
    "an empty token": ({"set_token": {3: ""}}, "empty"),
    "a token beyond": ({"set_token": {N + 3: "x"}}, "303 elements"),
    "a token below": ({"set_token": {-1: "x"}}, "is no token"),
    "no type of a token": ({"token_type": {3: "SPECIAL"}}, "CONTROL (3)"),
    "a template that is no text": ({"template": "m.gguf"}, "no text|UTF-8"),
    "a template that is not there": ({"template": "none.jinja"}, "cannot be read"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_a_key_cannot_hold_is_refused_and_nothing_is_written(
    file: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    how, why = WRONG[name]
    monkeypatch.chdir(file.parent)
    with pytest.raises(InputError) as caught:
        gguftools.edit(file, file.with_name("out.gguf"), **how)
    assert any(part in str(caught.value) for part in why.split("|")), caught.value
    assert caught.value.hint
    assert only(file.parent) == ["m.gguf"]


DEADLY: dict[str, dict[str, Any]] = {
    "a token twice": {"set_token": {3: "<|end|>"}},
    "an id beyond the vocabulary": {"set": {P + "eos_token_id": N + 3}},
    "an id of another type": {"set": {P + "eos_token_id:i32": None}},
    "no tokens": {"remove": [P + "tokens"]},
    "fewer types than tokens": {"set": {P + "token_type": [1, 2]}},
    "fewer tokens than rows": {"set": {P + "tokens": TOKENS[:-1]}},
    "no merges": {"remove": [P + "merges"]},
    "an unknown tokenizer": {"set": {P + "model": "gpt3"}},
    "an unknown pre-tokenizer": {"set": {P + "pre": "gpt-3"}},
    "an unknown architecture": {"set": {"general.architecture": "lama"}},
    "no architecture": {"remove": ["general.architecture"]},
    "no size": {"remove": ["llama.embedding_length"]},
    "too many layers": {"set": {"llama.block_count": 513}},
    "layers that the tensors do not have": {"set": {"llama.block_count": 2}},
    "experts without a number to use": {"set": {"llama.expert_count:u32": 8}},
    "more experts used than there are": {
        "set": {"llama.expert_count:u32": 8, "llama.expert_used_count:u32": 9}
    },
    "an unknown scaling": {"set": {"llama.rope.scaling.type:str": "ntk"}},
    "a bos to add that is none": {
        "set": {P + "add_bos_token": True, P + "pre": "glm4"},
        "remove": [P + "bos_token_id"],
    },
    "a BYTE token without a byte": {"set_token": {7: "<0"}, "token_type": {7: "BYTE"}},
}


@pytest.mark.parametrize("name", DEADLY)
def test_a_file_that_libllama_would_not_load_any_more_is_not_written(file: Path, name: str) -> None:
    with pytest.raises(InputError) as caught:
        gguftools.edit(file, in_place=True, **DEADLY[name])
    assert caught.value.why
    assert only(file.parent) == ["m.gguf"]
    assert check(file).usable


def test_a_file_that_was_wrong_before_may_be_mended_in_steps(tmp_path: Path) -> None:
    wrong = {P + "eos_token_id": Typed(5, N), P + "bos_token_id": Typed(5, N + 1)}
    file = model(tmp_path / "m.gguf", wrong)
    assert not check(file).usable
    first = gguftools.edit(file, in_place=True, set={P + "eos_token_id:u32": None})
    assert first.mended == ()
    second = gguftools.edit(file, in_place=True, set={P + "bos_token_id:u32": None})
    assert second.mended == ("types of keys",)
    assert check(file).verdict == "ok"


def test_what_check_advises_is_a_command_of_edit_that_mends_the_file(tmp_path: Path) -> None:
    texts = [*TOKENS[:-1], "<think>"]
    wrong = {P + "eos_token_id": Typed(5, N), P + "add_bos_token": True, P + "tokens": texts}
    wrong |= {"tokenizer.chat_template": "{{ bos_token }}" + KEYS["tokenizer.chat_template"]}
    file = model(tmp_path / "m.gguf", wrong)
    advice = check(file).advice[-1]
    assert advice.startswith(f"gguftools edit {file} --set ")
    import shlex

    words = shlex.split(advice)
    pairs = [words[i + 1].partition("=") for i, word in enumerate(words) if word == "--set"]
    gguftools.edit(file, tmp_path / "mended.gguf", set={key: value or None for key, _, value in pairs})
    assert check(tmp_path / "mended.gguf").verdict == "ok"


def test_what_becomes_worse_but_loads_is_a_warning(file: Path) -> None:
    done = gguftools.edit(file, dry_run=True, set={P + "pre": "default"}, remove=["llama.rope.freq_base"])
    assert any(text.startswith("pre-tokenizer: default") for text in done.warnings)
    assert any("llama.rope.freq_base is gone" in text for text in done.warnings)
    shape = gguftools.edit(file, dry_run=True, set={"llama.attention.head_count": 4})
    assert "how the tensors are shaped" in shape.warnings[0]


def test_changes_are_listed_before_anything_is_written(file: Path) -> None:
    found = plan(
        file, set={P + "eos_token_id": 302, "x.y:u8[]": [1]}, set_token={7: "seven"}, remove=["general.name"]
    )
    assert [(c.key, c.old, c.new, c.old_type, c.new_type) for c in found.changes] == [
        ("general.name", "tiny", None, "str", None),
        (P + "tokens[7]", "tok6", "seven", "str", "str"),
        (P + "eos_token_id", N, 302, "u32", "u32"),
        ("x.y", None, [1], None, "u8[]"),
    ]
    assert only(file.parent) == ["m.gguf"]


def test_a_value_that_is_there_already_is_no_change_and_writes_nothing(file: Path) -> None:
    done = gguftools.edit(
        file, file.with_name("out.gguf"), set={P + "eos_token_id": N}, token_type={N: "CONTROL"}
    )
    assert (done.path, done.changes) == (None, ())
    assert only(file.parent) == ["m.gguf"]


def test_keys_are_copied_with_their_types(file: Path, tmp_path: Path) -> None:
    other = write_gguf(tmp_path / "o.gguf", {"general.name": "other", "x.y": Typed(2, 7), "x.z": ["a"]})
    after = edited(file, copy=["general.name", "x.y", "x.z"], copy_from=other)
    assert after["general.name"] == ("other", ValueType.STR)
    assert after["x.y"] == (7, ValueType.U16)
    assert after["x.z"] == ([b"a"], ValueType.STR)
    with pytest.raises(InputError, match="is not in"):
        gguftools.edit(file, tmp_path / "p.gguf", copy=["x.none"], copy_from=other)
    with pytest.raises(NotFound):
        gguftools.edit(file, tmp_path / "p.gguf", copy=["x.y"], copy_from=tmp_path / "none.gguf")


def test_a_template_is_tried_in_the_sandbox_first(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = file.with_name("t.jinja")
    source.write_text("{% for m in messages %}<|user|>{{ m.content }}{% endfor %}\n")
    assert edited(file, template=source)["tokenizer.chat_template"] == (source.read_text(), ValueType.STR)
    source.write_text("{% for m in messages %}")
    with pytest.raises(InputError, match="no chat template"):
        gguftools.edit(file, in_place=True, template=source)
    source.write_text("{{ raise_exception('no system message') }}")
    with caplog.at_level(logging.WARNING, "gguftools"):
        done = gguftools.edit(file, in_place=True, template=source)
    assert "no system message" in done.warnings[0]
    assert "no system message" in caplog.text


def test_a_file_without_a_vocabulary_is_edited_with_a_word_that_it_was_not_judged(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "mmproj.gguf", {"general.architecture": "clip", "general.type": "mmproj"})
    done = gguftools.edit(file, in_place=True, set={"general.name": "eyes"})
    assert "cannot be checked" in done.warnings[0]
    assert read_header(file).get_str("general.name") == "eyes"
