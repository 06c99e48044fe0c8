"""check's rules agree with what libllama itself says about generated vocab-only files."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from libllama_says import CHILD, Said, ask, eog, quiet
from tiny_gguf import BYTE, CONTROL, NORMAL, UNKNOWN, letters, write

from gguftools.errors import FormatError
from gguftools.verbs.check import check
from gguftools.verbs.check.pair import as_c_string, effective
from gguftools.vocab import Vocab


@pytest.fixture(scope="module", autouse=True)
def no_log() -> None:
    quiet()


def libllama_rules(a: Said, b: Said) -> dict[str, bool]:
    """The conditions of common_speculative_are_compatible, one by one."""
    return {
        "vocabulary type": a.type == b.type,
        "bos": a.add_bos == b.add_bos and (not a.add_bos or a.bos == b.bos),
        "eos": a.add_eos == b.add_eos and (not a.add_eos or a.eos == b.eos),
        "size": abs(a.n_tokens - b.n_tokens) <= 128,
        "texts": a.texts[5 : b.n_tokens] == b.texts[5 : a.n_tokens],
    }


BASE: dict[str, Any] = {"tokens": letters(300), "ids": {"bos": 1, "eos": 2}}


def changed(i: int, text: str) -> dict[str, Any]:
    tokens = letters(300)
    tokens[i] = text
    return {**BASE, "tokens": tokens}


SPM = {
    "tokens": ["<unk>", "<s>", "</s>", "<0x0A>", *letters(296)],
    "model": "llama",
    "pre": None,
    "merges": None,
}
BREAKS: dict[str, tuple[dict[str, Any], dict[str, Any], set[str]]] = {
    "nothing": (BASE, BASE, set()),
    "a text at id 4": (BASE, changed(4, "other"), set()),
    "a text at id 5": (BASE, changed(5, "other"), {"texts"}),
    "the last text": (BASE, changed(299, "other"), {"texts"}),
    "128 more tokens": (BASE, {**BASE, "tokens": letters(428)}, set()),
    "129 more tokens": (BASE, {**BASE, "tokens": letters(429)}, {"size"}),
    "128 fewer tokens": (BASE, {**BASE, "tokens": letters(172)}, set()),
    "129 fewer tokens": (BASE, {**BASE, "tokens": letters(171)}, {"size"}),
    "the vocabulary type": (BASE, SPM, {"vocabulary type", "bos", "texts"}),
    "the bos flag": (BASE, {**BASE, "keys": {"tokenizer.ggml.add_bos_token": True}}, {"bos"}),
    "the eos flag": (BASE, {**BASE, "keys": {"tokenizer.ggml.add_eos_token": True}}, {"eos"}),
    "the bos id, not added": (BASE, {**BASE, "ids": {"bos": 3, "eos": 2}}, set()),
    "the eos id, not added": (BASE, {**BASE, "ids": {"bos": 1, "eos": 3}}, set()),
    "the bos id, added": (
        {**BASE, "keys": {"tokenizer.ggml.add_bos_token": True}},
        {**BASE, "keys": {"tokenizer.ggml.add_bos_token": True}, "ids": {"bos": 3}},
        {"bos"},
    ),
    "the eos id, added": (
        {**BASE, "keys": {"tokenizer.ggml.add_eos_token": True}},
        {**BASE, "keys": {"tokenizer.ggml.add_eos_token": True}, "ids": {"bos": 1, "eos": 3}},
        {"eos"},
    ),
    "the bos key, added": (
        {**BASE, "keys": {"tokenizer.ggml.add_bos_token": True}},
        {**BASE, "keys": {"tokenizer.ggml.add_bos_token": True}, "ids": {}},
        {"bos"},
    ),
    "the bos key, where the default is the same": (
        {**BASE, "keys": {"tokenizer.ggml.add_bos_token": True}, "ids": {"bos": 11}},
        {**BASE, "keys": {"tokenizer.ggml.add_bos_token": True}, "ids": {}},
        set(),
    ),
    "the pre-tokenizer, which adds bos": (BASE, {**BASE, "pre": "llama-bpe"}, {"bos"}),
    "the merges": (BASE, {**BASE, "merges": ["t k"]}, set()),
    "the token types": (BASE, {**BASE, "types": [NORMAL] * 299 + [CONTROL]}, set()),
    "an empty token with its name": (changed(7, ""), changed(7, "[EMPTY_7]"), set()),
    "an empty token with another": (changed(7, ""), changed(7, "other"), {"texts"}),
    "what follows a NUL": (changed(7, "a\0b"), changed(7, "a\0c"), set()),
    "a NUL at the beginning": (changed(7, "\0b"), changed(7, "[EMPTY_7]"), set()),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_pair_that_breaks_one_rule_breaks_the_same_in_libllama(tmp_path: Path, name: str) -> None:
    target, draft, broken = BREAKS[name]
    paths = [write(tmp_path / f"{i}.gguf", **how) for i, how in enumerate((target, draft))]
    said = [ask(path) for path in paths]
    assert said[0]
    assert said[1]
    theirs = libllama_rules(*said)  # type: ignore[arg-type]
    report = check(paths[0], paths[1])
    ours = {rule.name: rule.passed for rule in report.rules if rule.source == "llama.cpp"}
    assert ours == theirs
    assert {rule for rule, passed in ours.items() if not passed} == broken
    assert (report.verdict in ("identical", "compatible")) == all(theirs.values())


def defaults() -> Iterator[Any]:
    spm = ["<unk>", "<s>", "</s>", "<0x0A>"]
    bert = ["[PAD]", *(f"[unused{i}]" for i in range(99)), "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    for pre in (
        "gpt-2",
        "default",
        None,
        "llama-bpe",
        "llama3",
        "tekken",
        "chameleon",
        "glm4",
        "glm5",
        "chatglm-bpe",
    ):
        yield pytest.param({"pre": pre}, id=f"gpt2 {pre}")
    for pre in (
        "qwen2",
        "kimi-k2",
        "lfm2",
        "pixtral",
        "minicpm5",
        "gemma4",
        "granite-embed-multi-311m",
        "jina-v1-en",
    ):
        yield pytest.param({"pre": pre}, id=f"gpt2 {pre}")
    for n in (5, 11, 12):
        yield pytest.param({"tokens": letters(n)}, id=f"{n} tokens")
    for model in ("hybriddna", "whitespace"):
        for pre in ("whitespace", "llama-bpe"):
            yield pytest.param({"model": model, "pre": pre}, id=f"{model} {pre}")
    yield pytest.param({"model": "gemma4", "pre": None}, id="gemma4")
    yield pytest.param(
        {"model": "gemma4", "keys": {"tokenizer.ggml.add_bos_token": False}}, id="gemma4 no bos"
    )
    for pre in (None, "glm4", "llama-bpe", "gemma4"):
        yield pytest.param({"model": "llama", "pre": pre, "tokens": spm + letters(9)}, id=f"llama {pre}")
    yield pytest.param({"model": "llama", "tokens": ["<0x0A>"], "pre": None}, id="llama with one token")
    yield pytest.param({"model": "bert", "pre": None, "tokens": bert}, id="bert")
    yield pytest.param({"model": "bert", "pre": None, "tokens": bert[:50]}, id="short bert")
    yield pytest.param({"model": "t5", "pre": None, "tokens": ["<pad>", "</s>", "<unk>", "a", "▁"]}, id="t5")
    yield pytest.param({"ids": {"bos": 299, "eos": 300}}, id="ids at the edge")
    yield pytest.param({"ids": {"bos": 4_000_000_000, "eos": 301}}, id="ids beyond")
    yield pytest.param({"tokens": letters(5), "ids": {"bos": 7}}, id="default and id beyond")
    for flag in (True, False):
        keys = {"tokenizer.ggml.add_bos_token": flag, "tokenizer.ggml.add_eos_token": flag}
        yield pytest.param({"keys": keys}, id=f"gpt2 flags {flag}")
        yield pytest.param({"keys": keys, "pre": "llama-bpe"}, id=f"llama-bpe flags {flag}")
        yield pytest.param(
            {"keys": keys, "model": "llama", "pre": None, "tokens": spm + letters(9)},
            id=f"llama flags {flag}",
        )


@pytest.mark.parametrize("how", list(defaults()))
def test_what_a_file_leaves_out_is_filled_in_as_libllama_does(tmp_path: Path, how: dict[str, Any]) -> None:
    how = {"tokens": letters(300), **how}
    path = write(tmp_path / "m.gguf", **how)
    said = ask(path)
    vocab = Vocab.from_gguf(path)
    assert said is not None
    real = effective(vocab)
    assert (real.type, real.add_bos, real.bos, real.add_eos, real.eos, real.n_tokens) == (
        said.type,
        said.add_bos,
        said.bos,
        said.add_eos,
        said.eos,
        said.n_tokens,
    )
    assert tuple(as_c_string(text, i) for i, text in enumerate(vocab.texts)) == said.texts


REFUSED: dict[str, dict[str, Any]] = {
    "an unknown architecture": {"arch": "dflash-draft"},
    "an unknown tokenizer": {"model": "strange"},
    "no tokenizer": {"model": None},
    "an unknown pre-tokenizer": {"pre": "strange"},
    "no merges": {"merges": None},
    "a bos id that is signed": {"typed": {"tokenizer.ggml.bos_token_id": (1, 5)}},
    "an eos id of 64 bits": {"typed": {"tokenizer.ggml.eos_token_id": (1, 10)}},
    "scores that are bools": {"typed": {"tokenizer.ggml.scores": ([True] * 300, 9)}},
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_libllama_refuses_is_fatal(tmp_path: Path, name: str) -> None:
    how = {"tokens": letters(300), **REFUSED[name]}
    how["typed"] = {key: (value, _kind(kind)) for key, (value, kind) in how.get("typed", {}).items()}
    path = write(tmp_path / "m.gguf", **how)
    assert ask(path) is None
    report = check(path)
    assert report.verdict == "faulty"
    assert not report.usable
    good = write(tmp_path / "good.gguf", letters(300))
    assert ask(good) is not None
    assert check(good).usable
    assert check(good, path).verdict == "incompatible"


def test_a_flag_that_is_a_number_is_refused_as_by_libllama(tmp_path: Path) -> None:
    typed = {"tokenizer.ggml.add_bos_token": (1, _kind(4))}
    path = write(tmp_path / "m.gguf", letters(300), typed=typed)
    assert ask(path) is None
    with pytest.raises(FormatError, match="should be a bool"):
        check(path)


def _kind(number: int) -> Any:
    from gguf import GGUFValueType

    return GGUFValueType(number)


KIMI_LIKE = [
    *letters(20),
    "[BOS]",
    "[EOS]",
    "<|im_end|>",
    "[EOT]",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "</s>",
    "[PAD]",
]


@pytest.mark.parametrize(
    "how",
    [
        {"tokens": KIMI_LIKE},
        {"tokens": KIMI_LIKE, "ids": {"eos": 3, "eot": 4, "eom": 5}},
        {"tokens": [*letters(20), "<|end|>", "<|im_end|>", "<|tool_response>", "</s>"]},
        {"tokens": letters(20), "ids": {"eos": 2}},
    ],
)
def test_the_end_tokens_are_libllamas(tmp_path: Path, how: dict[str, Any]) -> None:
    path = write(tmp_path / "m.gguf", **how)
    ours = Vocab.from_gguf(path).eog()
    assert ours == eog(path)


_numbers = count()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    extra=st.tuples(st.integers(0, 140), st.integers(0, 140)),
    ids=st.tuples(
        *[st.dictionaries(st.sampled_from(["bos", "eos", "eot"]), st.integers(0, 160)) for _ in "ab"]
    ),
    flags=st.tuples(
        *[
            st.dictionaries(
                st.sampled_from(["tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token"]),
                st.booleans(),
            )
            for _ in "ab"
        ]
    ),
    pre=st.tuples(*[st.sampled_from(["gpt-2", "llama-bpe", "glm4", "qwen2", "gemma4"]) for _ in "ab"]),
    other=st.sets(st.integers(0, 11), max_size=2),
)
def test_any_pair_gets_the_verdict_of_libllamas_functions(
    tmp_path: Path, extra: Any, ids: Any, flags: Any, pre: Any, other: set[int]
) -> None:
    paths = []
    for side in (0, 1):
        tokens = letters(12 + extra[side])
        if side:
            for i in other:
                tokens[i] = f"other{i}"
        how = {"ids": ids[side], "keys": flags[side], "pre": pre[side]}
        paths.append(write(tmp_path / f"{next(_numbers)}.gguf", tokens, **how))
    said = [ask(path) for path in paths]
    report = check(paths[0], paths[1], quick=True)
    ours = {rule.name: rule.passed for rule in report.rules if rule.source == "llama.cpp"}
    assert ours == libllama_rules(*said)  # type: ignore[arg-type]
    for path in paths:
        path.unlink()


@pytest.mark.parametrize(
    ("how", "rule"),
    [
        ({"tokens": ["Ċ", "a", "b", "a"]}, "no token twice"),
        ({"tokens": ["Ċ", "a", "", "[EMPTY_2]"]}, "no token twice"),
        ({"tokens": ["Ċ", "a", "b\0c", "b\0d"]}, "no token twice"),
        ({"pre": "glm4", "keys": {"tokenizer.ggml.add_bos_token": True}}, "bos to add"),
        ({"tokens": letters(5), "keys": {"tokenizer.ggml.add_eos_token": True}}, "eos to add"),
    ],
)
def test_what_ends_the_process_in_libllama_is_fatal(tmp_path: Path, how: dict[str, Any], rule: str) -> None:
    path = write(tmp_path / "m.gguf", **{"tokens": letters(300), **how})
    run: list[Any] = [sys.executable, "-c", CHILD, path]
    quick = {**os.environ, "GGML_NO_BACKTRACE": "1"}
    done = subprocess.run(run, capture_output=True, timeout=60, check=False, env=quick)
    assert done.returncode not in (0, 1), done.stderr
    report = check(path)
    assert rule in {failed.name for failed in report.failed() if failed.level == "fatal"}
    assert not report.usable


def byte_tokens(text: str, model: str) -> dict[str, Any]:
    """All bytes as SPM writes them, and one BYTE token more."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "t", text]
    kinds = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, NORMAL, BYTE]
    spm = {"model": "llama", "pre": None, "merges": None, "ids": {"bos": 1, "eos": 2}}
    return {"tokens": tokens, "types": kinds, **(spm if model == "llama" else {})}


