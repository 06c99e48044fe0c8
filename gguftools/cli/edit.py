"""`gguftools edit`: keys of a GGUF are changed; what changes is shown first."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import ui
from .kinds import File, name

if TYPE_CHECKING:
    from ..verbs.edit import Change, Plan

_WIDTH = 70  # of a value that is shown


@click.command(name="edit")
@click.argument("file", type=File())
@click.option("-o", "--out", type=File(), help="The GGUF to write; of a split model, the folder.")
@click.option("--in-place", is_flag=True, help="Replace FILE, of a split model its first shard alone.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and stop.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="KEY[I]=VALUE for one of a list; KEY:TYPE=VALUE for a new key, or a new type; may be given again.",
)
@click.option("--set-token", "tokens", multiple=True, metavar="I=TEXT", help="The text of token I.")
@click.option(
    "--token-type", "types", multiple=True, metavar="I=TYPE", help="NORMAL, CONTROL, USER_DEFINED, UNUSED …"
)
@click.option("--remove", multiple=True, metavar="KEY", help="Take a key away.")
@click.option("--copy", multiple=True, metavar="KEY", help="Take a key, with its type, from another file:")
@click.option("--from", "copy_from", type=name, metavar="OTHER", help="the GGUF that --copy reads.")
@click.option("--template", type=File(), help="The file of a new chat template; it is tried first.")
@click.option(
    "--align-to",
    type=name,
    metavar="TARGET",
    help="Give special tokens, ids and flags as TARGET has them, so that llama.cpp takes FILE as its draft.",
)
@click.option("--force", is_flag=True, help="Replace the output if it exists.")
@click.option("--offline", is_flag=True, help="Use only what is in the Hub's cache on this machine.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
def command(
    file: Path,
    out: Path | None,
    in_place: bool,
    dry_run: bool,
    settings: tuple[str, ...],
    tokens: tuple[str, ...],
    types: tuple[str, ...],
    remove: tuple[str, ...],
    copy: tuple[str, ...],
    copy_from: str | None,
    template: Path | None,
    align_to: str | None,
    force: bool,
    offline: bool,
    as_json: bool,
) -> None:
    """Change the metadata of FILE, a GGUF; its tensors stay as they are.

    Each change is shown before anything is written, and the result is judged as `gguftools check` does: an
    edit after which llama.cpp could not load the file is refused. A kill at any moment leaves the old file
    or the new one, whole.
    """
    if not any((settings, tokens, types, remove, copy, copy_from, template, align_to)):
        raise click.UsageError("no edit: give --set, --remove, --copy, --template or --align-to")
    if not dry_run and (out is None) == (not in_place):
        raise click.UsageError("give one of -o OUT, --in-place and --dry-run")
    from ..verbs.edit import Edited, commit, plan

    planned = plan(
        file,
        set=_pairs("--set", settings),
        set_token=_by_id("--set-token", tokens),
        token_type=_by_id("--token-type", types),
        remove=remove,
        copy=copy,
        copy_from=copy_from,
        template=template,
        align_to=align_to,
        offline=offline,
    )
    _show(planned, as_json)
    if dry_run:
        done = Edited(None, None, planned.changes, planned.warnings, planned.mended)
    else:
        with ui.progress() as progress:
            done = commit(planned, out, in_place=in_place, force=force, progress=progress)
    if as_json:
        ui.result_json(done.to_json())
    elif done.path is not None:
        ui.line(
            f"wrote {done.path}" + (", tensors shared with the old file" if done.data == "shared" else "")
        )
    elif planned.changes:
        ui.line("a dry run: nothing was written")


def _pairs(option: str, given: Iterable[str]) -> dict[str, str | None]:
    """KEY=VALUE; without = the value is None."""
    found: dict[str, str | None] = {}
    for text in given:
        key, equals, value = text.partition("=")
        key = key.strip()
        if key in found:
            raise click.UsageError(f"{option} {key} is given twice")
        found[key] = value if equals else None
    return found


def _by_id(option: str, given: Iterable[str]) -> dict[int, str]:
    found = {}
    for key, value in _pairs(option, given).items():
        if not re.fullmatch(r"\d{1,9}", key, re.ASCII) or value is None:
            raise click.UsageError(f"{option} {key}: write it as {option} 163586=VALUE")
        found[int(key)] = value
    return found


def _show(planned: Plan, as_json: bool) -> None:
    """The changes on stdout, warnings on stderr."""
    if not as_json:
        for change in planned.changes:
            ui.line(_line(_names(change)))
        if not planned.changes:
            ui.line("nothing to change")
        if planned.mended:
            ui.line(f"mends: {', '.join(planned.mended)}", "green")
    for warning in planned.warnings:
        ui.warn(warning)


def _line(change: Change) -> str:
    types = change.old_type, change.new_type
    both = None not in types and types[0] != types[1]
    old = "none" if change.old is None else _value(change.old) + (f" ({types[0]})" if both else "")
    if change.new is None:
        return f"  {change.key}: {old} → removed"
    typed = f" ({types[1]})" if both or change.old is None else ""
    return f"  {change.key}: {old} → {_value(change.new)}{typed}"


def _names(change: Change) -> Change:
    """Types of tokens by their names."""
    from ..vocab import TokenType

    if not change.key.startswith("tokenizer.ggml.token_type["):
        return change
    known = set(map(int, TokenType))
    old, new = (TokenType(i).name if i in known else i for i in (change.old, change.new))
    return replace(change, old=old, new=new)


def _value(value: Any) -> str:
    """As a person reads it, in one line; a long text is cut, with its length."""
    text = value if isinstance(value, str) and re.fullmatch(r"[\d,]+ \w+", value) else _as_json(value)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 20]}… ({len(text):,} characters)"


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
