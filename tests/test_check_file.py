"""check FILE: wrong metadata, and inputs that are no model."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFValueType as T
from hypothesis import given, settings
from hypothesis import strategies as st
from pairs import IF, LOOP, TOKENS, TYPES, N, failed, kimi_with, made
from tiny_gguf import P

import gguftools
from gguftools.errors import FormatError, GGUFToolsError, InputError
from gguftools.verbs.check import Report, check
from gguftools.vocab import Vocab

# One file


@pytest.fixture(scope="module")
def kimi(kimi_folder: Path) -> Vocab:
    return Vocab.from_checkpoint(kimi_folder)


FAULTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "a bos that is missing": (
        {"ids": {"eos": N}, "keys": {P + "add_bos_token": True}},
        "bos id named",
        "tokenizer.ggml.bos_token_id = ",
    ),
    "two bos": (
        {"keys": {P + "add_bos_token": True, "tokenizer.chat_template": "{{ bos_token }}hi"}},
        "one bos",
        "tokenizer.ggml.add_bos_token = false",
    ),
    "no pre-tokenizer": ({"pre": None}, "pre-tokenizer", "tokenizer.ggml.pre = "),
    "the default pre-tokenizer": ({"pre": "default"}, "pre-tokenizer", "tokenizer.ggml.pre = "),
    "a header inside the loop": (
        {"keys": {"tokenizer.chat_template": LOOP + IF + "{% endfor %}"}},
        "template's last header",
        "behind the loop",
    ),
    "a template that writes what is no token": (
        {"keys": {"tokenizer.chat_template": "<|media_start|>image<|end|>"}},
        "template's tokens",
        "tokenizer.chat_template",
    ),
    "<think> hidden": (
        {"tokens": [*TOKENS[:-1], "<think>"]},
        "<think> visible",
        f"tokenizer.ggml.token_type[{N + 2}] = 4 (USER_DEFINED)",
    ),
    "scores of a wrong type": (
        {"typed": {P + "scores": ([True] * (N + 3), T.ARRAY)}},
        "types of keys",
        "as f32",
    ),
    "a token twice": ({"tokens": [*TOKENS[:-1], "tok5"]}, "no token twice", "its own text"),
    "an id beyond the vocabulary": ({"ids": {"bos": 5, "eos": 303}}, "special ids", "below 303"),
    "an architecture of a fork": ({"arch": "dflash-draft"}, "architecture", "general.architecture = dflash"),
    "too few rows": (
        {"tensors": {"token_embd.weight": (N, 32)}},
        "rows of the embedding",
        f"with {N} entries",
    ),
    "no expert gating": (
        {
            "arch": "deepseek2",
            "keys": {"deepseek2.expert_count": 8},
            "tensors": {"blk.1.exp_probs_b.bias": (8,)},
        },
        "expert gating",
        "deepseek2.expert_gating_func = 2",
    ),
    "a file from before MLA": (
        {
            "arch": "deepseek2",
            "keys": {"deepseek2.attention.head_count": 8, "deepseek2.attention.head_count_kv": 8},
            "tensors": {"blk.0.attn_kv_b.weight": (8, 32)},
        },
        "latent attention",
        "newer GGUF",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_wrong_metadata_is_named_with_its_effect_and_mending(tmp_path: Path, name: str) -> None:
    change, rule, mend = FAULTS[name]
    report = check(made(tmp_path, "model", **change))
    assert report.verdict == "faulty"
    found = {r.name: r for r in report.failed()}
    assert rule in found
    assert mend in found[rule].mend
    assert found[rule].effect


def test_a_beta_fast_that_llama_cpp_does_not_read_is_noted_but_no_fault_of_the_file(tmp_path: Path) -> None:
    keys = {"deepseek2.rope.scaling.type": "yarn", "deepseek2.rope.scaling.yarn_beta_fast": 1.0}
    report = check(made(tmp_path, "model", arch="deepseek2", keys=keys))
    (rule,) = [r for r in report.failed() if r.name == "YaRN beta_fast"]
    assert rule.level == "note"
    assert "yarn_beta_fast = 1" in rule.mend


def test_a_sound_file_is_ok(tmp_path: Path) -> None:
    keys = {"tokenizer.chat_template": LOOP + "<|end|>{% endfor %}" + IF}
    report = check(made(tmp_path, "model", keys=keys, tensors={"token_embd.weight": (N + 3, 32)}))
    assert (report.verdict, report.usable, report.failed()) == ("ok", True, ())


def test_a_base_model_may_end_at_eos(kimi: Vocab, tmp_path: Path) -> None:
    keys = {"general.name": "Moonlight 16B A3B Base"}
    report = check(kimi_with(kimi, {}, tmp_path, "base", ids={"bos": 163584, "eos": 163585}, keys=keys))
    assert report.verdict == "ok"
    assert "eos ends a turn" in failed(report)


def test_a_first_shard_without_tensors_is_no_vocabulary_alone(tmp_path: Path) -> None:
    keys = {"split.count": (2, T.UINT16), "split.no": (0, T.UINT16), "split.tensors.count": (1, T.INT32)}
    first = made(tmp_path, "m-00001-of-00002", typed=keys).read_bytes()
    assert "weights" not in failed(check(gguftools.read_header(first)))
    assert "weights" in failed(check(made(tmp_path, "vocabulary")))


def test_smollm2_is_ok_and_fits_itself(smollm2: Path) -> None:
    assert check(smollm2).verdict == "ok"
    assert check(smollm2, smollm2).verdict == "identical"


@pytest.mark.parametrize(
    ("change", "rule", "mend"),
    [
        ({"ids": {"bos": 163584, "eos": 163585}}, "eos ends a turn", "tokenizer.ggml.eos_token_id = 163586"),
        ({"ids": {"eos": 163586}}, "bos id named", "tokenizer.ggml.bos_token_id = 163584"),
        ({"pre": "qwen2", "merges": ["a b"]}, "pre-tokenizer", "tokenizer.ggml.pre = kimi-k2"),
        ({"keys": {"deepseek2.expert_count": 384}}, "expert gating", "deepseek2.expert_gating_func = 2"),
        ({"keys": {"tokenizer.chat_template": "<|media_start|>"}}, "template's tokens", "chat_template"),
    ],
)
def test_kimis_usual_faults_are_seen(
    kimi: Vocab, tmp_path: Path, change: dict[str, Any], rule: str, mend: str
) -> None:
    names = change.pop("names", {})
    report = check(kimi_with(kimi, names, tmp_path, "k2", **change))
    assert report.verdict == "faulty"
    assert mend in failed(report)[rule]
    if rule == "bos id named":
        assert "11 (,)" in next(r.effect for r in report.failed() if r.name == rule)


def test_kimis_hidden_think_is_noted_but_no_fault(kimi: Vocab, tmp_path: Path) -> None:
    """Every converter types it so; gguftools shows it all the same."""
    report = check(kimi_with(kimi, {163606: "<think>"}, tmp_path, "k2"))
    assert report.verdict == "ok"
    assert "tokenizer.ggml.token_type[163606] = 4" in failed(report)["<think> visible"]


# Inputs that are no model


def message(source: str | Path) -> str:
    with pytest.raises(GGUFToolsError) as caught:
        check(source)
    text = str(caught.value)
    assert 2 <= len(text.splitlines()) <= 3
    return text


@pytest.mark.parametrize(
    "content", [b"", b"GGUF", b"not a model at all", b"PK\x03\x04" + b"\0" * 100, b"\0" * 4096]
)
def test_a_file_that_is_no_gguf_gets_one_message(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    assert str(path) in message(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"keys": {"general.type": "mmproj"}, "arch": "clip"}, "an mmproj, not a model"),
        ({"keys": {"general.type": "imatrix"}}, "an imatrix, not a model"),
        ({"keys": {"general.type": "adapter"}}, "a LoRA adapter, not a model"),
    ],
)
def test_a_gguf_of_another_kind_is_named(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    assert words in message(made(tmp_path, "m", **change))


def test_a_later_shard_alone_says_which_shard_is_missing(tmp_path: Path) -> None:
    keys = {"split.count": (2, T.UINT16), "split.no": (1, T.UINT16), "split.tensors.count": (0, T.INT32)}
    path = made(tmp_path, "m-00002-of-00002", typed=keys)
    assert "m-00001-of-00002.gguf" in message(path)
    assert "m-00001-of-00002.gguf" in message(tmp_path)


def test_data_that_ends_beyond_any_file_is_refused(tmp_path: Path) -> None:
    path = made(tmp_path, "m", tensors={"token_embd.weight": (N + 3, 32)})
    data = path.read_bytes()
    at = data.index(b"token_embd.weight") + len("token_embd.weight") + 4 + 8
    path.write_bytes(data[: at + 5] + b"\x01" + data[at + 6 :])
    assert "the file has" in message(path)


def test_a_later_shard_stands_for_the_whole_model(tmp_path: Path) -> None:
    for no in (0, 1):
        keys = {"split.count": (2, T.UINT16), "split.no": (no, T.UINT16), "split.tensors.count": (2, T.INT32)}
        made(tmp_path, f"m-0000{no + 1}-of-00002", typed=keys, tensors={f"t{no}": (4, 32)})
    report = check(tmp_path / "m-00002-of-00002.gguf")
    assert failed(report)["first shard"] == "give m-00001-of-00002.gguf"
    assert "first shard" not in failed(check(tmp_path / "m-00001-of-00002.gguf"))


def test_shards_joined_with_cat_are_recognised(tmp_path: Path) -> None:
    parts = []
    for no in (0, 1):
        keys = {"split.count": (2, T.UINT16), "split.no": (no, T.UINT16), "split.tensors.count": (2, T.INT32)}
        part = made(tmp_path, f"m-0000{no + 1}-of-00002", typed=keys, tensors={f"t{no}": (4, 32)})
        parts.append(part.read_bytes())
    joined = tmp_path / "joined.gguf"
    joined.write_bytes(b"".join(parts))
    assert "joined with cat" in message(joined)
    (tmp_path / "m-00001-of-00002.gguf").write_bytes(b"".join(parts))
    assert "one GGUF in the file" in failed(check(tmp_path / "m-00001-of-00002.gguf"))


def test_a_folder_without_a_model_says_what_it_looked_for(tmp_path: Path) -> None:
    assert "tokenizer.json" in message(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"PK\x03\x04")
    assert "never opened" in message(tmp_path)


def test_a_folder_with_one_gguf_is_that_model(tmp_path: Path) -> None:
    made(tmp_path, "model")
    assert check(tmp_path).target == str(tmp_path)


def test_a_path_that_does_not_exist_is_said(tmp_path: Path) -> None:
    assert "no such file" in message(tmp_path / "missing.gguf")
    assert "no such file" in message("../../etc/missing")


def test_config_json_that_is_no_json_is_a_format_error(tmp_path: Path, kimi_folder: Path) -> None:
    for file in kimi_folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "config.json").write_bytes(b"{nonsense")
    with pytest.raises((FormatError, InputError)):
        check(tmp_path)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_a_damaged_file_is_judged_or_refused_and_never_fails_otherwise(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    keys = {"tokenizer.chat_template": LOOP + IF, "llama.context_length": 10}
    good = made(folder, "good", tokens=TOKENS[-20:], types=TYPES[-20:], keys=keys, ids={"bos": 1, "eos": 2})
    content = bytearray(good.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    bad = folder / "bad.gguf"
    bad.write_bytes(content)
    for files in ((bad,), (good, bad), (bad, good)):
        with contextlib.suppress(GGUFToolsError):
            assert isinstance(check(*files), Report)
