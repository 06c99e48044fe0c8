"""`gguftools demo`: draws what verbs/demo.py does, step by step."""

from __future__ import annotations

import shlex
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import ui
from .kinds import File

if TYPE_CHECKING:
    from ..session.results import Result
    from ..verbs.demo import Answers, Speech, Step
    from ..verbs.transplant import TransplantReport

# Of each step, shown before it begins; "" goes on with the one before.
_TITLES = (
    "SmolLM2 as a Hugging Face folder, and that as a GGUF in 32 bits",
    "",
    "check: does SmolLM2 in 4 bits fit it as a draft?",
    "One prompt, without and with the draft",
    "Kimi-K2's vocabulary as a GGUF",
    "check: does SmolLM2 fit Kimi-K2 as a draft?",
    "transplant: SmolLM2 gets Kimi-K2's vocabulary",
    "check: does it fit now?",
    "It writes by itself, in Kimi-K2's tokens",
)
_WIDTH = 78
_SHOWN = 8  # tokens with their ids


@click.command(name="demo")
@click.option(
    "--folder",
    type=File(file_okay=False),
    help="Where the files go, about 1.5 GB. Default: the user's cache folder.",
)
def command(folder: Path | None) -> None:
    """Show the whole way with SmolLM2 and Kimi-K2's vocabulary, offline.

    Exports SmolLM2 to a Hugging Face folder, converts that to F32, and answers one prompt without and with
    SmolLM2 in 4 bits as the draft. Then gives SmolLM2 Kimi-K2's vocabulary, checks that llama.cpp would take
    it as Kimi-K2's draft, and lets it write in Kimi-K2's tokens.
    """
    from ..verbs import demo
    from ..verbs.transplant import TransplantReport

    goal = folder or _cache()
    bars: list[ui.Progress] = []
    made: list[Path] = []
    steps = demo.demo(goal, progress=lambda stage, fraction: bars[-1](stage, fraction))
    ui.line(f"Files go to {goal}", "dim")
    number = 0
    for title in _TITLES:
        if title:
            number += 1
            ui.line(f"\n{number}  {title}", "bold")
        with ui.progress() as progress:
            bars.append(progress)
            step = next(steps)
        if isinstance(step, demo.Made):
            made.append(step.path)
        elif isinstance(step, TransplantReport):
            made.append(Path(step.out or ""))
        _show(step)
    _show_what_is_left(goal, made)


def _show(step: Step) -> None:
    from ..verbs import demo
    from ..verbs.transplant import TransplantReport
    from .report_lines import brief_lines

    if isinstance(step, demo.Made):
        _wrapped(f"{step.path.name}, {_megabytes(step.path)} MB: {step.how}")
    elif isinstance(step, demo.Answers):
        _show_answers(step)
    elif isinstance(step, TransplantReport):
        _show_transplant(step)
    elif isinstance(step, demo.Speech):
        _show_speech(step)
    else:
        for text, style in brief_lines(step, _WIDTH - 3):
            ui.line(f"   {text}", style)


def _show_what_is_left(folder: Path, made: list[Path]) -> None:
    """The commands that go on with what demo made, in its folder, and how to be rid of it."""
    from ..verbs import demo

    checkpoint, target, kimi, kimi_draft = (path.name for path in made)
    draft = demo.SMALL
    ui.line("\nTo go on:", "bold")
    ui.line(f"  cd {shlex.quote(str(folder))}", "cyan")
    for command in (
        ["check", target, draft],
        ["run", target, "--draft", draft, "What is rain?"],
        ["chat", target, "--draft", draft],
        ["convert", checkpoint, "-o", "draft.gguf", "--outtype", "q8_0"],
        ["chat", kimi_draft],
        ["transplant", draft, kimi, "-o", "kimi.gguf"],
    ):
        ui.line(f"  gguftools {shlex.join(command)}", "cyan")
    ui.line("With a GGUF of Kimi-K2 itself (better donors: docs/transplant.md):")
    ui.line(f"  gguftools chat KIMI-K2.gguf --draft {shlex.quote(kimi_draft)}", "cyan")
    ui.line("All files are in that folder, about 1.5 GB: delete it when you are done.", "dim")


def _show_answers(answers: Answers) -> None:
    _wrapped(answers.prompt, "cyan")
    _wrapped(_text(answers.plain))
    ui.line()
    for name, result in (("without draft", answers.plain), ("with draft", answers.drafted)):
        for line in ui.broken(ui.statistics(result.stats), _WIDTH - 18):
            ui.line(f"   {name:<15}{line}")
            name = ""
    ui.line(f"\n   {answers.speedup:.2f} times as fast · same text: {_same(answers)}", "bold")
    ui.line("   The speeds vary with what else runs on the machine.", "dim")


def _same(answers: Answers) -> str:
    if answers.gap is None:
        return "yes"
    where = f"token {answers.n_same}, where the target's own scores differ by {answers.gap:.2g}"
    return f"yes, up to a near tie at {where}" if answers.is_same else f"no, from {where}"


def _show_transplant(report: TransplantReport) -> None:
    """Each token of the target is in one line of the table."""
    spelled = report.classes["exact"], report.classes["pieces"]  # all these may be drafted
    out = Path(report.out or "")
    ui.line(f"   {out.name}, {report.nbytes / 1e6:.0f} MB, in {report.seconds:.1f} s")
    ui.line(f"   of Kimi-K2's {report.n_tokens:,} tokens:")
    ui.table(
        [
            (f" {spelled[0]:>7,}", "are one token of SmolLM2, byte for byte"),
            (f" {spelled[1]:>7,}", "are spelled with several"),
            (f" {report.draftable - sum(spelled):>7,}", "are special and drafted: they end a turn or a text"),
            (
                f" {report.n_tokens - report.draftable:>7,}",
                "are never drafted: reserved, only read, or bytes that it lacks",
            ),
        ]
    )


def _show_speech(speech: Speech) -> None:
    _wrapped(speech.prompt, "cyan")
    _wrapped(_text(speech.result))
    ids = [f"{piece.strip()} {i}" for piece, i in zip(speech.pieces, speech.result.tokens, strict=True)]
    more = [] if len(ids) <= _SHOWN else ["…", ids[-1]]
    ui.line()
    _figures(f"its tokens: {' · '.join([*ids[:_SHOWN], *more])}")
    _figures(ui.statistics(speech.result.stats))
    ui.line()
    _wrapped(
        "The words are those of a model with 135 million parameters, mistakes included. As a draft it only "
        "proposes them: what Kimi-K2 would not write itself is dropped."
    )


def _text(result: Result) -> str:
    """The answer, with a mark where it was cut."""
    return result.text.strip() + (" …" if result.finish_reason == "length" else "")


def _figures(text: str) -> None:
    for line in ui.broken(text, _WIDTH - 3):
        ui.line(f"   {line}", "dim")


def _wrapped(text: str, style: str = "") -> None:
    for paragraph in text.splitlines():
        lines = textwrap.wrap(paragraph, _WIDTH - 3, break_on_hyphens=False)
        for line in lines or [""]:
            ui.line(f"   {line}".rstrip(), style)


def _cache() -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("gguftools", appauthor=False) / "demo"


def _megabytes(path: Path) -> int:
    files = path.iterdir() if path.is_dir() else [path]
    return round(sum(file.stat().st_size for file in files) / 1e6)
