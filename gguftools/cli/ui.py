"""All drawing: progress, tables, statistics, errors. stdout carries the result alone, stderr all else.

Colours and progress appear on a terminal only, and colours never with NO_COLOR. What comes out of a model or
a file is stripped of control characters before it reaches a terminal.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.console import Console

    from ..session.results import Stats, Token

SCHEMA = 1
Progress = Callable[[str, float], "bool | None"]
Channel = Literal["out", "err"]

# C0 without tab and newline, DEL, and C1: among them every way to start an escape sequence.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """`text` without control characters, except newline and tab: nothing in it can command a terminal."""
    return _CONTROL.sub("", text)


def is_terminal(channel: Channel = "out") -> bool:
    """Whether stdout (or stderr) is a terminal."""
    stream = sys.stdout if channel == "out" else sys.stderr
    return stream.isatty()


def write(text: str, style: str = "", channel: Channel = "out") -> None:
    """Writes `text` as it is, at once; on a terminal without control characters and in rich's `style`."""
    stream = sys.stdout if channel == "out" else sys.stderr
    if is_terminal(channel):
        text = _paint(printable(text), style, channel)
    try:
        stream.write(text)
    except UnicodeEncodeError:  # a terminal or pipe with a small character set
        encoding = stream.encoding or "ascii"
        stream.write(text.encode(encoding, "replace").decode(encoding))
    stream.flush()


def line(text: str = "", style: str = "", channel: Channel = "out") -> None:
    """`write` with a newline."""
    write(text + "\n", style, channel)


def note(text: str, style: str = "dim") -> None:
    """One line for the person at the terminal, on stderr."""
    line(text, style, "err")


def warn(text: str) -> None:
    """A warning on stderr."""
    note(f"warning: {text}", "yellow")


def error(what: str, why: str = "", hint: str = "") -> None:
    """What happened, why, and what to run: three lines on stderr."""
    write("error: ", "bold red", "err")
    note(what, "bold")
    if why:
        note(f"  {why}", "")
    if hint:
        note(f"  {hint}", "cyan")


def result_json(content: Mapping[str, Any]) -> None:
    """One JSON object on stdout, with the schema's number first."""
    text = json.dumps({"schema": SCHEMA, **content}, ensure_ascii=False)
    write(text.encode("utf-8", "replace").decode() + "\n")  # a file's name may hold any bytes


