"""All drawing: what may reach a terminal, colours, progress, an answer, the statistics."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gguftools.cli import ui
from gguftools.session.results import Stats, Token

REPO = Path(__file__).resolve().parent.parent


def on_a_terminal(code: str, env: dict[str, str] | None = None) -> str:
    """What `code` writes when stdout and stderr are one terminal."""
    main, other = pty.openpty()
    done = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        stdout=other,
        stderr=other,
        cwd=REPO,
        env={"PATH": os.environ["PATH"], "TERM": "xterm-256color", **(env or {})},
    )
    os.close(other)
    chunks: list[bytes] = []
    try:
        while chunk := os.read(main, 65536):
            chunks.append(chunk)
    except OSError:  # the terminal is gone with the process
        pass
    os.close(main)
    assert done.wait() == 0
    return b"".join(chunks).decode().replace("\r\n", "\n")


def test_control_characters_never_reach_a_terminal_but_a_pipe_gets_the_bytes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    evil = "a\x1b]0;title\x07b\x9b31mc\r\x08d\te\n"
    assert ui.printable(evil) == "a]0;titleb31mcd\te\n"
    ui.write(evil)
    assert capsys.readouterr().out == evil
    code = (
        f"from gguftools.cli import ui; ui.write({evil!r}); ui.table([({evil!r}, 'x')]); ui.error({evil!r})"
    )
    assert "\x1b]0" not in (shown := on_a_terminal(code))
    assert "\x07" not in shown
    assert "\x9b" not in shown


def test_colours_appear_on_a_terminal_only_and_not_with_no_color() -> None:
    code = "from gguftools.cli import ui; ui.line('text', 'green'); ui.error('what', 'why', 'hint')"
    assert "\x1b[32mtext" in on_a_terminal(code)
    assert "\x1b" not in on_a_terminal(code, {"NO_COLOR": "1"})
    assert "\x1b" not in on_a_terminal(code, {"TERM": "dumb"})
    env = {**os.environ, "FORCE_COLOR": "1"}
    piped = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPO, env=env)
    assert "\x1b" not in piped.stdout + piped.stderr


def test_progress_is_drawn_on_a_terminal_only() -> None:
    code = (
        "from gguftools.cli import ui\nwith ui.progress() as p:\n"
        "    for i in range(11): p('target', i / 10); p('draft [x]', i / 10)\n"
    )
    shown = on_a_terminal(code)
    assert "target" in shown
    assert "draft [x]" in shown
    piped = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPO)
    assert piped.stdout + piped.stderr == ""


def test_text_between_bars_stands_alone_and_new_bars_follow_it() -> None:
    code = (
        "from gguftools.cli import ui\nwith ui.progress() as p:\n"
        "    p('read', 0.5)\n    ui.pause()\n    ui.note('a table', '')\n    p('write', 0.5)"
    )
    seen = on_a_terminal(code)
    before, after = seen.split("a table")
    assert "read" in before
    assert "write" not in before
    assert before.endswith("\x1b[2K") or before.rstrip("\r\n").endswith("\x1b[2K")  # the bar is erased
    assert "write" in after
    assert "read" not in after


def test_an_answer_s_text_is_on_stdout_and_its_reasoning_on_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer = ui.AnswerWriter()
    for token in (Token(1, "hm", thinking=True), Token(2, "Hel"), Token(3, ""), Token(4, "lo", True)):
        answer.token(token)
    answer.end()
    assert capsys.readouterr() == ("Hello\n", "hm\n")


def test_draft_tokens_are_green_on_a_terminal_when_asked_for() -> None:
    code = (
        "from gguftools.cli import ui; from gguftools.session.results import Token\n"
        "for green in (True, False):\n"
        "    a = ui.AnswerWriter(green); a.token(Token(1, 'own'))\n"
        "    a.token(Token(2, 'drafted', True)); a.end()"
    )
    assert on_a_terminal(code) == "own\x1b[32mdrafted\x1b[0m\nowndrafted\n"


def test_the_statistics_line_has_the_draft_s_figures_only_with_a_draft() -> None:
    plain: dict[str, Any] = {"prompt_n": 20, "prompt_ms": 100.0, "predicted_n": 40, "predicted_ms": 2000.0}
    assert ui.statistics(Stats(**plain)) == "40 tokens · 20.0 tok/s · prompt 200 tok/s"
    stats = Stats(**plain, draft_n=40, draft_n_accepted=30, verify_steps=10)
    assert ui.statistics(stats) == (
        "40 tokens · 20.0 tok/s · 75% of 40 drafted accepted · 4.00 tokens per step · prompt 200 tok/s"
    )


def test_a_narrow_terminal_gets_the_statistics_broken_between_two_figures() -> None:
    code = "from gguftools.cli import ui; ui.figures('60 tokens · 155.7 tok/s · 67% accepted · stopped')"
    shown = on_a_terminal(code, {"COLUMNS": "30", "NO_COLOR": "1"})
    assert shown.splitlines() == ["60 tokens · 155.7 tok/s", "67% accepted · stopped"]


def test_figures_say_that_nothing_was_drafted_only_where_a_draft_could_have_been() -> None:
    stats = Stats(predicted_n=10, predicted_ms=1000.0)
    assert ui.statistics(stats) == "10 tokens · 10.0 tok/s"
    idle = " · nothing drafted, since it would not pay"
    assert ui.statistics(stats, paced=True) == f"10 tokens · 10.0 tok/s{idle}"
    failed = Stats(predicted_n=10, predicted_ms=1000.0, draft_failed="no memory")
    assert ui.statistics(failed, paced=True) == "10 tokens · 10.0 tok/s"
