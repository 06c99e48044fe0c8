"""check: verdicts, what is reported, advice, single files, inputs, the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFValueType as T
from hub_server import serve
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_gguf import BYTE, CONTROL, NORMAL, UNUSED, USER_DEFINED, P, letters, write

import gguftools
from gguftools.errors import FormatError, GGUFToolsError, InputError, NotFound
from gguftools.verbs._templates import prompt_inside_loop
from gguftools.verbs.check import Report, check
from gguftools.vocab import Vocab

N = 300
SPECIALS = ["<|end|>", "<|user|>", "<|pad|>"]
TOKENS = [*letters(N), *SPECIALS]
TYPES = [NORMAL] * N + [CONTROL] * 3
BASE: dict[str, Any] = {"tokens": TOKENS, "types": TYPES, "ids": {"bos": N + 1, "eos": N}}


def made(folder: Path, name: str, **change: Any) -> Path:
    return write(folder / f"{name}.gguf", **{**BASE, **change})


def pair(folder: Path, target: dict[str, Any] | None = None, **draft: Any) -> Report:
    return check(made(folder, "target", **(target or {})), made(folder, "draft", **draft))


def failed(report: Report) -> dict[str, str]:
    return {rule.name: rule.mend for rule in report.failed()}


# Verdicts


def test_the_same_vocabulary_is_identical(tmp_path: Path) -> None:
    report = pair(tmp_path)
    assert (report.verdict, report.usable, report.shared_fraction) == ("identical", True, 1.0)
    assert report.exchange is None
    assert report.unshared == ()
    assert report.advice == (f"gguftools chat {tmp_path}/target.gguf --draft {tmp_path}/draft.gguf",)


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("merges", {"merges": ["t k"]}),
        ("pre-tokenizer", {"pre": "qwen2"}),
        ("token types", {"types": [*TYPES[:-1], USER_DEFINED]}),
        ("ids 0–4", {"tokens": ["Ċ", "other", *TOKENS[2:]]}),
        ("tail", {"tokens": [*TOKENS, "[PAD303]"], "types": [*TYPES, UNUSED]}),
        ("special ids", {"ids": {"bos": N + 1, "eos": N, "padding": N + 2}}),
        ("end tokens", {"ids": {"bos": N + 1, "eos": N + 2}}),
    ],
)
def test_what_llama_cpp_does_not_look_at_is_reported(
    tmp_path: Path, rule: str, change: dict[str, Any]
) -> None:
    report = pair(tmp_path, **change)
    assert report.verdict == "compatible"
    assert rule in failed(report)


def test_ids_that_differ_below_5_are_never_drafted(tmp_path: Path) -> None:
    report = pair(tmp_path, tokens=["Ċ", "other", *TOKENS[2:]])
    assert report.unshared == (1,)
    assert report.exchange
    assert report.exchange.to_target[1] == -1


ALIGNABLE: dict[str, dict[str, Any]] = {
    "a special token's name": {"tokens": [*TOKENS[:-1], "<|other|>"]},
    "padding": {"tokens": [*TOKENS, *(f"[PAD{i}]" for i in range(200))], "types": [*TYPES, *[UNUSED] * 200]},
    "the bos flag": {"keys": {P + "add_bos_token": True}},
    "the eos flag": {"keys": {P + "add_eos_token": True}},
    "several at once": {"tokens": [*TOKENS[:-2], "<|a|>", "<|b|>"], "keys": {P + "add_bos_token": True}},
}


@pytest.mark.parametrize("name", ALIGNABLE)
def test_a_pair_whose_ordinary_tokens_agree_is_alignable(tmp_path: Path, name: str) -> None:
    report = pair(tmp_path, **ALIGNABLE[name])
    assert (report.verdict, report.usable) == ("alignable", True)
    keys = [rule.mend for rule in report.failed() if rule.source == "llama.cpp"]
    assert all(keys)
    assert all(any(key in line for line in report.advice) for key in keys)


def test_missing_ids_are_alignable_and_the_keys_are_named(tmp_path: Path) -> None:
    flags = {P + "add_bos_token": True}
    report = pair(tmp_path, {"keys": flags}, keys=flags, ids={"eos": N})
    assert report.verdict == "alignable"
    assert (
        failed(report)["bos"] == f"tokenizer.ggml.add_bos_token = true, tokenizer.ggml.bos_token_id = {N + 1}"
    )


def test_the_listed_keys_make_llama_cpp_accept_the_draft(tmp_path: Path) -> None:
    change = {"tokens": [*TOKENS[:-1], "<|other|>"], "ids": {"eos": N}, "keys": {P + "add_eos_token": True}}
    keys = {P + "add_bos_token": True}
    report = pair(tmp_path, {"keys": keys}, **change)
    assert report.verdict == "alignable"
    for key in (
        line for rule in report.failed() if rule.source == "llama.cpp" for line in rule.mend.split(", ")
    ):
        name, value = key.removeprefix(P).split(" = ")
        if name.startswith("tokens["):
            change["tokens"][int(name[7:-1])] = json.loads(value)
        elif value in ("true", "false"):
            change["keys"][P + name] = value == "true"
        else:
            change["ids"][name.removesuffix("_token_id")] = int(value)
    mended = check(tmp_path / "target.gguf", made(tmp_path, "mended", **change))
    assert mended.verdict in ("identical", "compatible")


@pytest.mark.parametrize(
    "change",
    [
        {"tokens": [*TOKENS[:50], "other", *TOKENS[51:]]},
        {"tokens": TOKENS[10:], "types": TYPES[10:]},
        {"tokens": [*letters(N), "ordinary", *SPECIALS[1:]], "types": [*TYPES[:N], NORMAL, CONTROL, CONTROL]},
        {"tokens": [*TOKENS, *(f"more{i}" for i in range(200))], "types": [*TYPES, *[NORMAL] * 200]},
        {"model": "llama", "pre": None, "merges": None},
        {"tokens": [*TOKENS[:-1], "tok5"]},
        {"arch": "dflash-draft"},
    ],
    ids=["a text", "shifted", "ordinary against special", "200 more", "type", "twice", "architecture"],
)
def test_a_pair_that_cannot_work_is_incompatible(tmp_path: Path, change: dict[str, Any]) -> None:
    report = pair(tmp_path, **change)
    assert (report.verdict, report.usable) == ("incompatible", False)
    assert report.exchange is None
    assert not any(rule.mend for rule in report.failed() if rule.source == "llama.cpp")


def test_128_ids_of_padding_are_accepted_as_they_stand(tmp_path: Path) -> None:
    pad = {"tokens": [*TOKENS, *(f"[PAD{i}]" for i in range(128))], "types": [*TYPES, *[UNUSED] * 128]}
    assert pair(tmp_path, pad).verdict == "compatible"


def test_differences_come_with_both_texts_and_a_count(tmp_path: Path) -> None:
    other = [*TOKENS[:20], *(f"x{i}" for i in range(N - 20)), *SPECIALS, "<|more|>"]
    report = pair(tmp_path, tokens=other, types=[*TYPES, CONTROL])
    assert report.n_differences == N - 20 + 1
    assert len(report.differences) == 10
    assert (report.differences[0].id, report.differences[0].target, report.differences[0].draft) == (
        20,
        "tok19",
        "x0",
    )
    assert report.shared_fraction == pytest.approx(23 / 303)


def test_the_shared_fraction_compares_real_bytes_across_kinds_of_vocabulary(tmp_path: Path) -> None:
    target = {
        "tokens": ["Ġhello", "Ċ", "é", "only", *SPECIALS],
        "types": None,
        "ids": {},
    }
    draft = {
        "tokens": ["▁hello", "<0x0A>", "no"],
        "types": [NORMAL, BYTE, NORMAL],
        "model": "llama",
        "ids": {},
    }
    report = pair(tmp_path, target, **draft, pre=None, merges=None)
    assert report.shared_fraction == pytest.approx(2 / 7)


# Exchange of ids


def test_a_token_under_another_id_is_exchanged(tmp_path: Path) -> None:
    report = pair(
        tmp_path, tokens=[*TOKENS[:N], "<|user|>", "<|end|>", "<|pad|>"], ids={"bos": N, "eos": N + 1}
    )
    assert report.verdict == "alignable"
    assert report.unshared == ()
    assert report.exchange
    assert report.exchange.to_draft[N:].tolist() == [N + 1, N, N + 2]
    assert report.exchange.to_target[N:].tolist() == [N + 1, N, N + 2]


def test_the_end_of_a_turn_is_exchanged_by_its_role(tmp_path: Path) -> None:
    report = pair(tmp_path, tokens=[*TOKENS[:N], "<|stop|>", *SPECIALS[1:]])
    assert report.verdict == "alignable"
    assert report.exchange
    assert report.exchange.to_target[N] == N


@given(
    st.lists(st.sampled_from(["same", "renamed", "gone", "moved"]), min_size=3, max_size=8), st.integers(0, 3)
)
@settings(max_examples=40, deadline=None)
def test_an_exchange_is_one_to_one_and_inside_both_vocabularies(
    tmp_path_factory: pytest.TempPathFactory, what: list[str], extra: int
) -> None:
    names = [f"<|s{i}|>" for i in range(len(what))]
    draft = [
        f"<|r{i}|>" if w == "renamed" else f"[PAD{i}]" if w == "gone" else names[i]
        for i, w in enumerate(what)
    ]
    moved = [i for i, w in enumerate(what) if w == "moved"]
    for i, j in zip(moved, [*moved[1:], *moved[:1]], strict=True):
        draft[i] = names[j]
    draft += [f"<|e{i}|>" for i in range(extra)]
    folder = tmp_path_factory.mktemp("exchange")
    types = [NORMAL] * 10 + [CONTROL] * len(what)
    report = pair(
        folder,
        {"tokens": letters(10) + names, "types": types, "ids": {}},
        tokens=letters(10) + draft,
        types=types + [CONTROL] * extra,
        ids={},
    )
    assert report.verdict in ("identical", "compatible", "alignable")
    if report.exchange is None:
        assert draft == names
        return
    to_draft, to_target = report.exchange.to_draft, report.exchange.to_target
    assert to_draft.dtype == to_target.dtype == np.int32
    assert ((to_draft >= 0) & (to_draft < len(to_target))).all()
    assert ((to_target >= -1) & (to_target < len(to_draft))).all()
    shared = np.setdiff1d(np.arange(len(to_draft)), report.unshared)
    assert (to_target[to_draft[shared]] == shared).all()
    assert sorted(to_target[to_target >= 0]) == shared.tolist()


# Kimi, Qwen


def kimi_with(vocab: Vocab, names: dict[int, str], folder: Path, name: str, **change: Any) -> Path:
    texts: list[str | bytes] = list(vocab.texts)
    for i, text in names.items():
        texts[i] = text
    ids = {"bos": 163584, "eos": 163586, "eot": 163586}
    how: dict[str, Any] = {
        "types": vocab.types.tolist(),
        "pre": "kimi-k2",
        "ids": ids,
        "merges": None,
        "arch": "deepseek2",
    }
    return write(folder / f"{name}.gguf", texts, **{**how, **change})


@pytest.fixture(scope="module")
def kimi(kimi_folder: Path) -> Vocab:
    return Vocab.from_checkpoint(kimi_folder)


def test_kimi_k2_and_k3_differ_in_names_alone(kimi: Vocab, tmp_path: Path, shared_data: Path) -> None:
    k3 = json.loads((shared_data / "kimi" / "kimi_k3.special_tokens.json").read_text())
    names = {int(i): text for i, text in _names(k3).items()}
    report = check(kimi_with(kimi, names, tmp_path, "k3"), kimi_with(kimi, {}, tmp_path, "k2"))
    assert report.verdict == "alignable"
    assert {rule.name for rule in report.failed() if rule.source == "llama.cpp"} == {"texts"}
    assert report.shared_fraction > 0.999
    assert all(i >= 163584 for i in report.unshared)


def _names(content: Any) -> dict[str, str]:
    if isinstance(content, dict) and all(isinstance(v, int) for v in content.values()):
        return {str(i): text for text, i in content.items()}
    return {str(i): text for i, text in content.items()}


def test_a_kimi_folder_and_its_gguf_are_identical(kimi: Vocab, kimi_folder: Path, tmp_path: Path) -> None:
    path = kimi_with(kimi, {}, tmp_path, "k2", merges=list(kimi.merges))
    report = check(path, kimi_folder)
    assert [rule.name for rule in report.failed()] in ([], ["special ids"])
    assert f"gguftools convert {kimi_folder} -o draft.gguf" in report.advice


def test_a_distilled_qwen_with_changed_specials_is_alignable(tmp_path: Path) -> None:
    qwen = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    r1 = ["<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"]
    report = pair(tmp_path, {"tokens": letters(N) + qwen}, tokens=letters(N) + r1)
    assert report.verdict == "alignable"
    assert [d.target for d in report.differences] == qwen


# Heads


def head(folder: Path, **change: Any) -> Path:
    keys: dict[str, Any] = {"eagle3.target_hidden_size": 64}
    layers = (np.array([1, 2, 3], np.uint32).tolist(), T.ARRAY)
    return made(
        folder,
        "head",
        **{"arch": "eagle3", "keys": keys, "typed": {"eagle3.target_layers": layers}, **change},
    )


@pytest.mark.parametrize("arch", ["deepseek2", "kimi-linear", "kimi-k3", "qwen2", "gemma3"])
def test_an_eagle3_head_would_end_the_process_with_these_targets(tmp_path: Path, arch: str) -> None:
    report = check(made(tmp_path, "target", arch=arch), head(tmp_path))
    assert (report.verdict, report.usable) == ("incompatible", False)
    assert "ends the process" in next(rule.effect for rule in report.failed() if rule.name == "layer inputs")
    assert any("Do not load" in line for line in report.advice)


@pytest.mark.parametrize("arch", ["llama", "qwen3", "gpt-oss"])
def test_an_eagle3_head_runs_in_llama_cpp_but_not_here_with_these(tmp_path: Path, arch: str) -> None:
    keys = {f"{arch}.embedding_length": 64, f"{arch}.block_count": 4}
    report = check(made(tmp_path, "target", arch=arch, keys=keys), head(tmp_path))
    assert report.verdict in ("identical", "compatible")
    assert not report.usable


def test_an_eagle3_head_made_for_another_target_is_fatal(tmp_path: Path) -> None:
    keys = {"llama.embedding_length": 128, "llama.block_count": 2}
    report = check(made(tmp_path, "target", keys=keys), head(tmp_path))
    assert {"hidden size", "layers"} <= set(failed(report))
    assert report.verdict == "incompatible"


# Templates


LOOP = "{% for m in messages %}{{ m.content }}"
IF = "{% if add_generation_prompt %}<|user|>{% endif %}"


@pytest.mark.parametrize(
    ("template", "inside"),
    [
        (LOOP + "{% endfor %}" + IF, False),
        (LOOP + IF + "{% endfor %}", True),
        (LOOP + "{%- if loop.last and add_generation_prompt -%}x{% endif %}{% endfor %}", False),
        (LOOP + "{% if loop.last %}" + IF + "{% endif %}{% endfor %}", False),
        (LOOP + "{% if m.role == 'user' %}u{% elif add_generation_prompt %}a{% endif %}{% endfor %}", True),
        ("{% for t in tools %}{{ t }}{% endfor %}" + IF, False),
        ("{% endfor %}{% endif %}", False),
        ("{% if x %}" + LOOP + "{% endfor %}{% endif %}" + IF, False),
    ],
)
def test_a_header_inside_the_loop_is_seen(template: str, inside: bool) -> None:
    assert prompt_inside_loop(template) is inside


def test_headers_that_the_draft_lacks_are_reported(tmp_path: Path) -> None:
    target = {"keys": {"tokenizer.chat_template": "<|user|>{{ x }}<|end|>"}}
    report = pair(tmp_path, target, tokens=[*TOKENS[:N], "<|end|>", "<|human|>", "<|pad|>"])
    rule = next(rule for rule in report.failed() if rule.name == "template headers")
    assert "<|user|>" in rule.effect


def test_a_draft_with_a_short_context_is_reported(tmp_path: Path) -> None:
    report = pair(tmp_path, {"keys": {"llama.context_length": 8192}}, keys={"llama.context_length": 2048})
    assert report.verdict == "identical"
    assert "context length" in failed(report)


# One file


FAULTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "a bos that is missing": (
        {"ids": {"eos": N}, "keys": {P + "add_bos_token": True}},
        "bos named",
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
    "a beta_fast that is not read": (
        {
            "arch": "deepseek2",
            "keys": {"deepseek2.rope.scaling.type": "yarn", "deepseek2.rope.scaling.yarn_beta_fast": 1.0},
        },
        "YaRN beta_fast",
        "yarn_beta_fast = 1",
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


def test_a_sound_file_is_ok(tmp_path: Path) -> None:
    keys = {"tokenizer.chat_template": LOOP + "<|end|>{% endfor %}" + IF}
    report = check(made(tmp_path, "model", keys=keys, tensors={"token_embd.weight": (N + 3, 32)}))
    assert (report.verdict, report.usable, report.failed()) == ("ok", True, ())


def test_smollm2_is_ok_and_fits_itself(smollm2: Path) -> None:
    assert check(smollm2).verdict == "ok"
    assert check(smollm2, smollm2).verdict == "identical"


@pytest.mark.parametrize(
    ("change", "rule", "mend"),
    [
        ({"ids": {"bos": 163584, "eos": 163585}}, "eos ends a turn", "tokenizer.ggml.eos_token_id = 163586"),
        ({"ids": {"eos": 163586}}, "bos named", "tokenizer.ggml.bos_token_id = 163584"),
        ({"pre": "qwen2", "merges": ["a b"]}, "pre-tokenizer", "tokenizer.ggml.pre = kimi-k2"),
        ({"names": {163606: "<think>"}}, "<think> visible", "tokenizer.ggml.token_type[163606] = 4"),
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
    if rule == "bos named":
        assert "11 (,)" in next(r.effect for r in report.failed() if r.name == rule)


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
        try:
            assert isinstance(check(*files), Report)
        except GGUFToolsError:
            pass


# Several drafts, the Hub, the command


def test_several_drafts_are_ranked_best_first(tmp_path: Path) -> None:
    target = made(tmp_path, "target")
    drafts = {
        "d": made(tmp_path, "d", tokens=[*TOKENS[:50], "other", *TOKENS[51:]]),
        "c": made(tmp_path, "c", tokens=[*TOKENS[:-1], "<|other|>"]),
        "b": made(tmp_path, "b", merges=["t k"]),
        "a": made(tmp_path, "a"),
    }
    reports = gguftools.check(target, *drafts.values())
    assert [Path(str(report.draft)).stem for report in reports] == ["a", "b", "c", "d"]
    assert [r.verdict for r in reports] == ["identical", "compatible", "alignable", "incompatible"]


def test_what_was_read_before_is_taken_as_it_is(tmp_path: Path) -> None:
    path = made(tmp_path, "m")
    header = gguftools.read_header(path)
    assert check(header, Vocab.from_header(header)).verdict == "identical"
    assert check(header).verdict == "ok"


def test_a_pair_on_the_hub_costs_its_headers_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = made(tmp_path, "m", tensors={"token_embd.weight": (N + 3, 8192)}).read_bytes()
    with serve() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        hub.repos["org/big"] = {"big-Q8_0.gguf": data}
        hub.repos["org/small"] = {"small-Q4_0.gguf": data}
        report = check("org/big:Q8_0", "org/small")
        assert (report.verdict, report.target) == ("identical", "org/big:big-Q8_0.gguf")
        assert hub.sent < 2 * (1 << 19) + 4096
        assert len(data) > 9_000_000


def test_a_checkpoint_on_the_hub_costs_its_tokenizer_alone(
    kimi_folder: Path, kimi: Vocab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {path.name: path.read_bytes() for path in kimi_folder.iterdir()}
    with serve() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        hub.repos["org/kimi"] = {
            **files,
            "model.safetensors": b"\0" * (1 << 23),
            "modeling_kimi.py": b"raise",
        }
        report = check("org/kimi", kimi_folder)
        assert report.verdict == "identical"
        assert hub.sent < sum(map(len, files.values())) + 4096
        hub.repos["org/pickles"] = {"config.json": b"{}", "pytorch_model.bin": b"x"}
        with pytest.raises(InputError, match="no model in it"):
            check("org/pickles")
        with pytest.raises(NotFound):
            check("org/none")


def command(*args: str | Path, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "gguftools", "check", *map(str, args)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == code, done.stderr
    return done.stdout if code != 1 else done.stderr


def test_the_command_exits_3_where_no_draft_can_be_used(tmp_path: Path) -> None:
    target, good = made(tmp_path, "target"), made(tmp_path, "good")
    bad = made(tmp_path, "bad", tokens=[*TOKENS[:50], "other", *TOKENS[51:]])
    assert command(target, good, code=0).startswith("identical")
    assert command(target, bad, code=3).startswith("incompatible")
    assert command(target, bad, good, code=0).startswith("identical")
    assert command(target).startswith("ok")
    assert command(made(tmp_path, "faulty", pre=None), code=3).startswith("faulty")


def test_the_command_writes_one_json_object(tmp_path: Path) -> None:
    target, draft = made(tmp_path, "target"), made(tmp_path, "draft", tokens=[*TOKENS[:-1], "<|other|>"])
    content = json.loads(command(target, draft, "--json"))
    assert content["schema"] == 1
    (report,) = content["reports"]
    wanted = {"verdict", "target", "draft", "rules", "differences", "shared_fraction", "advice"}
    assert wanted <= set(report)
    assert report["differences"] == [{"id": N + 2, "target": "<|pad|>", "draft": "<|other|>"}]
    failed_json = json.loads(_stdout(tmp_path / "missing.gguf", "--json"))
    assert failed_json["schema"] == 1
    assert failed_json["error"]


def _stdout(*args: str | Path) -> str:
    run = [sys.executable, "-m", "gguftools", "check", *map(str, args)]
    return subprocess.run(run, capture_output=True, text=True, timeout=60, check=False).stdout


def test_an_unreadable_file_is_three_lines_on_stderr(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"")
    lines = command(tmp_path / "m.gguf", code=1).splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("error: ")


def test_a_hostile_token_cannot_command_the_terminal(tmp_path: Path) -> None:
    draft = made(tmp_path, "draft", tokens=[*TOKENS[:-1], "<|\x1b[31mred|>"])
    assert "\x1b" not in command(made(tmp_path, "target"), draft)


def test_a_local_pair_loads_nothing_heavy(tmp_path: Path) -> None:
    path = made(tmp_path, "m")
    code = (
        "import sys; from gguftools.cli.check import command;"
        f"command.main([{str(path)!r}, {str(path)!r}], standalone_mode=False);"
        "print(sorted({'rich','llama_cpp','tiktoken','huggingface_hub','jinja2','gguf'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.skipif(not hasattr(os, "wait4"), reason="the processor time of a child is not to be had")
def test_a_kimi_sized_pair_takes_at_most_half_a_second(kimi: Vocab, tmp_path: Path) -> None:
    merges = list(kimi.merges)
    paths = [str(kimi_with(kimi, {}, tmp_path, name, merges=merges)) for name in ("a", "b")]
    run = [sys.executable, "-m", "gguftools", "check", *paths]
    best = 9.0
    for _ in range(3):
        child = subprocess.Popen(
            [sys.executable, "-m", "gguftools", "check", *paths], stdout=subprocess.DEVNULL
        )
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        assert child.returncode == 0
        best = min(best, usage.ru_utime + usage.ru_stime)  # of the processor, other work counts not
    assert best < 0.5
