"""When a draft does not pay: what would, from the costs and acceptances that were measured.

With c(w) the cost of verifying w tokens, d that of drafting one and s(i) the chance that the first i are
kept, a fixed length of k gives (1 + s(1) + … + s(k)) · c(1) / (c(k + 1) + k · d) times the speed of no draft.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...intervals import Estimate
from .measures import Cost, Position
from .runs import Length

ENOUGH = 5  # rounds of a width, proposals at a position: fewer say nothing
WORTH = 1.03  # less of a gain is not worth a change
LOOKUP = 3  # tokens that must agree before an n-gram proposes


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was measured. texts: (prompt, answer) ids of the plain runs. sweep: fixed length → speed-up."""

    speedup: Estimate
    draft_tokens: Length | None
    costs: Sequence[Cost] = ()
    positions: Sequence[Position] = ()
    draft_ms: float | None = None
    sweep: Mapping[Length, float] | None = None
    texts: Sequence[tuple[Sequence[int], Sequence[int]]] = ()

    def widths(self) -> dict[int, float]:
        """Width → the target's cost in ms, of those that were seen often enough."""
        return {cost.width: cost.target_ms for cost in self.costs if cost.rounds >= ENOUGH and cost.target_ms}

    def expected(self) -> dict[int, float]:
        """Length → tokens per step, as far as the positions were tried often enough."""
        found, total = {0: 1.0}, 1.0
        for i, position in enumerate(self.positions, 1):
            if position.proposed < ENOUGH:
                break
            total += position.rate
            found[i] = total
        return found


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
    better = [*_lengths(seen), *_cheaper_draft(seen), *_ngrams(seen), *_closer_draft(seen)]
    return [*found, *better, *_batches(seen)] if better else [*found, *_batches(seen), _PLAIN]


_PLAIN = "What was measured shows nothing that would help: run this target without a draft."


def _lengths(seen: Evidence) -> list[str]:
    """Another fixed length: the best one measured, else the best one by the formula."""
    measured = {k: s for k, s in (seen.sweep or {}).items() if isinstance(k, int) and k > 0}
    if measured:
        best = max(measured, key=lambda k: measured[k])
        if measured[best] >= max(1.0, WORTH * seen.speedup.value):
            return [f"--draft-tokens {best} pays: {measured[best]:.2f} × was measured."]
        return []
    if seen.draft_ms is None:
        return []
    guesses = _fixed(seen, seen.draft_ms)
    best = max(guesses, key=lambda k: guesses[k], default=0)
    if best and best != seen.draft_tokens and guesses[best] >= max(WORTH, WORTH * seen.speedup.value):
        return [f"--draft-tokens {best} may pay: {guesses[best]:.2f} × by the costs that were measured."]
    return []


def _fixed(seen: Evidence, draft_ms: float) -> dict[int, float]:
    """Length → the speed-up that the formula gives, of lengths whose width was measured."""
    costs, tokens = seen.widths(), seen.expected()
    if 1 not in costs:
        return {}
    return {k: tokens[k] * costs[1] / (costs[k + 1] + k * draft_ms) for k in tokens if k and k + 1 in costs}


def _cheaper_draft(seen: Evidence) -> list[str]:
    """The cost of a draft token at which the same acceptance breaks even."""
    costs, tokens = seen.widths(), seen.expected()
    if 1 not in costs or seen.draft_ms is None:
        return []
    allowed = [(tokens[k] * costs[1] - costs[k + 1]) / k for k in tokens if k and k + 1 in costs]
    most = max(allowed, default=0.0)
    if most <= 0.02 * costs[1] or most >= seen.draft_ms:
        return []
    return [
        f"A smaller draft may pay: at this acceptance one that takes less than {most:.1f} ms a token; this "
        f"one takes {seen.draft_ms:.1f} ms, the target {costs[1]:.1f} ms."
    ]


def _closer_draft(seen: Evidence) -> list[str]:
    """Low acceptance, where batches are cheap enough that a better draft could pay."""
    costs = seen.widths()
    first = seen.positions[0] if seen.positions else None
    if first is None or first.proposed < ENOUGH or first.rate >= 0.5 or seen.draft_ms is None:
        return []
    kept_all = max(((w * costs[1]) / (costs[w] + (w - 1) * seen.draft_ms) for w in costs if w > 1), default=0)
    if kept_all < WORTH:
        return []
    return [
        f"Only {first.rate:.0%} of the first drafted tokens are kept; if all were, this draft would give "
        f"{kept_all:.2f} ×: a draft that is closer to the target (of its family, or trained on it) may pay."
    ]


def _ngrams(seen: Evidence) -> list[str]:
    """What copying from the text itself would have given on the texts that were written."""
    costs = seen.widths()
    if 1 not in costs or not seen.texts:
        return []
    best = max((_copied(seen, costs, k) for k in range(1, max(costs))), default=0.0)
    if best < max(WORTH, WORTH * seen.speedup.value):
        return []
    return [f"n-grams may pay: about {best:.2f} × on these texts, which cost no draft model (--draft ngram)."]


def _copied(seen: Evidence, costs: Mapping[int, float], k: int) -> float:
    """The speed-up of proposing at most k tokens after the newest place where the last three stood before."""
    widths = sorted(costs)
    table = [float(np.interp(w, widths, [costs[i] for i in widths])) for w in range(1, k + 2)]
    tokens = spent = 0.0
    for prompt, answer in seen.texts:
        for kept, proposed in replay(prompt, answer, k):
            tokens += kept + 1
            spent += table[proposed]
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
    if 1 not in costs or not wide:
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
