"""The share of each target token among those that begin with the same donor token.

Where the donor writes a token d next, the target's text goes on with one of the tokens whose first piece is
d. The head row of d gives them all the logit of d; log q(t | d), added to it, gives each its share, so that
together they have the probability of d.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

NEVER = -1e4  # added to the logit of an id that must never be drafted
RANK_OFFSET = 100.0  # a token of id i counts as 1 / (i + 100): tokenizers number their tokens by frequency
WHOLE = 3.0  # and three times as much where it is its first piece and nothing more
PSEUDO_COUNT = 15.0  # what the order of ids weighs beside the counts of a text
STEP = 2e-5  # between two biases: more than the rounding of a score below 100
SEVERAL = -1.0  # added for tokens of several pieces: nats per byte stay as they are, acceptance rises


def log_shares(
    first: NDArray[np.int32],
    several: NDArray[np.bool_],
    draftable: NDArray[np.bool_],
    counts: NDArray[np.float64] | None = None,
) -> NDArray[np.float32]:
    """[n_target] log q(t | first piece), NEVER where nothing may be drafted.

    first: donor id of each target id; several: whether it has more pieces; counts [n_target]: how often a
    text has the token where the donor has its first piece. q(t | d) = (count(t) + k · r(t)) / (Σ count + k)
    with Dirichlet smoothing: r(t) ∝ w / (id + 100) sums to 1 over the tokens of d, w = 3 for d's own bytes.
    SEVERAL is added to the logarithm of tokens of several pieces.
    """
    weight = np.where(several, 1.0, WHOLE) / (np.arange(len(first)) + RANK_OFFSET)
    weight = np.where(draftable, weight, 0.0)
    seen = np.zeros(len(first)) if counts is None else np.where(draftable, counts, 0.0)
    groups = int(first.max(initial=0)) + 1
    rank = weight / np.maximum(np.bincount(first, weight, groups), 1e-300)[first]
    total = np.bincount(first, seen, groups)[first]
    share = (seen + PSEUDO_COUNT * rank) / (total + PSEUDO_COUNT)
    bias = np.full(len(first), NEVER, np.float32)
    bias[draftable] = np.log(share[draftable]) + np.where(several[draftable], SEVERAL, 0.0)
    return bias


def apart(
    bias: NDArray[np.float32], group: NDArray[np.int32], draftable: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """The same, but those of a group (ids that may have the same head row) at least STEP apart, in their
    order; of two equal ones the lower id is above."""
    ids = np.flatnonzero(draftable)
    if not len(ids):
        return bias
    ids = ids[np.lexsort((ids, -bias[ids], group[ids]))]
    begins = np.flatnonzero(np.diff(group[ids], prepend=-1))
    rank = np.arange(len(ids)) - np.repeat(begins, np.diff(begins, append=len(ids)))
    # Least change that keeps a distance: the running minimum of bias + rank · STEP within each group.
    raised = bias[ids].astype(np.float64) + rank * STEP
    for lo, hi in zip(begins.tolist(), [*begins[1:].tolist(), len(ids)], strict=True):
        if hi - lo > 1:
            np.minimum.accumulate(raised[lo:hi], out=raised[lo:hi])
    out: NDArray[np.float32] = bias.copy()
    out[ids] = raised - rank * STEP
    return out
