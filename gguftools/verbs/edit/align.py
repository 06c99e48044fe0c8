"""--align-to: the keys by which llama.cpp takes a file as a draft of a target with its ordinary tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...errors import IncompatibleDraft, InputError
from ...header.ggml_types import ValueType
from ...vocab import special
from ..check import check
from ..check.pair import Pair, effective, readable
from ..check.report import Report, Rule
from ..check.side import Side
from .keys import Keys, set_token
from .values import PREFIX

_SHOWN = 3


def align(keys: Keys, draft: Side, target: Side) -> tuple[str, ...]:
    """Gives the draft's keys the target's names of special tokens, its ids and flags; returns warnings.

    Raises IncompatibleDraft, with check's report, where an ordinary token differs or keys alone do not help.
    """
    report = check(target, draft)
    if report.verdict == "incompatible" or not report.usable:
        raise _refused(report)
    pair = Pair.of(target, draft)
    types = PREFIX + "token_type"
    for i in pair.differing:
        text = target.vocab.texts[i].decode("utf-8", "surrogateescape")
        if not text:
            raise InputError(
                f"{target.name}: token {i} is empty", "no token can be named so", "mend it first"
            )
        set_token(keys, i, text)
    says_types = not target.vocab.ordinary().all()  # old files type no token
    if pair.differing and types in keys and says_types:
        mine = keys[types][0].copy()
        mine[pair.differing] = target.vocab.types[pair.differing]
        keys[types] = (mine, keys[types][1])
    _flags(keys, pair)
    _ids(keys, pair)
    return tuple(_moved(pair))


def need_compatible(draft: Side, target: Side) -> None:
    """Raises IncompatibleDraft where llama.cpp would still refuse the aligned draft."""
    report = check(target, draft, quick=True)
    if report.verdict not in ("identical", "compatible"):
        raise _refused(report)


def _refused(report: Report) -> IncompatibleDraft:
    order = ("fatal", "refused", "wrong", "note")
    failed = sorted(report.failed(), key=lambda rule: order.index(rule.level))
    rule = _telling(report, failed)
    values = f"{rule.name}: target {rule.target}, draft {rule.draft}" if rule else "see gguftools check"
    return IncompatibleDraft(
        f"{report.draft} cannot be aligned to {report.target} by its keys",
        values,
        next((line for line in report.advice if line.startswith("gguftools ")), "take another draft"),
        report,
    )


def _telling(report: Report, failed: Sequence[Rule]) -> Rule | None:
    """What keys cannot mend: all but texts of special tokens, ids and flags."""
    keys_mend = {"bos", "eos"} | ({"texts"} if report.verdict != "incompatible" else set())
    return next((rule for rule in failed if rule.name not in keys_mend), failed[0] if failed else None)


def _flags(keys: Keys, pair: Pair) -> None:
    target, draft = (effective(vocab) for vocab in pair.vocabs)
    for name in ("bos", "eos"):
        wanted = getattr(target, f"add_{name}")
        if getattr(draft, f"add_{name}") != wanted:
            keys[f"{PREFIX}add_{name}_token"] = (wanted, int(ValueType.BOOL))


def _ids(keys: Keys, pair: Pair) -> None:
    """The target's ids of bos, eos, eot, padding and the others, where they are named or added to prompts."""
    target, draft = pair.vocabs
    real = effective(target)
    added = {name for name, adds in (("bos", real.add_bos), ("eos", real.add_eos)) if adds}
    theirs, mine = special.resolved(target), special.resolved(draft)
    for role, key in special.KEYS.items():
        i = theirs.get(role)
        if i is None or i >= draft.n_tokens or mine.get(role) == i:
            continue
        if role in target.special or role in added:
            keys[PREFIX + key] = (i, int(ValueType.U32))


def _moved(pair: Pair) -> Iterator[str]:
    """Names that the draft has at another id: it learned them there, and renaming teaches it nothing."""
    target, draft = pair.vocabs
    there = {draft.texts[i]: i for i in pair.differing}
    moved = [(i, there[text]) for i in pair.differing if (text := target.texts[i]) in there]
    if not moved:
        return
    listed = ", ".join(f"{readable(target.texts[i])} {j} → {i}" for i, j in moved[:_SHOWN])
    more = f" and {len(moved) - _SHOWN} more" if len(moved) > _SHOWN else ""
    yield (
        f"the draft knows {listed}{more} by another id: llama.cpp will take the pair, but the draft guesses "
        "badly around them; gguftools itself exchanges such ids without any edit"
    )
