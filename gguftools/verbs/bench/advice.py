"""When a draft does not pay: what would, from the costs and the rounds that were measured.

With c(w) the cost of verifying w tokens, and rounds that proposed n tokens each and kept m of them, at most
k tokens a round would have given Σ (1 + min(m, k)) · c(1) / Σ (c(1 + min(n, k)) + d · min(n, k)) times the
plain speed; d is the draft's time for each token that it proposed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...intervals import Estimate
from ...session.results import Round
from .measures import Cost, draft_ms_per_token
from .runs import Length

ENOUGH = 5  # rounds of a width: fewer say nothing
WORTH = 1.03  # less of a gain is not worth a change
LOOKUP = 3  # tokens that must agree before an n-gram proposes


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was measured. costs: of all rounds. rounds: those with the draft. sweep: fixed length → speed-up.

    texts: (prompt, answer) ids of the plain runs.
    """

    speedup: Estimate
    draft_tokens: Length | None
    costs: Sequence[Cost] = ()
    rounds: Sequence[Round] = ()
    sweep: Mapping[Length, float] = field(default_factory=dict)
    texts: Sequence[tuple[Sequence[int], Sequence[int]]] = ()

    def widths(self) -> dict[int, float]:
        """Width → the target's cost in ms, of those that were seen often enough; {} without single tokens."""
        found = {one.width: one.target_ms for one in self.costs if one.rounds >= ENOUGH and one.target_ms > 0}
        return found if 1 in found else {}


@dataclass(frozen=True, slots=True)
class _Capped:
    """The rounds with at most k tokens each: tokens written and proposed, the target's and the plain time."""

    written: int
    proposed: int
    target_ms: float
    plain_ms: float


def advice(seen: Evidence) -> list[str]:
    """Sentences, the first a verdict; none where the draft pays for certain."""
    value, low, high = seen.speedup.value, seen.speedup.low, seen.speedup.high
    if np.isnan(value) or (value >= 1 and low >= 1):
        return []
    if value >= 1:
        return [
            f"It is not certain that the draft pays: {value:.2f} ×, and {low:.2f} to {high:.2f} is likely."
        ]
    found = [f"The draft does not pay here: {value:.2f} × the speed without it."]
    better = [*_lengths(seen), *_cheaper_draft(seen), *_closer_draft(seen), *_ngrams(seen)]
    return [*found, *better, *_batches(seen), *([] if better else [_PLAIN])]


_PLAIN = "What was measured shows nothing that would help: run this target without a draft."


def _lengths(seen: Evidence) -> list[str]:
    """Another fixed length: the best one measured, else the best one by the formula."""
    least = max(1.0, WORTH * seen.speedup.value)
    measured = {k: gain for k, gain in seen.sweep.items() if isinstance(k, int) and k > 0}
    if measured:
        best = max(measured, key=lambda k: measured[k])
        return (
            [f"--draft-tokens {best} pays: {measured[best]:.2f} × was measured."]
            if measured[best] >= least
            else []
        )
    cost = draft_ms_per_token(seen.rounds) or 0.0
    gains = {k: one.plain_ms / (one.target_ms + cost * one.proposed) for k, one in _capped(seen).items()}
    best = max(gains, key=lambda k: gains[k], default=0)
    if best and best != seen.draft_tokens and gains[best] >= max(WORTH, least):
        return [f"--draft-tokens {best} may pay: about {gains[best]:.2f} × by the costs that were measured."]
    return []


def _capped(seen: Evidence) -> dict[int, _Capped]:
    """What the rounds would have been with at most k = 1, 2, … tokens; {} where too little was measured."""
    costs = seen.widths()
    longest = max((one.n_draft for one in seen.rounds), default=0)
    if len(costs) < 2:
        return {}
    table = _table(costs, longest + 1)
    found = {}
    for k in range(1, longest + 1):
        proposed = [min(one.n_draft, k) for one in seen.rounds]
        written = sum(1 + min(one.n_accepted, k) for one in seen.rounds)
        target = sum(table[1 + n] for n in proposed)
        found[k] = _Capped(written, sum(proposed), target, written * costs[1])
    return found


def _table(costs: Mapping[int, float], most: int) -> list[float]:
    """The cost of each width up to `most`, between measured ones by a straight line."""
    widths = sorted(costs)
    return [float(np.interp(width, widths, [costs[w] for w in widths])) for width in range(most + 1)]


