"""The chat: its commands and files against a scripted session."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from scripted import ScriptedStream, scripted

from gguftools import errors
from gguftools.cli import chat as chat_verb
from gguftools.cli.commands import COMMANDS
from gguftools.cli.conversation import Conversation
from gguftools.session.results import Token

REPO = Path(__file__).resolve().parent.parent


def roles(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    return [message["role"] for message in messages]


def test_answers_go_to_stdout_and_the_statistics_line_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    chat, session = scripted("Hello there")
    chat.take("hi")
    out, err = capsys.readouterr()
    assert out == "Hello there\n"
    assert err == "2 tokens · 10.0 tok/s · 75% of 4 drafted accepted · 4.00 tokens per step\n"
    assert session.asked == [([{"role": "user", "content": "hi"}], {})]


def test_each_turn_sends_the_whole_conversation_with_the_system_message_first() -> None:
    chat, session = scripted("one", "two")
    chat.take("/system be brief")
    chat.take("a")
    chat.take("b")
    messages = session.asked[-1][0]
    assert roles(messages) == ["system", "user", "assistant", "user"]
    assert messages[0]["content"] == "be brief"
    chat.take("/system -")
    chat.take("c")
    assert roles(session.asked[-1][0])[0] == "user"


def test_reasoning_is_kept_apart_from_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    chat, _ = scripted(ScriptedStream([Token(1, "hm", thinking=True), Token(2, "yes")]))
    chat.take("?")
    out, err = capsys.readouterr()
    assert out == "yes\n"
    assert err.startswith("hm\n")
    answer = {"role": "assistant", "content": "yes", "reasoning_content": "hm"}
    assert chat.conversation.messages[-1] == answer


def test_a_failed_answer_takes_its_question_back_and_the_chat_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    chat, session = scripted(errors.DecodeError("too long", "why", "say less"), "fine")
    chat.take("/read " + str(REPO / "LICENSE"))
    chat.take("long")
    assert "error: too long\n  why\n  say less\n" in capsys.readouterr().err
    assert chat.conversation.messages == []
    assert chat.attached
    chat.take("short")
    assert roles(session.asked[-1][0]) == ["user"]


def test_a_conversation_that_no_longer_fits_says_how_to_go_on_and_drops_what_read_brought(
    capsys: pytest.CaptureFixture[str],
) -> None:
    full = errors.ContextFull("the prompt has 600 tokens, the context holds 512", "why", "for programs")
    chat, session = scripted("hello", full, full, "fine")
    chat.take("hi")
    chat.take("/read " + str(REPO / "LICENSE"))
    capsys.readouterr()
    chat.take("sum it up")
    assert "holds 512\n  why\n  what /read brought was dropped" in capsys.readouterr().err
    chat.take("still too long")
    assert "/clear begins a new conversation" in capsys.readouterr().err
    chat.take("short")
    assert [m["content"] for m in session.asked[-1][0]] == ["hi", "hello", "short"]


def test_ctrl_c_before_an_answer_begins_or_twice_in_it_ends_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stream = ScriptedStream([Token(0, "a "), Token(1, "b ")])
    stream.on_token = lambda: [os.kill(os.getpid(), signal.SIGINT) for _ in range(2)] and None
    chat, session = scripted("hello", stream, "fine")
    session.before = lambda: os.kill(os.getpid(), signal.SIGINT)
    chat.take("while the prompt is written")
    session.before = lambda: None
    chat.take("hi")
    chat.take("twice")
    chat.take("hm")
    assert [m["content"] for m in session.asked[-1][0]] == ["hi", "hello", "hm"]
    assert capsys.readouterr().err.count("interrupted") == 2


def test_ctrl_c_stops_an_answer_and_keeps_it(capsys: pytest.CaptureFixture[str]) -> None:
    tokens = [Token(i, f"{i} ") for i in range(10)]
    stream = ScriptedStream(tokens)
    stream.on_token = lambda: os.kill(os.getpid(), signal.SIGINT) if len(stream.given) == 3 else None
    chat, _ = scripted(stream)
    before = signal.getsignal(signal.SIGINT)
    chat.take("count")
    assert signal.getsignal(signal.SIGINT) is before
    assert chat.conversation.messages[-1]["content"] == "0 1 2 "
    assert capsys.readouterr().err.rstrip().endswith("stopped")


def test_regen_answers_the_last_message_again(capsys: pytest.CaptureFixture[str]) -> None:
    chat, session = scripted("first", "second", errors.DecodeError("broken"))
    chat.take("/regen")
    assert "no answer yet" in capsys.readouterr().err
    chat.take("hi")
    chat.take("/regen")
    assert session.asked[0][0] == session.asked[1][0]
    assert chat.conversation.messages[-1]["content"] == "second"
    chat.take("/regen")
    assert chat.conversation.messages[-1]["content"] == "second"


def test_clear_forgets_messages_and_attachments_but_not_the_system_message() -> None:
    chat, session = scripted()
    for text in ("/system be brief", "hi", "/read " + str(REPO / "LICENSE"), "/clear", "again"):
        chat.take(text)
    assert roles(session.asked[-1][0]) == ["system", "user"]
    assert session.asked[-1][0][1]["content"] == "again"


def test_read_puts_a_file_before_the_next_message_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a b.txt").write_text("content")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    chat, session = scripted()
    chat.take(f"/read {tmp_path / 'a b.txt'}")
    chat.take("sum up")
    assert session.asked[0][0][0]["content"] == "content\n\nsum up"
    chat.take("more")
    assert session.asked[1][0][-1]["content"] == "more"
    for wrong, words in (
        (tmp_path / "bytes", "not UTF-8"),
        (tmp_path / "none", "no such file"),
        ("", "which file"),
    ):
        chat.take(f"/read {wrong}")
        assert words in capsys.readouterr().err


def test_set_changes_shows_and_resets_options_and_lists_the_keys_on_a_wrong_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    chat, session = scripted(seed=7)
    chat.take("/set temperature 0.3")
    assert "seed = 7, temperature = 0.3" in capsys.readouterr().err
    chat.take("hi")
    assert session.asked[0][1] == {"seed": 7, "temperature": 0.3}
    chat.take("/set temperature")
    assert chat.request == {"seed": 7}
    for wrong, words in (
        ("warmth 1", "valid are: max_tokens"),
        ("top_k x", "whole number"),
        ("warmth", "valid are"),
    ):
        chat.take(f"/set {wrong}")
        assert words in capsys.readouterr().err


def test_draft_switches_lengths_and_colour(capsys: pytest.CaptureFixture[str]) -> None:
    chat, _ = scripted()
    for word, expected in (("off", 0), ("3", 3), ("on", None), ("auto", None)):
        chat.take(f"/draft {word}")
        assert chat.request.get("draft_tokens") == expected
    chat.take("/draft color")
    assert not chat.green
    assert capsys.readouterr().err.splitlines()[-1] == (
        "draft on, as many tokens per step as pay; accepted tokens without color"
    )
    chat.take("/draft sometimes")
    assert "whole number" in capsys.readouterr().err
    chat.session.has_draft = False
    chat.take("/draft on")
    assert "nothing drafts here" in capsys.readouterr().err


def test_stats_shows_the_last_answer_and_the_sum(capsys: pytest.CaptureFixture[str]) -> None:
    chat, _ = scripted("one two", "three")
    chat.take("/stats")
    assert "no answer yet" in capsys.readouterr().err
    chat.take("a")
    chat.take("b")
    chat.take("/stats")
    err = capsys.readouterr().err
    assert re.search(r"predicted_n +1\n", err)
    assert "\n2 answers: 3 tokens · 10.0 tok/s" in err


def test_help_lists_every_command_and_a_wrong_one_points_to_it(capsys: pytest.CaptureFixture[str]) -> None:
    chat, _ = scripted()
    chat.take("/help")
    shown = capsys.readouterr().err
    assert all(f"/{name}" in shown for name in COMMANDS)
    names = {"help", "clear", "regen", "system", "read", "set", "draft", "stats", "save", "load", "exit"}
    assert set(COMMANDS) == names
    chat.take("/sing")
    assert "/help lists them" in capsys.readouterr().err
    chat.take("/exit")
    assert chat.done


def test_a_saved_conversation_loads_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "talk.json"
    chat, _ = scripted("yes")
    for text in ("/system be brief", "hi", f"/save {file}"):
        chat.take(text)
    saved = json.loads(file.read_text("utf-8"))
    assert saved["schema"] == 1
    assert roles(saved["messages"]) == ["system", "user", "assistant"]
    chat.take("more")
    chat.take("/save")
    other, session = scripted()
    other.take(f"/load {file}")
    other.take("and then?")
    assert roles(session.asked[0][0]) == ["system", "user", "assistant", "user", "assistant", "user"]
    third, _ = scripted()
    third.take(f"/save {file}")
    assert "exists" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{",
        '{"schema": 2, "messages": []}',
        '{"schema": 1}',
        '{"schema": 1, "messages": [1]}',
        '{"schema": 1, "messages": [{"role": "user"}]}',
        '{"schema": 1, "messages": [{"role": "user", "content": 5}]}',
        '{"schema": 1, "messages": [{"role": "user", "content": "a", "extra": "b"}]}',
        '{"schema": 1, "messages": [{"role": "root", "content": "a"}]}',
        '{"schema": 1, "messages": [{"role": "assistant", "content": "a"}]}',
        '{"schema": 1, "messages": [{"role": "user", "content": "a"}]}',
        '{"schema": 1, "messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]}',
        "[" * 100_000,
    ],
)
def test_a_file_that_is_no_conversation_is_refused_and_changes_nothing(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wrong.json"
    file.write_text(content)
    with pytest.raises(errors.InputError, match="not a saved conversation"):
        Conversation.load(file)
    chat, _ = scripted("yes")
    chat.take("hi")
    chat.take(f"/load {file}")
    assert "load a file that /save wrote" in capsys.readouterr().err
    assert len(chat.conversation.messages) == 2


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["one"], "one"),
        (["one\\", "two\\", "three"], "one\ntwo\nthree"),
        (['"""', "a", "", "b", '"""'], "a\n\nb"),
        (["end\\"], "end"),
        (['"""', "a"], "a"),
    ],
)
def test_a_message_may_have_many_lines(lines: list[str], message: str) -> None:
    rest = iter(lines)

    def ask(_prompt: str) -> str:
        try:
            return next(rest)
        except StopIteration:
            raise EOFError from None

    assert chat_verb.read_message(ask) == message
    with pytest.raises(EOFError):
        chat_verb.read_message(ask)


def test_the_history_file_is_readable_by_its_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = chat_verb._history()
    assert path.is_file()
    if sys.platform == "linux":
        assert path.is_relative_to(tmp_path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
