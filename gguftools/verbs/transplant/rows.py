"""The rows of the new vocabulary: what `write` asks for, and the rule that needs no text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from .align import Alignment
    from .donor import Donor

NEVER = -1e4  # added to the logit of an id that must never be drafted


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
        own = 0.0 if donor.output_bias is None else donor.output_bias[self.first]
        self.bias = np.where(alignment.draftable & ~empty, own, NEVER).astype(np.float32)
        self._donor = donor

    def input_rows(self, lo: int, hi: int) -> NDArray[np.float32]:
        return self._donor.embedding(self.last[lo:hi])

    def head_rows(self, lo: int, hi: int) -> NDArray[np.float32]:
        return self._donor.head(self.first[lo:hi])
