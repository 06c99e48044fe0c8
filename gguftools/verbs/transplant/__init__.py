"""transplant: a small donor gets the vocabulary of a target and becomes a draft for it."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np

from ... import goal
from ...errors import InputError, Unsupported
from ...header.shards import local
from ...libllama import hardware
from ..check.side import Side
from ..export import foreign
from .align import Alignment, align
from .calibrate import Source, check_enough, open_source, uncounted
from .calibrate import calibrate as calibrated
from .donor import Donor, Progress
from .draft import Asked, Draft, Written, check_room, teller, write_folder, write_gguf
from .evaluate import evaluate as measure
from .evaluate.turns import end_of_turn
from .keys import MAX_CONTEXT, parse_layers
from .report import TransplantReport as TransplantReport
from .rows import MadeRows
from .special_map import Mapped, special_map
from .target import target_side
from .unit import Unit
from .write import OutType, needs_fold

log = logging.getLogger("gguftools.verbs.transplant")


def transplant(
    donor: str | Path,
    target: str | Path,
    out: str | Path | None = None,
    *,
    hf_out: str | Path | None = None,
    outtype: OutType = "q8_0",
    layers: str | None = None,
    context: int | None = None,
    map: Mapping[str, str] | None = None,
    calibrate: str | Path | None = None,
    calibrate_tokens: int = 25_000,
    evaluate: bool = False,
    force: bool = False,
    offline: bool = False,
    progress: Progress | None = None,
    on_map: Callable[[Sequence[Mapped]], None] | None = None,
) -> TransplantReport:
    """Writes `out`, a GGUF of the donor with the target's vocabulary, or `hf_out`, its Hugging Face folder.

    `donor` is a GGUF or a checkpoint (llama, qwen2, qwen3), `target` anything with a vocabulary (a GGUF, a
    folder, tokenizer.json, tiktoken.model); both may be names on the Hub, and of the target no weights are
    fetched. The donor's body stays as it is; `outtype` is the type of the new rows. In the folder all
    weights are of that type, BF16 for a block type. `layers` ("0-13,22-23") are those to keep; `context`
    changes the context length, by YaRN where it is longer than the donor's. `map` says what a special token
    of the target stands for in the donor's text; `on_map` is called with the whole map before it is used.

    `calibrate` lets the donor read `calibrate_tokens` of text, to score tokens of several pieces better:
    "auto" (our own text), "donor" (text that it writes first), or a file or folder, best of the target's
    answers. `evaluate` measures the draft beside the known tool's rule and the donor on held-out text.
    OUT.transplant.json, the report, is written beside the output.

    Raises NotFound, FormatError, InputError, Unsupported, OutputExists, DiskFull, HubError;
    IncompatibleDraft where `check` does not find the draft identical or compatible; LoadAborted when
    `progress` returns False. In each case nothing is left behind; of two outputs the GGUF is finished first.
    """
    began = time.perf_counter()
    _check_types(layers, context, map)
    text = open_source(calibrate, calibrate_tokens)
    outs = _goals(out, hf_out, outtype, force)
    side = target_side(target, offline=offline)
    options = {"outtype": outtype, "layers": layers, "context": context, "map": dict(map or {})}
    options |= {"calibrate": text.name if text else None, "calibrate_tokens": calibrate_tokens}
    with Donor.open(donor, outs[0], offline=offline, progress=progress) as source:
        _spare_the_inputs(outs, source, side, [local(donor), local(target)])
        asked = _asked(source, side, options, (out, hf_out), progress)
        draft = _draft(asked, text, hf_out is not None, on_map, progress)
        measured = _measured(draft, progress) if evaluate else None  # first: a stop leaves no draft behind
        made = list(_written(draft, out, hf_out, force, progress))
    names = {"out": out, "hf_out": hf_out, "donor": donor, "target": target}
    report = TransplantReport(
        **{what: None if name is None else str(name) for what, name in names.items()},  # type: ignore[arg-type]
        **_facts(draft),
        evaluation=measured,
        **asdict(made[0]),
        seconds=time.perf_counter() - began,
        peak_bytes=hardware.peak_memory(),
    )
    _save(report, _report_path(outs[0]))
    return report


def _check_types(layers: object, context: object, own: object) -> None:
    """Raises InputError for what a program may give where a command line cannot."""
    if not isinstance(layers, str | None):
        raise InputError(f"layers is {layers!r}", "it is text", 'give "0-13,22-23"')
    if not (context is None or (type(context) is int and 0 < context <= MAX_CONTEXT)):
        raise InputError(f"context is {context!r}", f"it takes a number from 1 to {MAX_CONTEXT:,}")
    texts = isinstance(own, Mapping) and all(isinstance(one, str) for pair in own.items() for one in pair)
    if own is not None and not texts:
        raise InputError("map is no mapping of texts", "it maps a token's text to the donor's text")


def _goals(out: str | Path | None, hf_out: str | Path | None, outtype: str, force: bool) -> list[Path]:
    """What will be written, checked before any work is done."""
    if outtype not in get_args(OutType):
        raise InputError(
            f"outtype {outtype!r} is unknown",
            f"it is one of {', '.join(get_args(OutType))}",
            "give --outtype one of these",
        )
    outs = [Path(path) for path in (out, hf_out) if path is not None]
    if not outs:
        raise InputError(
            "no output is named", "the draft needs a place", "give -o DRAFT.gguf, or --hf-out DIR"
        )
    if out is not None:
        goal.check_file(Path(out), force=force)
    if hf_out is not None:
        goal.check_folder(Path(hf_out), foreign, force=force)
    if len(outs) == 2 and outs[0].resolve() == outs[1].resolve():
        raise InputError(f"{out} cannot be both", "-o is a file, --hf-out a folder", "give two names")
    goal.check_file(_report_path(outs[0]), force=True)
    return outs


def _written(
    draft: Draft, out: str | Path | None, hf_out: str | Path | None, force: bool, progress: Progress | None
) -> Iterator[Written]:
    if out is not None:
        yield write_gguf(draft, Path(out), force=force, progress=progress)
    if hf_out is not None:
        yield write_folder(draft, Path(hf_out), force=force, progress=progress)


def _save(report: TransplantReport, path: Path) -> None:
    text = json.dumps(report.to_json(), indent=1, ensure_ascii=False)
    goal.put(path, text.encode("utf-8", "replace") + b"\n")


def _report_path(out: Path) -> Path:
    return out.with_name(f"{out.name}.transplant.json")


def _spare_the_inputs(outs: Sequence[Path], donor: Donor, target: Side, given: Sequence[Path]) -> None:
    """Raises InputError where an output would take the place of a file that is read."""
    files = [*donor.header.files, *(target.header.files if target.header else ()), *given]
    for path in {file.resolve() for file in files if file.exists()}:
        for out in outs:
            place = out.resolve()
            inside = path in place.parents and place.exists() and place.suffix != ".gguf"
            if place == path or place in path.parents or inside:
                raise InputError(
                    f"{out} holds what is read", f"it is needed: {path}", "choose another output"
                )


def _asked(
    donor: Donor,
    target: Side,
    options: Mapping[str, Any],
    goals: tuple[str | Path | None, str | Path | None],
    progress: Progress | None,
) -> Asked:
    """The draft to come, for which there is room at its goals: -o and --hf-out."""
    layers = parse_layers(options["layers"], donor.n_layer)
    digests = _digests(donor, target, options, teller(progress, "read"))
    asked = Asked(donor, target, layers, options, digests)
    check_room(asked, *(None if path is None else Path(path) for path in goals))
    return asked


def _draft(
    asked: Asked,
    text: Source | None,
    folder: bool,
    on_map: Callable[[Sequence[Mapped]], None] | None,
    progress: Progress | None,
) -> Draft:
    """Everything that is decided before the first byte is written."""
    donor, target = asked.donor, asked.target
    tell = teller(progress, "align")
    tell(0.0)
    if donor.vocab.digest_tokens == target.vocab.digest_tokens:
        log.warning("%s has the target's vocabulary already: it can draft as it is", donor.shown)
    check_enough(donor, text)
    mapped = special_map(target.vocab, donor.vocab, asked.options["map"])
    if on_map is not None:
        on_map(mapped)
    alignment = align(target.vocab, donor.vocab, {one.target: one for one in mapped})
    end = end_of_turn(target.vocab)
    if end is not None and end < target.vocab.n_tokens and not alignment.draftable[end]:
        text_of = target.vocab.texts[end].decode("utf-8", "replace")
        log.warning(
            "the end of a turn, %s, can never be drafted: nothing of the donor's stands for it", text_of
        )
    tell(1.0)
    made = _made(donor, target, alignment, text, folder or needs_fold(donor), progress)
    given = donor, target, asked.layers, asked.options, asked.digests
    return Draft(*given, tuple(mapped), alignment, *made)


def _made(
    donor: Donor,
    target: Side,
    alignment: Alignment,
    source: Source | None,
    fold: bool,
    progress: Progress | None,
) -> tuple[MadeRows, Unit | None, dict[str, float] | None]:
    """Rows, Unit and coverage. Where a vocabulary cannot encode, shares go by the order of ids."""
    stage = partial(teller, progress)
    try:
        found = calibrated(donor, target.vocab, alignment, source, fold=fold, tell=stage, progress=progress)
    except Unsupported as error:
        if source is not None:
            raise
        log.warning("no text was counted: %s (%s)", error.what, error.why)
        found = uncounted(donor, target.vocab, alignment, fold=fold, tell=stage)
    return found.rows, found.unit, found.coverage


def _measured(draft: Draft, progress: Progress | None) -> dict[str, Any]:
    """What `evaluate` finds, as plain values."""
    found = measure(
        draft.donor, draft.target.vocab, draft.alignment, draft.mapped, draft.rows, progress=progress
    )
    return found.to_json()


def _digests(
    donor: Donor, target: Side, options: Mapping[str, Any], tell: Callable[[float], None]
) -> dict[str, str]:
    """sha256 of the donor's file (a checkpoint's GGUF), of the target's tokens and merges, and of all."""
    parts = {
        "donor": donor.digest(tell),
        "target_tokens": target.vocab.digest_tokens,
        "target_merges": target.vocab.digest_merges,
    }
    text = "\n".join([*parts.values(), json.dumps(options, sort_keys=True)])
    return {**parts, "all": hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()}


def _facts(draft: Draft) -> dict[str, Any]:
    """What the report says of the draft itself."""
    return {
        "n_tokens": draft.target.vocab.n_tokens,
        "classes": draft.alignment.counts(),
        "draftable": int(np.count_nonzero(draft.alignment.draftable)),
        "coverage": draft.coverage,
        "special_map": draft.mapped,
        "options": draft.options,
        "digests": draft.digests,
    }
