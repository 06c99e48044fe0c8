"""The rows of the new vocabulary: what `write` asks for, and how they are made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from .align import Alignment, Kind
from .inputs import Joiner
from .prior import NEVER as NEVER
from .prior import apart, log_shares

if TYPE_CHECKING:
    from ...vocab import Vocab
    from .donor import Donor
    from .lens import Lens


ROLES = (b"assistant", b"user", b"system", b"human", b"model", b"developer", b"tool", b"function")


def read_as_last(target: Vocab) -> list[int]:
    """Ids that are read as their last piece: words that templates write after a turn's start.

    There the last piece alone is what the donor knows: with joined rows for SmolLM2's ass|istant it ended its
    turn before the first word.
    """
    return [i for word in ROLES if (i := target.id_of(word)) is not None]


def numbers(target: Vocab) -> list[int]:
    """Ids of digits alone: see inputs.Joiner.rows."""
    return [i for i, text in enumerate(target.texts.tolist()) if text.isdigit()]


class NewRows(Protocol):
    """Rows for the target's ids, made when asked for, from any thread."""

    n_tokens: int
    bias: NDArray[np.float32]  # [n_tokens], added to the logits; about NEVER where nothing may be drafted

    def input_rows(self, lo: int, hi: int) -> NDArray[np.float32]:
        """[hi - lo, n_embd]: rows of token_embd for the ids lo … hi - 1."""

    def head_rows(self, lo: int, hi: int) -> NDArray[np.float32]:
        """[hi - lo, n_embd]: rows of output."""


class PlainRows:
    """Reads an id as its last donor token, and scores it as its first: what comes next is seen of that alone.

    An id without any donor token has the row of the donor's padding, and is never drafted.
    """

    def __init__(self, alignment: Alignment, donor: Donor) -> None:
        starts, pieces = alignment.starts, alignment.pieces
        self.n_tokens = len(starts) - 1
        special = donor.vocab.special
        spare = next((special[name] for name in ("pad", "eos", "bos") if name in special), 0)
        some = np.append(pieces, np.int32(spare if spare < donor.vocab.n_tokens else 0))
        empty = starts[1:] == starts[:-1]
        self.first = some[np.where(empty, -1, starts[:-1])]
        self.last = some[np.where(empty, -1, starts[1:] - 1)]
        self.draftable = alignment.draftable & ~empty
        own = 0.0 if donor.output_bias is None else donor.output_bias[self.first]
        self.bias = np.where(self.draftable, own, NEVER).astype(np.float32)
        self._donor = donor

    def input_rows(self, lo: int, hi: int) -> NDArray[np.float32]:
        return self._donor.embedding(self.last[lo:hi])

    def head_rows(self, lo: int, hi: int) -> NDArray[np.float32]:
        return self._donor.head(self.first[lo:hi])


class MadeRows:
    """What `transplant` writes: PlainRows with shares, joined input rows and a Lens, where there is one.

    `joint`: see inputs.fit; `lens`: see lens.fit. Only ids of several pieces (Kind.PIECES) are changed by
    them. `unjoined`: ids that are read as their last piece all the same, see read_as_last; `numbers`: see
    numbers.
    """

    def __init__(
        self,
        alignment: Alignment,
        donor: Donor,
        counts: NDArray[np.float64] | None = None,
        joint: NDArray[np.float32] | None = None,
        lens: Lens | None = None,
        unjoined: Sequence[int] = (),
        numbers: Sequence[int] = (),
    ) -> None:
        self._plain = plain = PlainRows(alignment, donor)
        self._donor, self._lens = donor, lens
        self._joiner = None if joint is None else Joiner(donor, alignment, joint)
        self._several = several = alignment.kind == Kind.PIECES
        self._joined = several.copy()
        self._joined[list(unjoined)] = False
        self._summed = np.zeros(plain.n_tokens, bool)
        self._summed[list(numbers)] = True
        self._second = np.zeros(plain.n_tokens, np.int32)
        self._second[several] = alignment.pieces[alignment.starts[:-1][several] + 1]
        self.n_tokens = plain.n_tokens
        shares = log_shares(plain.first, several, plain.draftable, counts)
        if lens is not None:
            shares[several] += lens.bias(donor, plain.first[several], self._second[several])
        self.bias = np.where(plain.draftable, plain.bias + shares, NEVER).astype(np.float32)
        self.bias = apart(self.bias, donor.twins()[plain.first], plain.draftable)

    def input_rows(self, lo: int, hi: int) -> NDArray[np.float32]:
        rows = self._plain.input_rows(lo, hi)
        joined = np.flatnonzero(self._joined[lo:hi]) + lo
        if self._joiner is not None and len(joined):
            rows[joined - lo] = self._joiner.rows(joined, self._summed[joined])
        return rows

    def head_rows(self, lo: int, hi: int) -> NDArray[np.float32]:
        rows = self._plain.head_rows(lo, hi)
        several = np.flatnonzero(self._several[lo:hi]) + lo
        if self._lens is not None and len(several):
            first, second = self._plain.first[several], self._second[several]
            rows[several - lo] += self._lens.rows(self._donor, first, second)
        return rows
