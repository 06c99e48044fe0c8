"""check: the verdict about a pair, what is reported, the exchange of ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pairs import SPECIALS, TOKENS, TYPES, N, failed, made, pair
from tiny_gguf import BYTE, CONTROL, NORMAL, UNUSED, USER_DEFINED, P, letters

from gguftools.verbs.check import check

# Verdicts


def test_the_same_vocabulary_is_identical(tmp_path: Path) -> None:
    report = pair(tmp_path)
    assert (report.verdict, report.usable, report.shared_fraction) == ("identical", True, 1.0)
    assert report.exchange is None
    assert report.unshared == ()
    tensors = {"token_embd.weight": (N + 3, 32)}
    report = pair(tmp_path, {"tensors": tensors}, tensors=tensors)
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
    "a name in a file without types": {"tokens": [*TOKENS[:-1], "<think>"], "types": None},
}


@pytest.mark.parametrize("name", ALIGNABLE)
def test_a_pair_whose_ordinary_tokens_agree_is_alignable(tmp_path: Path, name: str) -> None:
    report = pair(tmp_path, **ALIGNABLE[name])
    assert (report.verdict, report.usable) == ("alignable", True)
    mends = [rule.mend for rule in report.failed() if rule.source == "llama.cpp"]
    assert mends
    assert all(f"  {key}" in report.advice for mend in mends for key in mend.splitlines())


def test_missing_ids_are_alignable_and_the_keys_are_named(tmp_path: Path) -> None:
    flags = {P + "add_bos_token": True}
    report = pair(tmp_path, {"keys": flags}, keys=flags, ids={"eos": N})
    assert report.verdict == "alignable"
    assert failed(report)["bos"] == f"{P}add_bos_token = true\n{P}bos_token_id = {N + 1}"


def test_the_listed_keys_make_llama_cpp_accept_the_draft(tmp_path: Path) -> None:
    change = {"tokens": [*TOKENS[:-1], "<|other|>"], "ids": {"eos": N}, "keys": {P + "add_eos_token": True}}
    keys = {P + "add_bos_token": True}
    report = pair(tmp_path, {"keys": keys}, **change)
    assert report.verdict == "alignable"
    mends = [rule.mend for rule in report.failed() if rule.source == "llama.cpp"]
    for key in "\n".join(mends).splitlines():
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


def test_a_donor_that_does_not_fit_can_be_transplanted(tmp_path: Path) -> None:
    tokens = [*TOKENS[:50], "other", *TOKENS[51:]]
    report = pair(tmp_path, tokens=tokens, tensors={"token_embd.weight": (N + 3, 32)})
    command = f"gguftools transplant {tmp_path}/draft.gguf {tmp_path}/target.gguf -o draft.gguf"
    assert (report.verdict, report.advice[-1]) == ("incompatible", command)
    assert command not in pair(tmp_path, tokens=tokens).advice  # a vocabulary alone is no donor
    other = pair(tmp_path, tokens=tokens, arch="gemma3", tensors={"token_embd.weight": (N + 3, 32)})
    assert command not in other.advice
