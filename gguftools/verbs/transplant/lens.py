"""What a state says of the token after the next: a token of several pieces is scored by its second one too.

The state h' that the donor has after writing its next token is foretold from the state h before it and that
token's row e, by least squares over a text that the donor has read: h' ≈ A h + B e + c. So W[second] · A h is
what h itself says for a second piece. The head row of a token of several pieces becomes

    W[first] + g · (W[second] - W̄[first]) A

where W̄[d] is the mean head row of what follows d, and its bias is lowered so that the share of the token
stays what `prior` says, on average over the states before its first piece (a Gaussian's mean of exp).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .donor import Donor

GAIN = 0.6  # g: between 0.5 and 0.75 held-out text is about alike
RIDGE = 1e-2  # of the mean square of a feature
SHRINK = 3.0  # occurrences that the foretold mean weighs beside those that were seen
BLOCK = 4096


@dataclass(frozen=True, slots=True)
class Passage:
    """A text as the donor has read it: state i is what ids[i] is predicted from."""

    ids: NDArray[np.int32]  # [n] donor tokens
    states: NDArray[np.float32]  # [n, n_embd]


@dataclass(frozen=True, slots=True)
class Lens:
    """turn [n_embd, n_embd]: A, times GAIN. For donor id d with place[d] ≥ 0: follow[place] is W̄[d] · turn,
    before[place] the mean state in front of d. spread: the states' covariance."""

    turn: NDArray[np.float32]
    place: NDArray[np.int32]
    follow: NDArray[np.float32]
    before: NDArray[np.float32]
    spread: NDArray[np.float32]

    def rows(self, donor: Donor, first: NDArray[np.int32], second: NDArray[np.int32]) -> NDArray[np.float32]:
        """[n, n_embd]: what is added to W[first]."""
        return donor.head(second) @ self.turn - self.follow[self.place[first]]

    def bias(self, donor: Donor, first: NDArray[np.int32], second: NDArray[np.int32]) -> NDArray[np.float32]:
        """[n]: -log of the mean of exp(row · h) over states with the mean before[first] and this spread."""
        out = np.empty(len(first), np.float32)
        for lo in range(0, len(first), BLOCK):
            part = slice(lo, lo + BLOCK)
            rows = self.rows(donor, first[part], second[part])
            mean = np.einsum("ij,ij->i", rows, self.before[self.place[first[part]]])
            out[part] = -mean - np.einsum("ij,ij->i", rows @ self.spread, rows) / 2
        return out


def enough(donor: Donor) -> int:
    """Tokens that a fit needs: ten states for each number of a row.

    With five SmolLM2 lost 0.6 nats per token on another vocabulary's text, with nine it gained 0.12.
    """
    return 10 * donor.n_embd


def fit(donor: Donor, passages: list[Passage], wanted: NDArray[np.int32]) -> Lens | None:
    """The lens for first pieces `wanted`; None without any, and where the text is too short: see `enough`."""
    if not len(wanted) or not passages:
        return None
    h, then = (np.concatenate([p.states[i : len(p.ids) - 1 + i] for p in passages]) for i in (0, 1))
    ids = np.concatenate([p.ids[:-1] for p in passages])
    after = np.concatenate([p.ids[1:] for p in passages])
    if len(ids) < enough(donor):
        return None
    rows = donor.embedding(ids)
    scale = np.float32(
        np.sqrt(np.mean(h**2) / max(float(np.mean(rows**2)), 1e-12))
    )  # so that one ridge fits both
    rows *= scale
    both = _Line.fit(np.concatenate([h, rows], 1), then)
    turn = GAIN * both.matrix[: donor.n_embd].T
    wanted = np.unique(wanted)
    place = np.full(donor.vocab.n_tokens, -1, np.int32)
    place[wanted] = np.arange(len(wanted))
    unseen = donor.embedding(wanted) * scale
    follow = _means(place[ids], donor.head(after), _Line.fit(rows, donor.head(after))(unseen))
    before = _means(place[ids], h, _Line.fit(rows, h)(unseen))
    spread = np.cov(h, rowvar=False).astype(np.float32)
    return Lens(turn, place, follow @ turn, before, spread)


@dataclass(frozen=True, slots=True)
class _Line:
    """y ≈ mean_y + (x - mean_x) @ matrix."""

    matrix: NDArray[np.float32]
    mean_x: NDArray[np.float32]
    mean_y: NDArray[np.float32]

    @classmethod
    def fit(cls, x: NDArray[np.float32], y: NDArray[np.float32]) -> _Line:
        mean_x, mean_y = x.mean(0), y.mean(0)
        x = x - mean_x
        square = (x.T @ x).astype(np.float64)
        square[np.diag_indices(len(square))] += RIDGE * np.trace(square) / len(square) + 1e-9
        solved: Any = np.linalg.solve(square, (x.T @ (y - mean_y)).astype(np.float64))
        return cls(solved.astype(np.float32), mean_x, mean_y)

    def __call__(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.asarray(self.mean_y + (x - self.mean_x) @ self.matrix, np.float32)


def _means(
    place: NDArray[np.int32], values: NDArray[np.float32], foretold: NDArray[np.float32]
) -> NDArray[np.float32]:
    """[n, width]: for each place the mean of its values, and of SHRINK times what is foretold for it."""
    inside = place >= 0
    sums = np.asarray(foretold * SHRINK, np.float32)
    np.add.at(sums, place[inside], values[inside])
    counts = np.bincount(place[inside], minlength=len(foretold))
    return np.asarray(sums / (counts[:, None] + SHRINK), np.float32)
