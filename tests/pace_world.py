"""A world for pace to live in: texts of which each token is guessed right or not, and what batches cost.

Whether a token is guessed right, and how sure the source is of it, belongs to its place in the text: policies
meet the same luck and differ by their choices. They are scored by true costs; pace is told noisy ones."""

from __future__ import annotations

from dataclasses import astuple, dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from gguftools._native import Pace

MODEL, NGRAM, HEAD = 0, 1, 2
MS = 1000.0


@dataclass(frozen=True, slots=True)
class Costs:
    """Milliseconds by batch size, between which all lies on lines; so many sources as there are tables."""

    target: dict[int, float]
    draft: dict[int, float]
    widths: tuple[int, ...] = ()

    def verify(self, width: int) -> float:
        return on_line(self.target, width)

    def decode(self, n: int) -> float:
        return on_line(self.draft, n)


def on_line(table: dict[int, float], n: int) -> float:
    """The last two points' line goes on beyond them."""
    x, y = list(table), list(table.values())
    if n <= x[-1]:
        return float(np.interp(n, x, y))
    return y[-1] + (n - x[-1]) * (y[-1] - y[-2]) / (x[-1] - x[-2])


HALF_B = {1: 24, 2: 47, 4: 57, 6: 96, 8: 96, 512: 6000}
SMOL = {1: 9, 2: 17, 4: 25, 6: 36, 8: 42, 512: 2500}
Q4 = {1: 34, 2: 63, 4: 106, 6: 155, 8: 243, 16: 400, 32: 760}
Q8 = {1: 74, 2: 122, 4: 147, 6: 224, 8: 207, 16: 420, 32: 820}
F16 = {1: 85, 2: 140, 4: 174, 6: 179, 8: 242, 16: 450, 32: 880}
COSTS = {
    "q4": Costs(Q4, HALF_B),
    "q8": Costs(Q8, HALF_B),
    "f16": Costs(F16, HALF_B),
    "q4 smol": Costs(Q4, SMOL),
    "f16 smol": Costs(F16, SMOL),
    "moe": Costs({1: 100, 2: 179, 4: 322, 8: 604, 16: 1150}, {1: 45, 2: 85, 4: 150, 8: 280, 512: 16000}),
    "moe small draft": Costs({1: 100, 2: 179, 4: 322, 8: 604, 16: 1150}, {1: 8, 2: 14, 8: 40, 512: 2000}),
    "gpu": Costs({1: 20, 2: 20.6, 4: 21.2, 8: 22.5, 9: 40, 16: 42}, {1: 2, 8: 2.2, 512: 30}, (1, 2, 4, 8)),
}


@dataclass(frozen=True, slots=True)
class Text:
    """By place: whether the draft model's guess is right and how sure it is of it; the same of n-grams,
    which have nothing to propose where `copy_sure` is 0."""

    right: NDArray[np.bool_]
    sure: NDArray[np.float64]
    copy_right: NDArray[np.bool_]
    copy_sure: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.right)

    def __add__(self, other: Text) -> Text:
        return Text(*(np.append(a, b) for a, b in zip(astuple(self), astuple(other), strict=True)))


def guessed(right: NDArray[np.bool_], sure: NDArray[np.float64]) -> Text:
    """A text of which n-grams know nothing."""
    return Text(right, sure, np.zeros(len(right), bool), np.zeros(len(right)))


def copied(rng: np.random.Generator, text: Text, share: float) -> Text:
    """With copied passages of some 30 tokens, which n-grams see after 3; elsewhere they mostly err."""
    sure = np.where(rng.random(len(text)) < 0.3, 0.67, 0.0)
    right = rng.random(len(text)) < 0.2
    at = 0
    while at < len(text):
        n = int(rng.integers(15, 45))
        if rng.random() < share:
            right[at : at + n] = rng.random(len(right[at : at + n])) < 0.985
            seen = np.arange(len(right[at : at + n]))
            sure[at : at + n] = np.where(seen < 3, 0.0, seen / (1.0 + seen))
        at += n
    return replace(text, copy_right=right, copy_sure=sure)


def constant(rng: np.random.Generator, n: int, chance: float) -> Text:
    """A source that is about as sure as it is good, and no surer of what is right than of what is wrong."""
    odds = np.log(chance / (1 - chance)) + rng.normal(0, 1, n)
    return guessed(rng.random(n) < chance, 1 / (1 + np.exp(-odds)))


def aware(rng: np.random.Generator, n: int, easy: float, boast: float = 1.0) -> Text:
    """A share of easy places in runs, and hard ones; the source's odds are right but for the factor."""
    state = np.empty(n, bool)
    now = True
    for i in range(n):
        if rng.random() < 0.3:
            now = rng.random() < easy
        state[i] = now
    chance = np.where(state, rng.beta(20, 1.2, n), rng.beta(1.5, 2.5, n)).clip(0.02, 0.995)
    odds = np.log(chance / (1 - chance)) * boast
    return guessed(rng.random(n) < chance, 1 / (1 + np.exp(-odds)))


