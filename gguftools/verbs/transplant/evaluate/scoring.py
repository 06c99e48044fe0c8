"""What a model says with given rows: its states times the head, a block of tokens at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ....libllama.states import Reader
from ..donor import Donor
from ..rows import NewRows

BLOCK = 8192  # head rows widened at a time
N_STATES = 512  # states scored at a time: with a block 16 MB of scores
MOST = 640 << 20  # bytes that a head may take as float32; a larger one is held as float16, and is slower


class OwnRows:
    """The donor's own tokens as NewRows, so that it is measured as a draft is."""

    def __init__(self, donor: Donor) -> None:
        self.n_tokens = donor.vocab.n_tokens
        bias = donor.output_bias
        self.bias = np.zeros(self.n_tokens, np.float32) if bias is None else bias
        self._donor = donor

    def input_rows(self, lo: int, hi: int) -> NDArray[np.float32]:
        return self._donor.embedding(np.arange(lo, hi, dtype=np.int32))

    def head_rows(self, lo: int, hi: int) -> NDArray[np.float32]:
        return self._donor.head(np.arange(lo, hi, dtype=np.int32))


class Head:
    """The head rows of all ids in memory, and their bias."""

    def __init__(self, rows: NewRows, most: int = MOST) -> None:
        self.bias = rows.bias.astype(np.float32)
        first = rows.head_rows(0, 1)
        shape = rows.n_tokens, first.shape[1]
        self.matrix = np.empty(shape, np.float32 if 4 * shape[0] * shape[1] <= most else np.float16)
        for lo in range(0, rows.n_tokens, BLOCK):
            hi = min(lo + BLOCK, rows.n_tokens)
            self.matrix[lo:hi] = rows.head_rows(lo, hi)

    @property
    def n_tokens(self) -> int:
        return len(self.bias)

    def blocks(self, states: NDArray[np.float32]) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """(lo, scores [n, up to BLOCK] of the ids from lo on) for states [n, n_embd]."""
        for lo in range(0, self.n_tokens, BLOCK):
            part = self.matrix[lo : lo + BLOCK].astype(np.float32, copy=False)
            yield lo, states @ part.T + self.bias[lo : lo + BLOCK]

    def logits(self, states: NDArray[np.float32]) -> NDArray[np.float32]:
        """[n, n_tokens] scores; n is to be small."""
        out = np.empty((len(states), self.n_tokens), np.float32)
        for lo, scores in self.blocks(states):
            out[:, lo : lo + BLOCK] = scores
        return out

    def probabilities(self, states: NDArray[np.float32], temperature: float = 1.0) -> NDArray[np.float32]:
        """[n, n_tokens]: softmax(scores / temperature); n is to be small."""
        out = self.logits(states)
        out -= out.max(1, keepdims=True)
        if temperature != 1.0:
            out /= np.float32(temperature)
        np.exp(out, out=out)
        out /= out.sum(1, keepdims=True)
        return out

    def judge(
        self, states: NDArray[np.float32], ids: NDArray[np.int32]
    ) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        """(nats, top), both [n]: -log of what state i gives ids[i], and the id that it gives most."""
        nats, top = np.empty(len(ids), np.float32), np.empty(len(ids), np.int32)
        for at in range(0, len(ids), N_STATES):
            some = slice(at, at + N_STATES)
            nats[some], top[some] = self._judge(states[some], ids[some])
        return nats, top

    def _judge(
        self, states: NDArray[np.float32], ids: NDArray[np.int32]
    ) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        n = len(ids)
        best, top = np.full(n, -np.inf, np.float32), np.zeros(n, np.int32)
        total, own = np.zeros(n), np.zeros(n, np.float32)
        for lo, scores in self.blocks(states):
            at = scores.argmax(1)
            high = scores[np.arange(n), at]
            here = (ids >= lo) & (ids < lo + scores.shape[1])
            own[here] = scores[here, ids[here] - lo]
            top = np.where(high > best, at + lo, top).astype(np.int32)
            newest = np.maximum(best, high)
            scores -= newest[:, None]
            total = total * np.exp(best - newest) + np.exp(scores, out=scores).sum(1)
            best = newest
        nats: NDArray[np.float32] = (best + np.log(total) - own).astype(np.float32)
        return nats, top


def input_rows(rows: NewRows, ids: Sequence[int] | NDArray[np.int32]) -> NDArray[np.float32]:
    """[len(ids), n_embd]: what a model reads for these ids."""
    kinds, place = np.unique(np.asarray(ids, np.int64), return_inverse=True)
    if not kinds.size:
        return rows.input_rows(0, 1)[:0]
    found = np.concatenate([rows.input_rows(i, i + 1) for i in kinds.tolist()])
    out: NDArray[np.float32] = found[place]
    return out


def read_text(
    reader: Reader, rows: NewRows, ids: Sequence[int] | NDArray[np.int32], start: NDArray[np.float32]
) -> NDArray[np.float32]:
    """[n, n_embd]: state i is what ids[i] is predicted from. `start` [k, n_embd]: rows of what is before."""
    text = input_rows(rows, ids[:-1])
    return reader.read(np.concatenate([start, text]))[len(start) - 1 :]
