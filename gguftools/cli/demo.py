"""`gguftools demo`: draws what verbs/demo.py does, step by step."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import ui
from .kinds import File

if TYPE_CHECKING:
    from ..verbs.demo import Answers


@click.command(name="demo")
@click.option(
    "--folder",
    type=File(file_okay=False),
    help="Where the files go, about 1.1 GB. Default: the user's cache folder.",
)
def command(folder: Path | None) -> None:
    """Show the whole way with SmolLM2 and Kimi-K2's vocabulary, offline.

    Exports SmolLM2 to a Hugging Face folder, converts that to F32, makes Kimi-K2's vocabulary a GGUF, checks
    a pair that fits and one that does not, and answers one prompt without and with the draft.
    """
    from ..verbs import demo
    from .report_lines import report_lines

    goal = folder or _cache()
    bars: list[ui.Progress] = []
    made: list[Path] = []
    steps = demo.demo(goal, progress=lambda stage, fraction: bars[-1](stage, fraction))
    ui.line(f"Files go to {goal}", "dim")
    while True:
        with ui.progress() as progress:
            bars.append(progress)
            step = next(steps, None)
        if step is None:
            break
        if isinstance(step, demo.Made):
            made.append(step.path)
            ui.line(f"{step.path.name}: {step.how}, {_megabytes(step.path)} MB\n")
        elif isinstance(step, demo.Answers):
            _show_answers(step)
        else:
            for text, style in report_lines(step):
                ui.line(text, style)
    _show_what_is_left(goal, made)


def _show_what_is_left(folder: Path, made: list[Path]) -> None:
    """The commands that go on with what demo made, with its paths, and how to be rid of it."""
    from .. import assets

    checkpoint, target = str(made[0]), str(made[1])
    draft = str(assets.smollm2())
    ui.line("\nTo go on:", "bold")
    for command in (
        ["check", target, draft],
        ["run", target, "--draft", draft, "Why is the sky blue?"],
        ["chat", target, "--draft", draft],
        ["convert", checkpoint, "-o", "draft.gguf", "--outtype", "q8_0"],
    ):
        ui.line(f"  gguftools {shlex.join(command)}", "cyan")
    ui.line(f"All files are in {folder}, about 1.1 GB: delete that folder when you are done.", "dim")


def _show_answers(answers: Answers) -> None:
    ui.line(answers.prompt, "bold")
    ui.line(answers.plain.text.strip())
    ui.line()
    rows = [
        ("without draft", ui.statistics(answers.plain.stats)),
        ("with draft", ui.statistics(answers.drafted.stats)),
    ]
    ui.table(rows)
    ui.line(f"\n  {answers.speedup:.2f} times as fast · same text: {_same(answers)}", "bold")
    ui.line("  The speeds vary with what else runs on the machine.\n", "dim")


def _same(answers: Answers) -> str:
    if answers.gap is None:
        return "yes"
    where = f"token {answers.n_same}, where the target's own scores differ by {answers.gap:.2g}"
    return f"yes, up to a near tie at {where}" if answers.is_same else f"no, from {where}"


def _cache() -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("gguftools", appauthor=False) / "demo"


def _megabytes(path: Path) -> int:
    files = path.iterdir() if path.is_dir() else [path]
    return round(sum(file.stat().st_size for file in files) / 1e6)
