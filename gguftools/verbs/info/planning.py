"""A plan for a target and maybe a draft: what is chosen, why, what limits it, and the commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from ...errors import GGUFToolsError
from ...header import Header
from ...session.settings import beta_fast
from ..check import check
from .arrange import Choice, Models
from .arrange import places as placed
from .commands import HEADS, Facts, commands
from .placement import Found, find, least, room_for_ctx, same_ctx
from .read import Source
from .reasons import limits, too_big, why
from .results import Place, Plan
from .rooms import Rooms
from .shape import Shape, shape_of

DRAFT_WINDOW = 4096  # gguftools' default, see docs/defaults.md
_USEFUL = 4  # a draft that reads more than a quarter of what the target reads hardly pays


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two models. file: its first, for programs that take no names on the Hub."""

    name: str
    header: Header
    shape: Shape
    file: str
    repo: str


def side(source: Source) -> Side:
    """Raises Unsupported and FormatError as shape_of does."""
    first = source.files[0].name
    file = PurePosixPath(first).name if source.repo else first
    return Side(source.name, source.header, shape_of(source.header), file, source.repo)


def make(
    target: Side,
    draft: Side | None,
    rooms: Rooms,
    *,
    n_ctx: int | None = None,
    types: tuple[str, str] = ("f16", "f16"),
    draft_types: tuple[str, str] = ("f16", "f16"),
    draft_n_ctx: int | None = None,
) -> Plan:
    """The Plan; where nothing fits, its `places` show the nearest one, and main memory lacks `missing`."""
    window = draft_n_ctx or DRAFT_WINDOW
    if draft is not None and not draft_n_ctx:
        window = min(window, draft.shape.n_ctx_train or window)
    models = Models(
        target.shape, draft.shape if draft else None, types, draft_types, window, draft is not None
    )
    found = find(models, rooms, n_ctx)
    missing = 0
    if found is None:
        found, missing = least(models, rooms, n_ctx)
        missing = max(missing, 1)
    choice = found.choice
    places = placed(models, choice, rooms)
    verdict, notes = _draft_notes(target, draft)
    room = choice.n_ctx if missing else room_for_ctx(models, rooms, choice)
    reasons = (*notes, *why(models, found, rooms, places))
    limiting = tuple(limits(models, found, rooms, places, room, missing, n_ctx))
    facts = _facts(target, draft, models, found, rooms, places, draft_n_ctx)
    if verdict == "alignable":
        facts = replace(facts, refused=True)
    on_gpu = None if choice.draft_gpu is None else rooms.gpus[choice.draft_gpu].name
    return Plan(
        not missing,
        found.level,
        choice.n_ctx,
        room,
        choice.gpu_layers,
        len(target.shape.layers),
        choice.n_cpu_moe,
        _split(places, choice),
        draft.name if draft else None,
        (on_gpu or rooms.main.name) if draft else None,
        choice.draft_n_ctx if draft else 0,
        verdict,
        places,
        missing,
        reasons,
        limiting,
        () if missing or verdict == "incompatible" else commands(facts),
    )


def _split(places: Sequence[Place], choice: Choice) -> tuple[int, ...]:
    """Layers of each GPU, where there are several."""
    layers = tuple(place.layers for place in places[:-1])
    return layers if len(layers) > 1 and choice.gpu_layers else ()


def _facts(
    target: Side,
    draft: Side | None,
    models: Models,
    found: Found,
    rooms: Rooms,
    places: Sequence[Place],
    asked: int | None,
) -> Facts:
    choice = found.choice
    yarn = beta_fast(target.header)
    return Facts(
        target.name,
        draft.name if draft else None,
        target.file,
        draft.file if draft else "",
        _to_fetch(target, draft),
        draft.shape.architecture if draft else "",
        choice.n_ctx,
        same_ctx(models, rooms, choice) if draft else choice.n_ctx,
        choice.draft_n_ctx,
        asked,
        len(rooms.gpus),
        choice.gpu_layers,
        len(target.shape.layers),
        choice.n_cpu_moe,
        _split(places, choice),
        "" if choice.draft_gpu is None else rooms.gpus[choice.draft_gpu].device,
        models.types,
        models.draft_types,
        None if yarn == 32 else yarn,
    )


def _to_fetch(target: Side, draft: Side | None) -> str:
    """The files that other programs want on this machine."""
    there = [side for side in (target, draft) if side is not None and side.repo]
    return " and ".join(f"{side.file} of {side.repo}" for side in there)


def _draft_notes(target: Side, draft: Side | None) -> tuple[str | None, tuple[str, ...]]:
    """check's verdict on the pair, and what is to be said of the draft."""
    if draft is None:
        return None, ()
    try:
        verdict = check(target.header, draft.header, quick=True).verdict
    except GGUFToolsError as error:
        return None, (f"The pair could not be checked: {error.what}.",)
    run = f"gguftools check {shlex.quote(target.name)} {shlex.quote(draft.name)}"
    return verdict, tuple(_draft_words(target.shape, draft.shape, verdict, run))


def _draft_words(target: Shape, draft: Shape, verdict: str, run: str) -> Iterator[str]:
    if verdict == "incompatible":
        yield f"This draft cannot serve the target: {run} says why, and what would."
    elif verdict == "alignable":
        yield f"gguftools runs this pair, llama.cpp alone refuses it: {run} says what to change."
    if draft.architecture not in HEADS and draft.active * _USEFUL > target.active:
        yield too_big(target, draft)