def noisy(rng: np.random.Generator, ms: float) -> int:
    """What a clock says: 5 % of all are doubled by other processes, 1 % take up to ten times as long."""
    luck = rng.random()
    factor = 2.0 if luck < 0.05 else rng.uniform(3, 10) if luck < 0.06 else 1.0
    return max(1, int(ms * MS * factor * np.exp(rng.normal(0, 0.04))))


@dataclass(slots=True)
class Log:
    """What a run did: milliseconds, and by round the kinds of the proposals verified."""

    ms: float = 0.0
    tokens: int = 0
    drafted: list[tuple[int, ...]] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return self.tokens / self.ms


def calibrate(pace: Pace, costs: Costs, rng: np.random.Generator, kinds: tuple[int, ...] = (MODEL,)) -> None:
    """What an engine may do at load: a few batches of a few sizes."""
    for _ in range(3):
        for width in costs.widths or (1, 2, 4, 8):
            pace.verified(width, noisy(rng, costs.verify(width)))
        for kind in kinds:
            for n in (1, 2):
                pace.drafted(kind, n, noisy(rng, costs.decode(n)))


def accepted(right: NDArray[np.bool_]) -> int:
    """How many proposals are right until the first that is not."""
    return int(len(right) if right.all() else right.argmin())


@dataclass(slots=True)
class Writer:
    """Writes a text's tokens as the engine would, with a draft model, n-grams or both."""

    pace: Pace
    costs: Costs
    text: Text
    rng: np.random.Generator
    on: int = 1 << MODEL
    at: int = 0
    cached: int = 0  # tokens that the draft model has decoded
    log: Log = field(default_factory=Log)

    def lags(self) -> tuple[int, int, int]:
        return self.at + 1 + self.pace.n_draft - self.cached, 0, 1

    def propose(self, kind: int) -> bool:
        """Appends what the source has; whether it had anything."""
        at = self.at + self.pace.n_draft
        if kind == NGRAM:
            n = 8 if self.text.copy_sure[at] else 0
            for _ in range(n):
                self.pace.add(NGRAM, self.text.copy_sure[at])
            return n > 0
        lag = self.lags()[MODEL]
        self.log.ms += self.costs.decode(lag)
        self.pace.drafted(MODEL, lag, noisy(self.rng, self.costs.decode(lag)))
        self.cached += lag
        self.pace.add(MODEL, self.text.sure[at])
        return True

    def round(self) -> None:
        on, kinds = self.on, list[int]()
        kind = self.pace.begin(on, self.lags())
        while kind is not None:
            if not self.pace.n_draft:
                kinds.clear()
            before = self.pace.n_draft
            if not self.propose(kind):
                on &= ~(1 << kind)
            kinds += [kind] * (self.pace.n_draft - before)
            kind = self.pace.more(on, self.lags())
        n = self.pace.length()
        ms = self.costs.verify(n + 1)
        self.pace.verified(n + 1, noisy(self.rng, ms))
        sources = (self.text.right, self.text.copy_right)
        agreed = accepted(np.array([sources[k][self.at + i] for i, k in enumerate(kinds[: n + 1])], bool))
        self.pace.outcome(agreed)
        hits = min(agreed, n)
        self.log.drafted.append(tuple(kinds[:n]))
        self.at += hits + 1
        self.cached = min(self.cached, self.at)
        self.log.ms += ms
        self.log.tokens += hits + 1


def run(
    pace: Pace,
    costs: Costs,
    text: Text,
    rng: np.random.Generator,
    most: int | None = None,
    on: int = 1 << MODEL,
) -> Log:
    """A request of which the prompt is decoded already."""
    writer = Writer(pace, costs, text, rng, on)
    while writer.at < (most or len(text) - 20):
        writer.round()
    return writer.log


def fixed(costs: Costs, text: Text, n: int, most: int | None = None) -> float:
    """Tokens per millisecond with n proposals of the model always."""
    at, ms, end, lag = 0, 0.0, most or len(text) - 20, 1
    while at < end:
        hits = accepted(text.right[at : at + n])
        ms += costs.verify(n + 1) + (costs.decode(lag) + (n - 1) * costs.decode(1) if n else 0.0)
        lag = 2 if hits == n else 1
        at += hits + 1
    return at / ms


def best_length(costs: Costs, text: Text) -> int:
    """Of all fixed ones, in hindsight."""
    lengths = [w - 1 for w in costs.widths] or range(17)
    return max(lengths, key=lambda n: fixed(costs, text, n))


def best_fixed(costs: Costs, text: Text) -> float:
    """Tokens per millisecond with that."""
    return fixed(costs, text, best_length(costs, text))
