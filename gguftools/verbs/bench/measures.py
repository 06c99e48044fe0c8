"""What runs and rounds say: acceptance, costs, where the time went, which lengths were chosen."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from ...session.results import Round
from .runs import Run, Runs

PARTS = ("draft", "target", "selection", "elsewhere")
TENTHS = 10


@dataclass(frozen=True, slots=True)
class Position:
    """The i-th token of a draft: in how many rounds one was proposed, and how often it was kept."""

    proposed: int
    accepted: int

    @property
    def rate(self) -> float:
        return self.accepted / self.proposed if self.proposed else 0.0


@dataclass(frozen=True, slots=True)
class Acceptance:
    """rate: kept share of the drafted tokens. mean_length: tokens per step. None: nothing told it."""

    rate: float | None = None
    mean_length: float | None = None
    positions: tuple[Position, ...] = ()


@dataclass(frozen=True, slots=True)
class Cost:
    """Medians over the rounds of `width` verified tokens: the target's time, the draft's where it worked."""

    width: int
    rounds: int
    target_ms: float
    draft_ms: float


def each(runs: Runs) -> Iterator[Run]:
    """All runs of all prompts."""
    for repeats in runs:
        yield from repeats


def rounds_of(runs: Runs) -> list[Round]:
    """The rounds of all runs, in order."""
    return [one for run in each(runs) for one in run.rounds]


def acceptance(runs: Runs) -> Acceptance:
    """From the counts of each run, and per position from its rounds where it has them.

    Where the steps are not told they follow from the tokens: a step gives what was accepted and one more.
    """
    told = [run for run in each(runs) if run.draft_n is not None]
    if not told:
        return Acceptance()
    drafted = sum(run.draft_n or 0 for run in told)
    kept = sum(run.draft_n_accepted or 0 for run in told)
    steps = sum(
        run.n - (run.draft_n_accepted or 0) if run.verify_steps is None else run.verify_steps for run in told
    )
    return Acceptance(
        kept / drafted if drafted else 0.0,
        1 + kept / steps if steps > 0 else 1.0,
        positions(rounds_of(runs)),
    )


def positions(rounds: Sequence[Round]) -> tuple[Position, ...]:
    """Position 1, 2, … of the drafts; a token behind a refused one was proposed and not kept."""
    longest = max((one.n_draft for one in rounds), default=0)
    return tuple(
        Position(sum(one.n_draft >= i for one in rounds), sum(one.n_accepted >= i for one in rounds))
        for i in range(1, longest + 1)
    )


def costs(rounds: Iterable[Round]) -> tuple[Cost, ...]:
    """One entry for each width that occurred."""
    found: defaultdict[int, list[Round]] = defaultdict(list)
    for one in rounds:
        found[one.n_draft + 1].append(one)
    return tuple(
        Cost(
            width,
            len(same),
            median(one.target_us for one in same) / 1000,
            median([one.draft_us for one in same if one.draft_us] or [0]) / 1000,
        )
        for width, same in sorted(found.items())
    )


def draft_ms_per_token(rounds: Sequence[Round]) -> float | None:
    """The draft's time for each token that it proposed, also that of attempts that came to nothing.

    None where it proposed nothing; what n-grams propose takes no time.
    """
    drafted = sum(one.n_draft for one in rounds if one.source in ("model", "both"))
    return sum(one.draft_us for one in rounds) / drafted / 1000 if drafted else None


def time_share(runs: Runs) -> Mapping[str, float] | None:
    """Shares of the time after the prompt, of PARTS; None without rounds."""
    rounds = rounds_of(runs)
    total = sum(run.ms for run in each(runs))
    if not rounds or total <= 0:
        return None
    parts = [
        sum(one.draft_us for one in rounds) / 1000 / total,
        sum(one.target_us for one in rounds) / 1000 / total,
        sum(one.select_us for one in rounds) / 1000 / total,
    ]
    return dict(zip(PARTS, [*parts, max(0.0, 1 - sum(parts))], strict=True))


def length_counts(rounds: Iterable[Round]) -> Mapping[int, int]:
    """Tokens proposed → in how many rounds."""
    return dict(sorted(Counter(one.n_draft for one in rounds).items()))


def lengths_over_time(runs: Runs) -> list[float]:
    """The mean length proposed in each tenth of the answers; [] without rounds, NaN-free: a tenth in which no
    round began has the length of the one before."""
    sums, counts = [0.0] * TENTHS, [0] * TENTHS
    for run in each(runs):
        at, total = 0, sum(one.n_accepted + 1 for one in run.rounds)
        for one in run.rounds:
            tenth = min(TENTHS - 1, TENTHS * at // total)
            sums[tenth] += one.n_draft
            counts[tenth] += 1
            at += one.n_accepted + 1
    if not any(counts):
        return []
    found: list[float] = []
    for length, count in zip(sums, counts, strict=True):
        found.append(length / count if count else found[-1])
    return found


def by_source(rounds: Iterable[Round]) -> Mapping[str, Mapping[str, int]]:
    """Who proposed → rounds, drafted and accepted tokens; rounds without a proposal are "none"."""
    found: dict[str, dict[str, int]] = {}
    for one in rounds:
        entry = found.setdefault(one.source or "none", {"rounds": 0, "drafted": 0, "accepted": 0})
        entry["rounds"] += 1
        entry["drafted"] += one.n_draft
        entry["accepted"] += one.n_accepted
    return found
