"""`gguftools transplant`: a donor gets the vocabulary of a target."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import ui
from .kinds import File, name

if TYPE_CHECKING:
    from ..verbs.transplant import TransplantReport
    from ..verbs.transplant.special_map import Mapped


@click.command(name="transplant")
@click.argument("donor", type=name)
@click.argument("target", type=name)
@click.option("-o", "--out", type=File(), metavar="DRAFT.gguf", help="The GGUF to write.")
@click.option(
    "--hf-out", type=File(), metavar="DIR", help="The Hugging Face folder to write, to train it further."
)
@click.option(
    "--outtype",
    type=click.Choice(["f32", "f16", "bf16", "q8_0", "q4_0"]),
    default="q8_0",
    show_default=True,
    help="Type of the new rows; of all weights in a folder, which has bf16 for q8_0 and q4_0.",
)
@click.option("--layers", metavar="LIST", help="Layers of the donor to keep, as 0-13,22-23. Default: all.")
@click.option(
    "--context",
    type=click.IntRange(1, (1 << 31) - 1),
    metavar="N",
    help="Context length of the draft; longer than the donor's by YaRN.",
)
@click.option(
    "--map",
    "pairs",
    multiple=True,
    metavar="TOKEN=TEXT",
    help="What a special token of TARGET means as text of DONOR; may be given again.",
)
@click.option("--map-file", type=File(), help='The same from a JSON file: {"TOKEN": "TEXT"}.')
@click.option(
    "--calibrate",
    metavar="TEXT",
    help="Let the donor read text, for better scores: auto (text that comes with gguftools), donor (text "
    "that it writes first), or a file or folder; answers of TARGET are best.",
)
@click.option(
    "--calibrate-tokens",
    type=click.IntRange(1_000, 50_000),
    default=25_000,
    show_default=True,
    metavar="N",
    help="How many tokens of it.",
)
@click.option(
    "--evaluate",
    is_flag=True,
    help="Measure the draft on held-out text, beside the donor and the known rule.",
)
@click.option("--force", is_flag=True, help="Replace the output if it exists.")
@click.option("--offline", is_flag=True, help="Use only what is in the Hub's cache on this machine.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
def command(
    donor: str,
    target: str,
    out: Path | None,
    hf_out: Path | None,
    outtype: str,
    layers: str | None,
    context: int | None,
    pairs: tuple[str, ...],
    map_file: Path | None,
    calibrate: str | None,
    calibrate_tokens: int,
    evaluate: bool,
    force: bool,
    offline: bool,
    as_json: bool,
) -> None:
    """Give DONOR, a small model, the vocabulary of TARGET, so that llama.cpp takes it as TARGET's draft.

    DONOR is a GGUF, a Hugging Face folder, or org/repo on the Hub: of the Llama, Qwen2 or Qwen3 family. Of
    TARGET only the vocabulary is read: a GGUF, a folder, a tokenizer.json, a tiktoken.model, or a name on the
    Hub.

    Nothing is trained: each token of TARGET gets its rows from the DONOR's tokens with the same bytes. The
    report is written to DRAFT.gguf.transplant.json too.
    """
    if out is None and hf_out is None:
        raise click.UsageError("no output: give -o DRAFT.gguf, or --hf-out DIR")
    if calibrate is None and _was_given("calibrate_tokens"):
        raise click.UsageError("--calibrate-tokens says how much of --calibrate is read: give that too")
    from ..verbs.transplant import transplant

    own = _own_map(pairs, map_file)
    with ui.progress() as progress:
        report = transplant(
            donor,
            target,
            out,
            hf_out=hf_out,
            outtype=outtype,  # type: ignore[arg-type]
            layers=layers,
            context=context,
            map=own,
            calibrate=calibrate,
            calibrate_tokens=calibrate_tokens,
            evaluate=evaluate,
            force=force,
            offline=offline,
            progress=progress,
            on_map=_show_map,
        )
    if as_json:
        ui.result_json(report.to_json())
    else:
        _show(report)


def _was_given(option: str) -> bool:
    source = click.get_current_context().get_parameter_source(option)
    return source is not click.core.ParameterSource.DEFAULT


def _own_map(pairs: Sequence[str], file: Path | None) -> dict[str, str]:
    """Target token → donor text; what is given on the command line wins over the file."""
    found = _from_file(file) if file is not None else {}
    given: dict[str, str] = {}
    for pair in pairs:
        token, equals, text = pair.partition("=")  # a token that holds one goes into a file
        if not equals or not token:
            raise click.UsageError(f"--map {pair}: give it as TOKEN=TEXT")
        if given.setdefault(token, text) != text:
            raise click.UsageError(f"--map gives {token} two meanings: {given[token]} and {text}")
        found[token] = text
    return found


def _from_file(path: Path) -> dict[str, str]:
    from ..errors import FormatError
    from ..vocab.hf_tokenizer import json_object
    from .conversation import read_text

    try:
        found = json_object(path, read_text(path).removeprefix("\ufeff").encode())
    except FormatError as error:
        raise FormatError(path, error.offset, error.why, 'write {"TOKEN": "TEXT"}') from None
    for token, text in found.items():
        if not isinstance(text, str):
            raise FormatError(path, None, f"the text of {token!r} is no string", 'write {"TOKEN": "TEXT"}')
    return found


def _show_map(mapped: Sequence[Mapped]) -> None:
    """The special tokens' map on stderr, before it is used."""
    ui.pause()
    if not mapped:
        ui.note("No special token of the target has a counterpart in the donor.")
        return
    table = next((one.how.partition(":")[0] for one in mapped if one.how.startswith("table ")), "")
    source = f", by the {table} where nothing else is said:" if table else ":"
    ui.note(f"Special tokens{source}", "bold")
    rows = [
        (
            one.target_text,
            _visible(one.donor_text),
            one.how.removeprefix(f"{table}: ").removeprefix("table: "),
            "drafted" if one.draftable else "only read",
        )
        for one in mapped
    ]
    ui.table(rows, ("target", "donor", "role", "use"), channel="err")
    ui.note("")


