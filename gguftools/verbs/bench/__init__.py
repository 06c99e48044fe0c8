"""How much a draft brings: the same prompts with and without it, in turns, and where the time goes.

Pure measuring: what is measured is Model's own sessions (`bench`) or a running server (`bench_server`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InputError
from ...session import limits, sampling
from . import measures
from . import prompts as prompt_files
from .advice import Evidence, advice
from .measures import Acceptance
from .prompts import Prompt
from .report import Report, Side
from .runs import Length, Local, Progress, Runs, interleaved, warm_up
from .same import compare_texts, compare_tokens

if TYPE_CHECKING:
    from ...session.model import Model

MAX_TOKENS = 128

Prompts = Sequence[Prompt | str] | str | Path | None


def bench(
    model: Model,
    *,
    prompts: Prompts = None,
    max_tokens: int = MAX_TOKENS,
    repeats: int = 1,
    draft_tokens: Length | None = None,
    sweep: Sequence[Length] = (),
    n_ctx: int | None = None,
    progress: Progress | None = None,
    **request: Any,
) -> Report:
    """Measures `model` with its draft and without, prompt by prompt in turns, on new contexts each time.

    prompts: a file of them (see prompts.read), or themselves; None: our own. draft_tokens: the length to
    measure, a number or "auto"; None: a session's default. sweep: further lengths, compared with that one.
    n_ctx None: what the longest prompt needs. request: what Session.chat takes; greedy when no temperature is
    given, and one seed for all. progress(stage, fraction).
    Raises InputError, NotFound, FormatError and what a session raises.
    """
    chosen: Length = "auto" if draft_tokens is None else draft_tokens
    _check(max_tokens, repeats, [chosen, *sweep])
    found = _prompts(prompts)
    request = {"temperature": 0, "seed": 0} | request
    values = model.sampling.using({k: v for k, v in request.items() if k in sampling.NAMES}, "argument")
    local = Local(model, found, max_tokens, n_ctx, **request)
    lengths: list[Length] = [0]
    if _drafts(model, local.n_ctx):
        lengths = list(dict.fromkeys([0, chosen, *sweep]))
    ways = [local.way(length) for length in lengths]
    warm_up(ways, max_tokens, progress)
    runs = interleaved(ways, len(found), max_tokens, repeats, progress)
    sides = [_side(model, length, one) for length, one in zip(lengths, runs, strict=True)]
    settings = {
        "max_tokens": max_tokens,
        "repeats": repeats,
        "n_ctx": local.n_ctx,
        "temperature": values.temperature,
    }
    report = Report(model.header.path.name, found, sides[0], None, settings=settings)
    if len(sides) == 1 or chosen == 0:
        return report
    scored = values.is_greedy and not values.has_penalties and request.get("grammar") is None
    return _with_draft(
        replace(report, draft=sides[1], sweep=_ordered(sides) if sweep else ()), model, local, scored
    )


def bench_server(
    url: str,
    baseline: str | None = None,
    *,
    prompts: Prompts = None,
    max_tokens: int = MAX_TOKENS,
    repeats: int = 1,
    temperature: float = 0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Report:
    """The same of a running llama-server, SGLang or vLLM; baseline: one with the same target and no draft.

    Speeds are the server's own where it tells them, else by our clock between the first and the last token.
    Raises ServerError, InputError, NotFound, FormatError.
    """
    from . import servers

    _check(max_tokens, repeats, ())
    limits.check("temperature", temperature)
    limits.check("seed", seed)
    found = _prompts(prompts)
    addresses = [url] if baseline is None else [baseline, url]
    asked = [servers.connect(address) for address in addresses]
    if len({server.address for server in asked}) < len(asked):
        raise InputError("--server and --baseline are the same server", "", "start one without a draft")
    ways = [server.way(found, temperature, seed) for server in asked]
    warm_up(ways, max_tokens, progress)
    before = asked[-1].counters()
    runs = interleaved(ways, len(found), max_tokens, repeats, progress)
    told, notes = asked[-1].acceptance(runs[-1], before)
    if len({server.model for server in asked}) > 1:
        notes.append(f"the servers name different models: {asked[0].model} and {asked[1].model}")
    plain = Side(asked[0].name, None, runs[0], Acceptance()) if baseline is not None else None
    draft = Side(asked[-1].name, None, runs[-1], told)
    settings = {"max_tokens": max_tokens, "repeats": repeats, "temperature": temperature}
    report = Report(asked[-1].model, found, plain, draft, settings=settings, notes=notes)
    if plain is None:
        return report
    matches = [compare_texts(ours[0], theirs[0]) for ours, theirs in zip(*runs, strict=True)]
    seen = Evidence(report.speedup, None)
    return replace(report, matches=matches, advice=advice(seen))


def _check(max_tokens: int, repeats: int, lengths: Sequence[Length]) -> None:
    limits.check("max_tokens", max_tokens)
    if max_tokens < 2:
        raise InputError(f"max_tokens is {max_tokens}", "a speed needs at least 2 tokens")
    if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 1:
        raise InputError(f"repeats is {repeats!r}", "it takes a whole number from 1")
    for length in lengths:
        if length != "auto":
            limits.check("draft_tokens", length)


def _prompts(given: Prompts) -> list[Prompt]:
    if given is None:
        return prompt_files.own()
    if isinstance(given, (str, Path)):
        return prompt_files.read(Path(given))
    if not given:
        raise InputError("there is no prompt to measure with")
    return [prompt_files.asked(one) if isinstance(one, str) else one for one in given]


def _drafts(model: Model, n_ctx: int) -> bool:
    with model.session(n_ctx=n_ctx) as session:
        return session.has_draft


def _side(model: Model, length: Length, runs: Runs) -> Side:
    name = model.draft.path.name if model.draft is not None and length != 0 else ""
    return Side(name, length, runs, measures.acceptance(runs))


def _ordered(sides: Sequence[Side]) -> list[Side]:
    """By length; "auto" comes last."""
    return sorted(sides, key=lambda side: (side.draft_tokens == "auto", side.draft_tokens))


def _with_draft(report: Report, model: Model, local: Local, scored: bool) -> Report:
    """Adds what only a draft's runs tell."""
    plain, draft = report.plain, report.draft
    assert plain is not None
    assert draft is not None
    sides = report.sweep or (plain, draft)
    rounds = measures.rounds_of(draft.runs)
    costs = measures.costs(one for side in sides for one in measures.rounds_of(side.runs))
    answers = [repeats[0] for repeats in plain.runs]
    matches = [
        compare_tokens(model, local.n_ctx, ids, ours, theirs[0], scored=scored)
        for ids, ours, theirs in zip(local.ids, answers, draft.runs, strict=True)
    ]
    seen = Evidence(
        report.speedup,
        draft.draft_tokens,
        costs,
        rounds,
        {side.draft_tokens: report.speedup_of(side).value for side in report.sweep if side.draft_tokens},
        [(ids, answer.tokens) for ids, answer in zip(local.ids, answers, strict=True)],
    )
    failures = [run.draft_failed for run in measures.each(draft.runs) if run.draft_failed]
    notes = [
        f"the draft was switched off in {failures.count(why)} answers: {why}"
        for why in dict.fromkeys(failures)
    ]
    return replace(
        report,
        notes=notes,
        matches=matches,
        costs=costs,
        draft_ms=measures.draft_ms_per_token(rounds),
        time_share=measures.time_share(draft.runs),
        length_counts=measures.length_counts(rounds),
        lengths_over_time=measures.lengths_over_time(draft.runs),
        sources=measures.by_source(rounds),
        advice=advice(seen),
    )
