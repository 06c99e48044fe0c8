"""Whether two texts of one target are the same, and if not, whether they part at a near tie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from ... import libllama
from ...errors import DecodeError
from ...libllama import compat, hardware
from .runs import Run

if TYPE_CHECKING:
    from ...session.model import Model

TIE = 0.2  # scores of one row differ by up to this between batch widths

Verdict = Literal["equal", "tie", "different", "unknown"]


@dataclass(frozen=True, slots=True)
class Match:
    """Two answers to one prompt.

    n_same: tokens until the first that differs, None where only the texts are known. gap: how far apart the
    target's scores of the two tokens lie that differ there; None where they were not scored.
    """

    verdict: Verdict
    n_same: int | None = None
    gap: float | None = None


def n_same(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two texts begin with alike."""
    for i, (ours, theirs) in enumerate(zip(one, other, strict=False)):
        if ours != theirs:
            return i
    return min(len(one), len(other))


def compare_texts(plain: Run, drafted: Run) -> Match:
    """For servers, whose scores are not at hand: equal or unknown."""
    return Match("equal" if plain.text == drafted.text else "unknown")


def compare_tokens(
    model: Model, n_ctx: int, prompt: Sequence[int], plain: Run, drafted: Run, *, scored: bool
) -> Match:
    """scored: the tokens were the largest raw scores, so that these tell a tie from a difference."""
    same = n_same(plain.tokens, drafted.tokens)
    if plain.tokens == drafted.tokens:
        return Match("equal", same)
    if not scored or same == min(len(plain.tokens), len(drafted.tokens)):
        return Match("unknown", same)
    row = scores(model, n_ctx, prompt, plain.tokens[:same])
    gap = float(abs(row[plain.tokens[same]] - row[drafted.tokens[same]]))
    return Match("tie" if gap <= TIE else "different", same, gap)


def scores(model: Model, n_ctx: int, prompt: Sequence[int], answer: Sequence[int]) -> NDArray[np.float32]:
    """The target's scores, [n_vocab], for what follows the answer, which is decoded token by token."""
    context = libllama.Context(model.target, libllama.ContextParams(n_ctx, hardware.physical_cores()))
    try:
        head, last = list(prompt[:-1]), [prompt[-1], *answer]
        for i in range(0, len(head), context.n_batch):
            _decode(context.handle, head[i : i + context.n_batch])
        for token in last:
            _decode(context.handle, [token])
        row = compat.library().llama_get_logits_ith(context.handle, -1)
        found: NDArray[np.float32] = np.ctypeslib.as_array(row, (model.target.n_vocab,)).copy()
    finally:
        context.close()
    return found


def _decode(context: int, tokens: Sequence[int]) -> None:
    lib = compat.library()
    ids = (lib.llama_token * len(tokens))(*tokens)  # the batch only points at them
    code = lib.llama_decode(context, lib.llama_batch_get_one(ids, len(tokens)))
    if code:
        raise DecodeError("the text could not be scored again", code=code)
