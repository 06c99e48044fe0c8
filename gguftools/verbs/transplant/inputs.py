"""Input rows for tokens that the donor spells with several of its own: one row that reads like all of them.

The donor's vocabulary shows how: each of its own longer tokens was merged from two shorter ones, and the rows
of all three are known. A linear map from the rows of the two to the row of the whole, fitted by least squares
over these merges, is then applied to the pieces of a target token from left to right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from ...vocab import Vocab
from .align import Alignment, Kind
from .donor import Donor
from .spelling import speller

RIDGE = 1e-2  # of the mean square of a feature
MOST = 24_000  # merges fitted on, spread over all: 100,000 come 5 % nearer and take four times as long
BLOCK = 4096


def fit(donor: Donor) -> NDArray[np.float32] | None:
    """[2 · n_embd, n_embd]: (row of left, row of right) @ map ≈ row of the whole.

    None where the donor has fewer than four merges for each number of a row: too few for a fit.
    """
    merges = _merges(donor.vocab)
    if len(merges) < 4 * donor.n_embd:
        return None
    merges = merges[np.linspace(0, len(merges) - 1, min(len(merges), MOST)).astype(np.int64)]
    width = donor.n_embd
    square = np.zeros((2 * width, 2 * width), np.float32)
    cross = np.zeros((2 * width, width), np.float32)
    for lo in range(0, len(merges), BLOCK):
        left, right, whole = (donor.embedding(merges[lo : lo + BLOCK, i]) for i in range(3))
        pair = np.concatenate([left, right], 1)
        square += pair.T @ pair
        cross += pair.T @ whole
    square[np.diag_indices(2 * width)] += RIDGE * np.trace(square) / (2 * width) + 1e-9
    solved: NDArray[np.float32] = np.linalg.solve(square.astype(np.float64), cross).astype(np.float32)
    return solved if np.isfinite(solved).all() else None


class Joiner:
    """Joins the rows of tokens of several pieces. Products of the map with single rows are made once."""

    def __init__(self, donor: Donor, alignment: Alignment, joint: NDArray[np.float32]) -> None:
        self._donor, self._starts, self._pieces = donor, alignment.starts, alignment.pieces
        self._turn = joint[: donor.n_embd]
        several = np.flatnonzero(alignment.kind == Kind.PIECES)
        begins, ends = self._starts[several], self._starts[several + 1]
        later = np.zeros(len(self._pieces) + 1, np.int64)  # +1 from each second piece on, -1 behind the last
        np.add.at(later, begins + 1, 1)
        np.add.at(later, ends, -1)
        self._left = _Table(donor, self._pieces[begins], joint[: donor.n_embd])
        self._right = _Table(donor, self._pieces[np.cumsum(later[:-1]) > 0], joint[donor.n_embd :])

    def rows(self, ids: NDArray[np.int64], numbers: NDArray[np.bool_] | None = None) -> NDArray[np.float32]:
        """[len(ids), n_embd] for ids of several pieces.

        Each is as long as the row of its last piece: joined rows come out shorter than the donor's own, as
        what least squares cannot know is left out. Few merges say how digits are joined, none where a donor
        takes them one by one: `numbers` marks ids that are read as half of this and half of the sum of their
        pieces' rows. On texts with numbers that lost less than either, and much less than the last digit.
        """
        begins = self._starts[ids]
        sizes = self._starts[ids + 1] - begins
        rows = self._left(self._pieces[begins]) + self._right(self._pieces[begins + 1])
        for k in range(2, int(sizes.max(initial=2))):
            more = np.flatnonzero(sizes > k)
            rows[more] = rows[more] @ self._turn + self._right(self._pieces[begins[more] + k])
        length = np.linalg.norm(self._donor.embedding(self._pieces[begins + sizes - 1]), axis=1)
        rows *= (length / np.maximum(np.linalg.norm(rows, axis=1), 1e-12))[:, None]
        if numbers is not None and numbers.any():
            rows[numbers] = (rows[numbers] + self._sums(ids[numbers])) / 2
        return rows

    def _sums(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """[len(ids), n_embd]: the donor's rows of all pieces together."""
        begins, sizes = self._starts[ids], self._starts[ids + 1] - self._starts[ids]
        pieces = np.concatenate([self._pieces[at : at + n] for at, n in zip(begins, sizes, strict=True)])
        where = np.cumsum(sizes) - sizes
        found: NDArray[np.float32] = np.add.reduceat(self._donor.embedding(pieces), where, axis=0)
        return found


class _Table:
    """The products of a matrix with the rows of some donor ids."""

    def __init__(self, donor: Donor, ids: NDArray[np.int32], matrix: NDArray[np.float32]) -> None:
        some = np.unique(ids)
        self._place = np.full(donor.vocab.n_tokens, -1, np.int32)
        self._place[some] = np.arange(len(some))
        self._rows = np.empty((len(some), donor.n_embd), np.float32)
        for lo in range(0, len(some), BLOCK):
            self._rows[lo : lo + BLOCK] = donor.embedding(some[lo : lo + BLOCK]) @ matrix

    def __call__(self, ids: NDArray[np.int32]) -> NDArray[np.float32]:
        return self._rows[self._place[ids]]


def _merges(vocab: Vocab) -> NDArray[np.int32]:
    """[n, 3] ids (left, right, whole) of each ordinary token that two others make, in the order of ids."""
    spelling = speller(vocab)
    found = dict(_listed(vocab, spelling.parts)) or dict(_cut(spelling.exact))
    rows = [(*found[whole], whole) for whole in sorted(found)]
    return np.array(rows, np.int32).reshape(-1, 3)


def _listed(vocab: Vocab, ids: Mapping[str, int]) -> Iterator[tuple[int, tuple[int, int]]]:
    """(whole, halves) of the merges that a vocabulary of gpt2's kind lists."""
    for merge in vocab.merges.tolist():
        left, _, right = merge.decode("utf-8", "replace").partition(" ")
        if left in ids and right in ids and left + right in ids:
            yield ids[left + right], (ids[left], ids[right])


def _cut(ids: Mapping[bytes, int]) -> Iterator[tuple[int, tuple[int, int]]]:
    """(whole, halves) where none are listed (llama's kind): the cut whose later half has the lowest id."""
    for data, whole in ids.items():
        halves = [(ids.get(data[:i], -1), ids.get(data[i:], -1)) for i in range(1, len(data))]
        known = [pair for pair in halves if min(pair) >= 0]
        if known:
            yield whole, min(known, key=max)
