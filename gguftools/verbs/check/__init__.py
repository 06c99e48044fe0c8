"""check: whether two models can work as target and draft, and whether one file's metadata is right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import overload

from ...errors import FormatError, GGUFToolsError, InputError, NotFound
from ...header import Header
from ...vocab import Vocab
from . import advice as _advice
from .exchange import exchange, ordinary_agree, shared_fraction
from .full import Progress, recorded
from .full import rules as recorded_rules
from .heads import head_rules
from .loads import load_rules
from .metadata import metadata_rules
from .pair import Pair, llama_rules, missed_rules, readable
from .report import Difference as Difference
from .report import Exchange as Exchange
from .report import Report as Report
from .report import Rule as Rule
from .report import Verdict
from .side import Side, load

Source = str | Path | Vocab | Header | Side
SHOWN = 10


@overload
def check(
    target: Source,
    draft: Source | None = None,
    /,
    *,
    quick: bool = False,
    offline: bool = False,
    full: bool = False,
    repo: str | None = None,
    progress: Progress | None = None,
) -> Report: ...
@overload
def check(
    target: Source,
    draft: Source,
    second: Source,
    /,
    *drafts: Source,
    quick: bool = False,
    offline: bool = False,
) -> list[Report]: ...
def check(
    target: Source,
    /,
    *drafts: Source | None,
    quick: bool = False,
    offline: bool = False,
    full: bool = False,
    repo: str | None = None,
    progress: Progress | None = None,
) -> Report | list[Report]:
    """The Report of one pair, of one file (without a draft), or of several drafts, best first.

    Each may be a GGUF, a Hugging Face folder, a name on the Hub (`org/repo[:file or quant]`, of which headers
    alone are read), or a Vocab or Header read before. `quick` leaves out chat templates and the advice about
    single files; `offline` takes what names mean on the Hub from the cache.
    `full`, of one file: every shard's SHA-256 is compared with the Hub's record, of a name in the cache or of
    a local file from `repo` (org/repo); `progress("hash", fraction)` may return False: LoadAborted.
    Raises NotFound, FormatError, InputError, Unsupported or HubError for what cannot be read; among several
    drafts such a one is incompatible, and the others are ranked.
    """
    given = [draft for draft in drafts if draft is not None]
    if full or repo is not None:
        return _check_full(target, given, full, repo, offline, progress)
    side = load(target, offline=offline)
    if not given:
        return _check_file(side)
    if len(given) == 1:
        return _check_pair(side, load(given[0], offline=offline), quick)
    reports = []
    for draft in given:
        try:
            reports.append(_check_pair(side, load(draft, offline=offline), quick))
        except (GGUFToolsError, OSError) as error:
            reports.append(_unreadable(side, draft, error))
    return sorted(reports, key=Report.rank)


def _unreadable(target: Side, draft: Source, error: Exception) -> Report:
    """The Report about one of several drafts that cannot be read."""
    ours = error if isinstance(error, GGUFToolsError) else GGUFToolsError(str(error))
    name = draft if isinstance(draft, str | Path) else getattr(draft, "path", "vocabulary")
    rule = Rule("readable", "gguftools", False, "yes", ours.what, "fatal", ours.why, ours.hint)
    return Report(
        "incompatible", target.name, str(name), (rule,), (), 0, 0.0, (ours.hint,) if ours.hint else ()
    )


def _check_full(
    target: Source,
    drafts: Sequence[Source],
    full: bool,
    repo: str | None,
    offline: bool,
    progress: Progress | None,
) -> Report:
    """A file's Report with its bytes judged too; one that cannot be read at all has them judged alone."""
    if drafts or not full or not isinstance(target, str | Path):
        why = "bytes are compared of one model, a path or a name on the Hub"
        raise InputError("full and repo are about one file", why, "give one file, with --full")
    files = recorded(target, repo, offline=offline)
    bytes_rules = tuple(recorded_rules(files, progress))
    try:
        return _check_file(load(target, offline=offline), bytes_rules)
    except (FormatError, NotFound) as error:
        wrong = Rule("readable", "gguftools", False, error.what, None, "fatal", error.why, error.hint)
        rules = (wrong, *bytes_rules)
        return Report("faulty", str(target), None, rules, (), 0, 1.0, _advice.for_file(rules))


def _check_file(side: Side, more: tuple[Rule, ...] = ()) -> Report:
    rules = (*load_rules(side, side.vocab.texts.tolist()), *metadata_rules(side), *more)
    faulty = any(not rule.passed and rule.level != "note" for rule in rules)
    verdict: Verdict = "faulty" if faulty else "ok"
    return Report(verdict, side.name, None, rules, (), 0, 1.0, _advice.for_file(rules, side))


def _check_pair(target: Side, draft: Side, quick: bool) -> Report:
    pair = Pair.of(target, draft)
    rules = (
        *llama_rules(pair),
        *missed_rules(pair, quick=quick),
        *_both_load(pair),
        *head_rules(target, draft),
    )
    verdict = _verdict(pair, rules)
    if verdict == "incompatible":  # no keys mend it
        rules = tuple(replace(r, mend="") if r.source == "llama.cpp" else r for r in rules)
    shared = shared_fraction(pair)
    maps, unshared = (None, ()) if verdict == "incompatible" else exchange(pair)
    count, first = _differences(pair)
    advice = _advice.for_pair(verdict, pair, rules, shared, quick)
    return Report(verdict, target.name, draft.name, rules, first, count, shared, advice, unshared, maps)


def _both_load(pair: Pair) -> Iterator[Rule]:
    """What keeps a side from loading, as rules of the pair; one passed rule where nothing does."""
    failed = []
    texts = (pair.texts[0], [] if pair.same_texts else pair.texts[1])
    for name, side, mine in zip(("target", "draft"), (pair.target, pair.draft), texts, strict=True):
        for rule in load_rules(side, mine):
            if not rule.passed and rule.level == "fatal":
                values = (rule.target, "") if name == "target" else ("", rule.target)
                failed.append(replace(rule, name=f"{name}: {rule.name}", target=values[0], draft=values[1]))
    if failed:
        yield from failed
    else:
        yield Rule("each by itself", "gguftools", True, "loads", "loads", "fatal")


def _verdict(pair: Pair, rules: Sequence[Rule]) -> Verdict:
    failed = {rule.name for rule in rules if not rule.passed}
    if any(rule.level == "fatal" and not rule.passed for rule in rules):
        return "incompatible"
    if not any(rule.source == "llama.cpp" and rule.name in failed for rule in rules):
        free = {"template headers", "context length", "draft kind"}
        return "compatible" if failed - free or pair.differing else "identical"
    if "vocabulary type" in failed or not ordinary_agree(pair):
        return "incompatible"
    return "alignable"


def _differences(pair: Pair) -> tuple[int, tuple[Difference, ...]]:
    target, draft = pair.vocabs
    low, high = sorted((target.n_tokens, draft.n_tokens))
    ids = [*pair.differing[:SHOWN], *range(low, min(high, low + SHOWN))][:SHOWN]

    def text(vocab: Vocab, i: int) -> str | None:
        return readable(vocab.tokens[i]) if i < vocab.n_tokens else None

    first = tuple(Difference(i, text(target, i), text(draft, i)) for i in ids)
    return len(pair.differing) + high - low, first