def _cheaper_draft(seen: Evidence) -> list[str]:
    """The cost of a drafted token at which the same proposals break even."""
    cost = draft_ms_per_token(seen.rounds)
    allowed = [
        (one.plain_ms - one.target_ms) / one.proposed for one in _capped(seen).values() if one.proposed
    ]
    most = max(allowed, default=0.0)
    single = seen.widths().get(1, 0.0)
    if cost is None or most <= 0.02 * single or most >= cost:
        return []
    return [
        f"A smaller draft may pay: at this acceptance one that takes less than {most:.1f} ms for each token; "
        f"this one takes {cost:.1f} ms, the target {single:.1f} ms."
    ]


def _closer_draft(seen: Evidence) -> list[str]:
    """Low acceptance, where the same draft would pay if it were right."""
    drafted = sum(one.n_draft for one in seen.rounds)
    kept = sum(one.n_accepted for one in seen.rounds)
    costs = seen.widths()
    if all(one.source in ("", "ngram") for one in seen.rounds):
        return []  # the text's own repetitions have no better draft
    if len(costs) < 2 or drafted < ENOUGH or kept >= 0.5 * drafted:
        return []
    table = _table(costs, 1 + max(one.n_draft for one in seen.rounds))
    spent = sum(table[1 + one.n_draft] + one.draft_us / 1000 for one in seen.rounds)
    gain = sum(1 + one.n_draft for one in seen.rounds) * costs[1] / spent
    if gain < WORTH:
        return []
    return [
        f"Only {kept / drafted:.0%} of the drafted tokens are kept; if all were, this draft would give "
        f"{gain:.2f} ×: one that is closer to the target (of its family, or trained on it) may pay."
    ]


def _ngrams(seen: Evidence) -> list[str]:
    """What copying from the text itself would have given on the texts that were written."""
    costs = seen.widths()
    if not costs or not seen.texts:
        return []
    best = max((_copied(seen, costs, k) for k in range(1, max(costs))), default=0.0)
    if best < max(WORTH, WORTH * seen.speedup.value):
        return []
    return [f"n-grams may pay: about {best:.2f} × on these texts, which cost no draft model (--draft ngram)."]


def _copied(seen: Evidence, costs: Mapping[int, float], k: int) -> float:
    """The speed-up of proposing at most k tokens after the newest place where the last three stood before."""
    table = _table(costs, k + 1)
    tokens = spent = 0.0
    for prompt, answer in seen.texts:
        for kept, proposed in replay(prompt, answer, k):
            tokens += kept + 1
            spent += table[1 + proposed]
    return tokens * costs[1] / spent if spent else 0.0


def replay(prompt: Sequence[int], answer: Sequence[int], k: int) -> list[tuple[int, int]]:
    """(tokens kept, tokens proposed) of each round in which n-grams draft the answer, at most k tokens each.

    replay([1, 2, 3, 4, 1, 2, 3], [4, 9], 2) -> [(1, 2)]
    """
    text = [*prompt, *answer]
    newest: dict[tuple[int, ...], int] = {}
    at, known = len(prompt), LOOKUP
    found = []
    while at < len(text):
        while known < at:  # every n-gram that ends before the last token
            newest[tuple(text[known - LOOKUP : known])] = known
            known += 1
        start = newest.get(tuple(text[at - LOOKUP : at]))
        guess = [] if start is None else text[start : min(start + k, at)]
        kept = 0
        while kept < len(guess) and at + kept < len(text) and text[at + kept] == guess[kept]:
            kept += 1
        found.append((kept, len(guess)))
        at += kept + 1
    return found


def _batches(seen: Evidence) -> list[str]:
    """What a verify batch costs, where that is the reason."""
    costs = seen.widths()
    wide = [w for w in costs if w > 1]
    if not wide:
        return []
    ceiling = max(w * costs[1] / costs[w] for w in wide)
    shown = ", ".join(f"{w} tokens {costs[w] / costs[1]:.1f} ×" for w in wide[:4])
    facts = f"A verify batch costs, by what one token does: {shown}."
    if ceiling >= 2:
        return [facts]
    return [
        f"{facts} So with up to {wide[-1]} at once no draft gives more than {ceiling:.2f} ×, even one that "
        "costs nothing and is always right. Strongly quantized weights on a CPU behave like that, and a "
        "mixture of experts in main memory: measure the target in Q8_0 or F16, or on a GPU, whose batches "
        "may cost less."
    ]
