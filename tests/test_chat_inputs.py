"""The chat: values that it refuses, files that it cannot write, and what it says about sampling."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripted import ScriptedStream, scripted

from gguftools.session.results import Result, Stats, Token


def test_set_and_draft_refuse_at_once_what_an_answer_would_refuse(
    capsys: pytest.CaptureFixture[str],
) -> None:
    chat, _ = scripted()
    for wrong, words in (
        ("/set temperature -4", "temperature=-4: must be a number from 0 to 100"),
        ("/set top_p nan", "a number from 0 to 1"),
        ("/draft 17", "a whole number from 0 to 16"),
    ):
        chat.take(wrong)
        assert words in capsys.readouterr().err
    assert chat.request == {}


def test_quotes_around_a_value_are_no_part_of_it() -> None:
    chat, _ = scripted()
    for text, stop in (('"."', "."), ("'a b'", "a b"), ('"', '"'), ('""', '""'), ("\\n", "\n")):
        chat.take(f"/set stop {text}")
        assert chat.request["stop"] == stop


def test_an_answer_that_was_drawn_shows_its_seed_and_once_where_the_sampling_comes_from(
    capsys: pytest.CaptureFixture[str],
) -> None:
    chat, _ = scripted()
    shown = []
    for seed, source in (
        (7, "temperature 0.8 (GGUF)"),
        (8, "temperature 0.8 (GGUF)"),
        (9, "temperature 1"),
    ):
        stream = ScriptedStream([Token(1, "yes")])
        stats = Stats(predicted_n=1, predicted_ms=100.0, seed=seed, sampling_source=source)
        result = Result("yes", "", (1,), "stop", stats)
        stream.result = lambda result=result: result  # type: ignore[method-assign, misc]
        chat.session.answers.append(stream)  # type: ignore[attr-defined]
        chat.take("?")
        shown.append(capsys.readouterr().err.splitlines())
    assert [len(lines) for lines in shown] == [2, 1, 2]
    assert all(f"seed {seed}" in lines[0] for seed, lines in zip((7, 8, 9), shown, strict=True))
    assert "temperature 1" in shown[2][1]


def test_a_goal_that_cannot_be_written_is_named_by_its_own_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chat, _ = scripted("yes")
    chat.take("hi")
    chat.take(f"/save {tmp_path / 'none' / 'x.json'}")
    err = capsys.readouterr().err
    assert f"error: {tmp_path / 'none' / 'x.json'} cannot be written" in err
    assert ".part" not in err
    mine = tmp_path / "mine.txt"
    mine.write_text("notes")
    for command, words in (
        (f"/save {mine}", "exists"),
        (f"/save {tmp_path}", "exists"),
        (f"/load {tmp_path}", "is a folder"),
        (f"/read {tmp_path}", "is a folder"),
    ):
        chat.take(command)
        assert words in capsys.readouterr().err
    assert mine.read_text() == "notes"