def table(
    rows: Iterable[Sequence[str]],
    columns: Sequence[str] = (),
    styles: Sequence[str] = (),
    channel: Channel = "out",
) -> None:
    """Rows in aligned columns: `columns` are headings, `styles` rich styles, one per column."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    rows = [[printable(cell) for cell in row] for row in rows]
    if not rows:
        return
    grid = Table(box=None, show_header=bool(columns), pad_edge=False, padding=(0, 2, 0, 0))
    for i, _ in enumerate(rows[0]):
        grid.add_column(columns[i] if columns else "", style=styles[i] if styles else "", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))
    console = _console(channel)
    with console.capture() as drawn:
        console.print(Padding(grid, (0, 0, 0, 2)))
    lines = drawn.get().splitlines()
    stream = sys.stdout if channel == "out" else sys.stderr
    stream.write("".join(text.rstrip() + "\n" for text in lines))


@contextmanager
def progress() -> Iterator[Progress]:
    """A callback `(stage, fraction)` that draws a bar per stage on stderr, and nothing off a terminal."""
    if not is_terminal("err"):
        yield lambda _stage, _fraction: None
        return
    from rich.progress import BarColumn, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    def bars() -> Bars:
        return Bars(
            TextColumn("{task.description}", style="dim"),
            BarColumn(bar_width=30),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            console=_console("err"),
            transient=True,
            redirect_stdout=False,  # it would send the result to stderr
        )

    tasks: dict[str, TaskID] = {}

    def show(stage: str, fraction: float) -> None:
        if not _shown:  # the first, or after a pause
            tasks.clear()
            _shown.append(bars())
            _shown[-1].start()
        if stage not in tasks:
            for task in tasks.values():
                _shown[-1].update(task, completed=1.0)
            tasks[stage] = _shown[-1].add_task(printable(stage).replace("[", r"\["), total=1.0)
        _shown[-1].update(tasks[stage], completed=fraction)

    try:
        yield show
    finally:
        pause()


_shown: list[Any] = []  # the bars on the screen: none or one


def pause() -> None:
    """Takes the bars away, so that text can be written; `progress` goes on with new ones below it."""
    while _shown:
        _shown.pop().stop()


@contextmanager
def unheard() -> Iterator[None]:
    """What is typed meanwhile does not appear on the terminal, nor does "^C"; the next prompt gets it."""
    if sys.platform == "win32" or not sys.stdin.isatty():
        yield
        return
    import termios

    before = termios.tcgetattr(sys.stdin)
    silent = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
    termios.tcsetattr(sys.stdin, termios.TCSANOW, silent)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, before)


class AnswerWriter:
    """Draws an answer as it comes: text on stdout, reasoning dim on stderr; `green` marks draft tokens."""

    def __init__(self, green: bool = False) -> None:
        self._green = green
        self._thinking = False
        self._last = "\n"

    def token(self, token: Token) -> None:
        if not token.text:
            return
        if self._thinking != token.thinking:
            self.end()
        self._thinking, self._last = token.thinking, token.text[-1]
        style = "green" if self._green and token.from_draft else ""
        if token.thinking:
            write(token.text, f"dim {style}", "err")
        else:
            write(token.text, style)

    def end(self) -> None:
        """Ends the last line."""
        if self._last != "\n":
            write("\n", channel="err" if self._thinking else "out")
            self._last = "\n"


def statistics(stats: Stats, *, paced: bool = False) -> str:
    """Tokens, speed, share of accepted draft tokens, tokens per step and the prompt's speed, in one line.

    paced: there is a draft model, and how much it drafts is found by what pays; maybe nothing.
    """
    parts = [f"{stats.predicted_n} tokens", f"{stats.tokens_per_second:.1f} tok/s"]
    if stats.draft_n:
        parts.append(f"{stats.acceptance_rate:.0%} of {stats.draft_n} drafted accepted")
        parts.append(f"{stats.mean_acceptance_length:.2f} tokens per step")
    elif paced and not stats.draft_failed:
        parts.append("nothing drafted, since it would not pay")
    if stats.prompt_per_second >= 1:  # a prompt that was in the cache has no speed
        parts.append(f"prompt {stats.prompt_per_second:.0f} tok/s")
    return " · ".join(parts)


def figures(text: str) -> None:
    """The line of `statistics` on stderr; a terminal that is narrower gets it broken between two figures."""
    width = shutil.get_terminal_size().columns if is_terminal("err") else 10_000
    note("\n".join(broken(text, width)))


def broken(text: str, width: int) -> list[str]:
    """A line of figures as lines shorter than `width`, broken between two figures."""
    lines = [""]
    for part in text.split(" · "):
        longer = f"{lines[-1]} · {part}" if lines[-1] else part
        if len(longer) < width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(part)
    return lines


def log_to_stderr(verbose: int) -> Callable[[], None]:
    """Sends the log to stderr: our warnings; with 1 our other lines too and llama.cpp's warnings; with 2 all.

    llama.cpp's complaints about a model or a grammar are in the error that they lead to. The result
    undoes all, for a program that calls `main` itself.
    """
    ours, llama = logging.getLogger("gguftools"), logging.getLogger("gguftools.llama")
    before = ours.level, llama.level, ours.propagate
    handler = _LogLines()
    ours.addHandler(handler)
    show_log(verbose)
    ours.propagate = False

    def undo() -> None:
        ours.removeHandler(handler)
        ours.setLevel(before[0])
        llama.setLevel(before[1])
        ours.propagate = before[2]

    return undo


def show_log(verbose: int) -> None:
    """How much of it: see `log_to_stderr`."""
    ours, llama = logging.getLogger("gguftools"), logging.getLogger("gguftools.llama")
    ours.setLevel((logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)])
    llama.setLevel((logging.CRITICAL, logging.WARNING, logging.DEBUG)[min(verbose, 2)])


class _LogLines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage().rstrip("\n")
        if record.levelno >= logging.WARNING:
            warn(text)
        else:
            note(text)


@cache
def _console(channel: Channel) -> Console:
    from rich.console import Console

    terminal = is_terminal(channel)
    plain = not terminal or os.environ.get("NO_COLOR", "") != ""
    return Console(
        file=sys.stdout if channel == "out" else sys.stderr,
        force_terminal=terminal,
        color_system=None if plain else "auto",
        width=None if terminal else 10_000,
        highlight=False,
        markup=False,
        emoji=False,
    )


def _paint(text: str, style: str, channel: Channel) -> str:
    if not style or not text.strip():
        return text
    from rich.color import ColorSystem
    from rich.style import Style

    names = {
        "standard": ColorSystem.STANDARD,
        "256": ColorSystem.EIGHT_BIT,
        "truecolor": ColorSystem.TRUECOLOR,
    }
    system = names.get(_console(channel).color_system or "")
    return Style.parse(style).render(text, color_system=system) if system else text
