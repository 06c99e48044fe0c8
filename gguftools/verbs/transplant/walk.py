"""Two tokenizations of a text side by side: which target token stands where which donor token does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .text import Text
from .tokenizing import Tokenizer

SHAPES = ("same", "several", "prefix", "inside")


@dataclass(frozen=True, slots=True)
class Walk:
    """target, donor [n]: the ids that begin at the same byte; shapes: how often each of SHAPES was met.

    same: the two tokens have the same bytes. several: the target's goes on over more donor tokens. prefix:
    the target's ends inside the donor's. inside: the target's begins inside a donor token (it is in no pair).
    """

    target: NDArray[np.int32]
    donor: NDArray[np.int32]
    shapes: dict[str, int]
    n_texts: int
    n_skipped: int  # texts that one of the two does not spell byte for byte

    def counts(self, first: NDArray[np.int32]) -> NDArray[np.float64]:
        """[n_target]: how often each target token stands where the donor has its first piece, `first`."""
        fits = first[self.target] == self.donor
        return np.bincount(self.target[fits], minlength=len(first)).astype(np.float64)

    def coverage(self) -> dict[str, float]:
        """The part of the target's tokens that is of each shape."""
        total = max(sum(self.shapes.values()), 1)
        return {shape: round(n / total, 5) for shape, n in self.shapes.items()}


def walk(
    texts: Iterable[Text], target: Tokenizer, donor: Tokenizer, tell: Callable[[int], None] = lambda _: None
) -> Walk:
    """Walks over texts; tell(characters done)."""
    pairs: list[tuple[NDArray[np.int32], NDArray[np.int32]]] = []
    shapes = np.zeros(len(SHAPES), np.int64)
    n_texts = n_skipped = done = 0
    for text in texts:
        n_texts += 1
        found = step(text.text, target, donor)
        if found is None:
            n_skipped += 1
        else:
            pairs.append(found[:2])
            shapes += found[2]
        done += len(text.text)
        tell(done)
    ours = [pair[0] for pair in pairs] or [np.empty(0, np.int32)]
    theirs = [pair[1] for pair in pairs] or [np.empty(0, np.int32)]
    named = dict(zip(SHAPES, shapes.tolist(), strict=True))
    return Walk(np.concatenate(ours), np.concatenate(theirs), named, n_texts, n_skipped)


def step(
    text: str, target: Tokenizer, donor: Tokenizer
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]] | None:
    """(target ids, donor ids, counts of SHAPES) of one text; None where one of the two does not spell it."""
    ours, theirs = target.spell(text), donor.spell(text)
    if ours is None or theirs is None:
        return None
    ids, begins = ours[0], ours[1][:-1]
    place = np.searchsorted(theirs[1], begins)
    shared = theirs[1][place] == begins
    left, right = ids[shared], theirs[0][place[shared]]
    longer = np.sign(target.sizes[left] - donor.sizes[right])
    shapes = [np.count_nonzero(longer == sign) for sign in (0, 1, -1)]
    return left, right, np.array([*shapes, np.count_nonzero(~shared)], np.int64)
