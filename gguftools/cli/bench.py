"""`gguftools bench`: the same prompts with a draft and without, of models here or of a running server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import ui
from .bench_lines import brief_rows, tables
from .kinds import NUMBERS, File, name, within
from .options import KEYS_HELP, open_model, split_options

if TYPE_CHECKING:
    from ..verbs.bench.report import Report

Length = int | str

# Options that mean a model which is loaded here.
_OWN = (
    "draft",
    "draft_tokens",
    "sweep",
    "n_ctx",
    "gpu_layers",
    "draft_gpu_layers",
    "think",
    "offline",
    "pairs",
)


def length(text: str) -> Length:
    """A number of tokens to draft per step, or auto."""
    if text == "auto":
        return text
    try:
        return int(NUMBERS["draft_tokens"](text))
    except ValueError as error:
        raise click.BadParameter(f"{text} is neither auto nor {error}.") from None


def lengths(text: str) -> list[Length]:
    """Several of them, with commas between."""
    return [length(part.strip()) for part in text.split(",") if part.strip()]


@click.command(name="bench", epilog=KEYS_HELP)
@click.argument("target", type=name, required=False)
@click.option("--draft", type=name, metavar="DRAFT", help="The draft model: a file or a Hub name.")
@click.option(
    "--prompts",
    type=File(),
    help='A prompt a line, or JSON lines (*.jsonl): {"prompt": …}, {"turns": […]} or {"messages": […]}. '
    "Default: eight of our own, half code, half prose.",
)
@click.option(
    "--max-tokens",
    type=within("max_tokens"),
    metavar="N",
    help="Longest answer. Default: 128.",
)
@click.option(
    "--repeats",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Answer each prompt so often in each way; the median counts.",
)
@click.option(
    "--draft-tokens", type=length, metavar="N|auto", help="Tokens to draft per step: 0 to 16, or auto."
)
@click.option("--sweep", type=lengths, metavar="N,N,…", help="Compare these lengths too: 0,1,2,3,4,6,8.")
@click.option(
    "--server", metavar="URL", help="Measure a running llama-server, SGLang or vLLM instead of TARGET."
)
@click.option("--baseline", metavar="URL", help="The same target without a draft, to compare --server with.")
@click.option(
    "--plot", type=File(), metavar="FILE.png|.html", help="Draw the findings, in .html with the table."
)
@click.option("--force", is_flag=True, help="Replace the file of --plot if it exists.")
@click.option(
    "--n-ctx", type=within("n_ctx"), metavar="N", help="Size of the context. Default: what the prompts need."
)
@click.option("--gpu-layers", metavar="N|all", help="Layers of the target on the GPU.")
@click.option("--draft-gpu-layers", metavar="N|all", help="Layers of the draft on the GPU.")
@click.option("--temperature", type=within("temperature"), metavar="T", help="Default: 0, which is greedy.")
@click.option("--seed", type=within("seed"), metavar="N", help="The seed of every answer. Default: 0.")
@click.option("--think", type=click.Choice(["on", "off"]), help="The template's thinking switch.")
@click.option("--offline", is_flag=True, help="Never ask the Hub; use what is in its cache.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
@click.option("-o", "pairs", multiple=True, metavar="KEY=VALUE", help="Further options, listed below.")
def command(
    target: str | None,
    prompts: Path | None,
    server: str | None,
    baseline: str | None,
    repeats: int,
    sweep: list[Length] | None,
    plot: Path | None,
    force: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Measure how much DRAFT brings TARGET: tokens per second with and without it, and where the time goes.

    Each prompt is answered in both ways in turns, on contexts of its own, so that a machine that gets slower
    meanwhile is unfair to neither. Without --draft the speed of TARGET alone is measured. With --server
    nothing is loaded: the server's speed is measured from outside.
    """
    _check_usage(target, server, baseline, {**options, "sweep": sweep})
    if plot is not None:
        from ..verbs.bench import plot as drawing

        drawing.check(plot, force=force)
    shared = {"prompts": prompts, "repeats": repeats}
    if server is not None:
        report = _of_server(server, baseline, shared, options)
    else:
        assert target is not None
        report = _of_models(target, sweep, shared, options)
    if plot is not None:
        drawing.write(report, brief_rows(report), plot, force=force)
    if as_json:
        ui.result_json(report.to_json())
    else:
        _show(report)
    if plot is not None:
        ui.note(f"drawn in {plot}")


def _check_usage(
    target: str | None, server: str | None, baseline: str | None, options: Mapping[str, Any]
) -> None:
    if target is None and server is None:
        raise click.UsageError("nothing to measure: give TARGET, or --server URL")
    if baseline is not None and server is None:
        raise click.UsageError("--baseline is what --server is compared with: give that too")
    if server is not None and target is not None:
        raise click.UsageError("give TARGET or --server, not both")
    given = [key for key in _OWN if _was_given(key)]
    if server is not None and given:
        option = "-o" if given[0] == "pairs" else f"--{given[0].replace('_', '-')}"
        raise click.UsageError(f"{option} has no effect with --server: the server is measured as it runs")
    if server is None and options["draft"] is None and (options["sweep"] or options["draft_tokens"]):
        raise click.UsageError("--sweep and --draft-tokens need a draft: give --draft")


def _was_given(option: str) -> bool:
    source = click.get_current_context().get_parameter_source(option)
    return source is not click.core.ParameterSource.DEFAULT


def _of_server(
    server: str, baseline: str | None, shared: Mapping[str, Any], options: Mapping[str, Any]
) -> Report:
    from ..verbs.bench import bench_server

    names = ("max_tokens", "temperature", "seed")
    values = {key: options[key] for key in names if options[key] is not None}
    with ui.progress() as progress:
        return bench_server(server, baseline, progress=progress, **shared, **values)


def _of_models(
    target: str, sweep: list[Length] | None, shared: Mapping[str, Any], options: Mapping[str, Any]
) -> Report:
    from .. import hub
    from ..verbs.bench import bench
    from ..verbs.bench.runs import load_mode

    load, request = split_options(options)
    n_ctx = load.pop("n_ctx", None)
    with ui.progress() as progress:
        path = hub.download(target, progress=progress, offline=options["offline"])
    load.setdefault("load_mode", load_mode(path))
    with (
        open_model(str(path), options["draft"], load, offline=options["offline"]) as model,
        ui.progress() as progress,
    ):
        return bench(model, n_ctx=n_ctx, sweep=sweep or (), progress=progress, **{**request, **shared})


def _show(report: Report) -> None:
    ui.table(brief_rows(report))
    for columns, rows in tables(report):
        ui.line()
        ui.table(rows, columns)
    for text in report.notes:
        ui.note(text)
    for text in report.advice:
        ui.warn(text)