def _visible(text: str) -> str:
    return text.replace("\n", "\\n").replace("\t", "\\t")


def _show(report: TransplantReport) -> None:
    rows = [("wrote", str(path)) for path in (report.out, report.hf_out) if path is not None]
    rows += [
        ("size", f"{report.nbytes / 1e6:,.1f} MB, {report.architecture}"),
        ("tokens", f"{report.n_tokens:,}, of which {report.draftable:,} can be drafted"),
        ("", _classes(report.classes, report.n_tokens)),
        ("ties", f"{report.ties:,}" + _tied(report.ties)),
    ]
    if report.coverage is not None:
        rows.append(("coverage", ", ".join(f"{share:.1%} {what}" for what, share in report.coverage.items())))
    if report.evaluation is not None:
        rows += _evaluated(report.evaluation)
    rows.append(("verdict", f"{report.verdict}, as a draft for {report.target}"))
    rows.append(("took", _effort(report)))
    ui.table(rows)
    if report.out is not None:
        ui.note(f"Next: gguftools chat TARGET.gguf --draft {shlex.quote(report.out)}", "cyan")
    elif report.hf_out is not None:
        ui.note(f"Next: train it, then gguftools convert {shlex.quote(report.hf_out)} -o DRAFT.gguf", "cyan")


def _tied(pairs: int) -> str:
    return f" pair{'s' * (pairs > 1)} of tokens that no text tells apart" if pairs else ""


_MEANING = {
    "exact": "one token of the donor",
    "pieces": "several",
    "special": "special",
    "reserved": "reserved",
    "unreachable": "unreachable",
}


def _classes(classes: Mapping[str, int], total: int) -> str:
    """All of them by kind; the share is that of the first kind alone."""
    share = f" byte for byte ({classes['exact'] / max(total, 1):.1%})"
    parts = [f"{n:,} {_MEANING[kind]}{share * (kind == 'exact')}" for kind, n in classes.items() if n]
    return ", ".join(parts)


def _evaluated(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A line for each kind of text: nats per byte of the donor, the draft and the known tool's rule."""
    rows = []
    for kind, one in found["kinds"].items():
        nats = one["nats_per_byte"]
        if None in nats.values():
            continue
        gap, plus = one["gap"]["value"], one["overlap_gain"]["value"]
        share = "" if gap is None else f"; {gap:.0%} of the gap"
        more = "" if plus is None else f"; overlap {plus:+.3f}"
        what = ", ".join(f"{side} {nats[side]:.3f}" for side in ("donor", "draft", "baseline"))
        rows.append((f"{kind}, nats/byte", what + share + more))
    ends = found["turn_ends"]
    if ends is not None and ends["donor_ends"]:
        rows.append(("turn ends", f"{ends['ends']['draft']} of the donor's {ends['donor_ends']}"))
    control = found["control"]["draft"]
    rows.append(("control tokens", f"{control} proposed in {found['positions']:,} places of plain text"))
    return rows


def _effort(report: TransplantReport) -> str:
    peak = "" if report.peak_bytes is None else f", {report.peak_bytes / 1e6:,.0f} MB of memory"
    return f"{report.seconds:.1f} s{peak}"
