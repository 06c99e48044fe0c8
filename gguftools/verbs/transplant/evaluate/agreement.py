"""How well a draft agrees with the exact marginal at some places of the texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .losses import Reading, Spelled
from .marginal import Marginal, Walker
from .scoring import Head

_AT_ONCE = 64  # rows of probabilities


@dataclass(frozen=True, slots=True)
class Place:
    """Before the token `index` of a text: what the donor would write, in the target's tokens."""

    text: int
    index: int
    marginal: Marginal


@dataclass(frozen=True, slots=True)
class Agreement:
    """Of one draft, at each place: whether its top is the marginal's, its overlap Σ min(M, q)."""

    agrees: NDArray[np.bool_]  # [n]
    overlap: NDArray[np.float64]  # [n]
    top: NDArray[np.int32]  # [n]


def sample(texts: Sequence[Spelled], n: int, seed: int) -> list[tuple[int, int]]:
    """n places (text, index of a token) at random, in order; all where there are fewer.

    None inside a character.
    """
    every = [(t, i) for t, text in enumerate(texts) for i in _between_characters(text)]
    drawn = np.random.default_rng(seed).permutation(len(every))[:n]
    return [every[i] for i in sorted(drawn.tolist())]


def _between_characters(text: Spelled) -> list[int]:
    data = text.text.text.encode("utf-8", "replace")
    return [i for i, at in enumerate(text.offsets[:-1].tolist()) if data[at] & 0xC0 != 0x80]


def resolve(
    walker: Walker, texts: Sequence[Spelled], places: Sequence[tuple[int, int]], tell: Callable[[float], None]
) -> list[Place]:
    """The marginal at each place, in order."""
    found: list[Place] = []
    for t in sorted({t for t, _ in places}):
        text, indices = texts[t], [i for other, i in places if other == t]
        where = [int(text.offsets[i]) for i in indices]
        marginals = walker.marginals(text.text.text, where)
        found += [Place(t, i, marginals[at]) for i, at in zip(indices, where, strict=True)]
        tell(len(found) / len(places))
    return found


def compare(places: Sequence[Place], readings: Sequence[Reading], head: Head) -> Agreement:
    """`readings` are the draft's own, in the order of the texts that the places were drawn from."""
    tops, overlaps = np.empty(len(places), np.int32), np.empty(len(places))
    for at in range(0, len(places), _AT_ONCE):
        some = places[at : at + _AT_ONCE]
        q = head.probabilities(np.stack([readings[place.text].states[place.index] for place in some]))
        tops[at : at + len(some)] = q.argmax(1)
        overlaps[at : at + len(some)] = [p.marginal.overlap(row) for p, row in zip(some, q, strict=True)]
    wanted = np.array([place.marginal.top for place in places], np.int32)
    return Agreement(tops == wanted, overlaps, tops)