@pytest.mark.parametrize("model", ["llama", "gpt2"])
@pytest.mark.parametrize(
    ("text", "level"),
    [
        *[("a", "fatal"), ("ab", "fatal"), ("é", "fatal"), ("a\0bcdef", "fatal")],
        *[("", "wrong"), ("abc", "wrong"), ("abcdef", "wrong"), ("<0x0a>", "wrong"), ("<0xZZ>", "wrong")],
    ],
)
def test_a_byte_token_that_names_no_byte_is_fatal_where_libllama_refuses_it_and_wrong_elsewhere(
    tmp_path: Path, model: str, text: str, level: str
) -> None:
    path = write(tmp_path / "m.gguf", **byte_tokens(text, model))
    assert (ask(path) is None) == (level == "fatal")
    (failed,) = [rule for rule in check(path).failed() if rule.name == "byte tokens"]
    assert (failed.level, failed.target[:1]) == (level, "1")
    assert "260" in failed.mend
    assert ("target: byte tokens" in {rule.name for rule in check(path, path).failed()}) == (level == "fatal")


def test_byte_tokens_as_they_should_be(tmp_path: Path) -> None:
    how = byte_tokens("u", "llama")
    path = write(tmp_path / "m.gguf", **{**how, "types": [*how["types"][:-1], NORMAL]})
    assert ask(path) is not None
    assert not [rule for rule in check(path).failed() if rule.name == "byte tokens"]


def test_a_sound_file_does_not_end_the_process(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", letters(300))
    subprocess.run([sys.executable, "-c", CHILD, path], capture_output=True, timeout=60, check=True)
    assert check(path).usable
