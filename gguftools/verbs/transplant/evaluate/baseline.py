"""The rule of the known tool (jukofyork/transplant-vocab), from its description, to compare with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ....vocab import TokenType, Vocab
from ..donor import Donor
from ..spelling import token_bytes
from ..tokenizing import Tokenizer

DECAY = 0.5
# Kimi's tokenizer_config.json names [EOS]; a GGUF's eos is what ends a turn, <|im_end|>.
_KIMI = {"bos": "[BOS]", "eos": "[EOS]", "pad": "[PAD]"}


class BaselineRows:
    """NewRows by text: target.decode([id]), spelled by the donor's tokenizer with its special tokens parsed.

    Input row: the last piece's. Head row: the mean of the pieces', weighted DECAY^i. No bias. bos, eos and
    pad are mapped by name, all other special tokens are text. Bytes that are no UTF-8 become U+FFFD; a
    SentencePiece token loses its leading space. Ids without text are zero.
    """

    def __init__(self, target: Vocab, donor: Donor, spelling: Tokenizer) -> None:
        pieces = [spelling.encode(text, parse_special=True) for text in _decoded(target)]
        for name, ours in _named(target).items():
            if (theirs := donor.vocab.special.get(name)) is not None and ours < target.n_tokens:
                pieces[ours] = [theirs]
        self.n_tokens = target.n_tokens
        self.bias = np.zeros(self.n_tokens, np.float32)
        self.starts = np.zeros(self.n_tokens + 1, np.int64)
        np.cumsum([len(some) for some in pieces], out=self.starts[1:])
        self.pieces = np.array([i for some in pieces for i in some], np.int32)
        self._donor = donor

    def input_rows(self, lo: int, hi: int) -> NDArray[np.float32]:
        starts = self.starts[lo : hi + 1]
        out = np.zeros((hi - lo, self._donor.n_embd), np.float32)
        some = np.flatnonzero(np.diff(starts))
        out[some] = self._donor.embedding(self.pieces[starts[some + 1] - 1])
        return out

    def head_rows(self, lo: int, hi: int) -> NDArray[np.float32]:
        starts = self.starts[lo : hi + 1]
        pieces = self.pieces[starts[0] : starts[-1]]
        sizes = np.diff(starts)
        weights = DECAY ** (np.arange(len(pieces)) - np.repeat(starts[:-1] - starts[0], sizes))
        out = np.zeros((hi - lo, self._donor.n_embd), np.float32)
        some = np.flatnonzero(sizes)
        if some.size:
            rows = self._donor.head(pieces) * weights[:, None].astype(np.float32)
            at = (starts[some] - starts[0]).astype(np.intp)
            out[some] = np.add.reduceat(rows, at) / np.add.reduceat(weights, at)[:, None]
        return out


def _decoded(target: Vocab) -> list[str]:
    """What decode([id]) gives as text; "" for places beyond the tokenizer."""
    texts = [data.decode("utf-8", "replace") for data in token_bytes(target)]
    if target.model == "llama":
        texts = [text.removeprefix(" ") for text in texts]
    for i in np.flatnonzero(target.types == TokenType.UNUSED).tolist():
        texts[i] = ""
    return texts


def _named(target: Vocab) -> dict[str, int]:
    named = {name: target.special[name] for name in _KIMI if name in target.special}
    if target.is_kimi:
        found = {name: target.id_of(text.encode()) for name, text in _KIMI.items()}
        named |= {name: i for name, i in found.items() if i is not None}
    return named
