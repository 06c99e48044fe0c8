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
    bias: NDArray[np.float32], first: NDArray[np.int32], draftable: NDArray[np.bool_]
) -> NDArray[np.float32]:
    """The same, but equal ones of a group one step of float32 apart, the lower id above."""
    bias = bias.copy()
    ids = np.flatnonzero(draftable)
    order = ids[np.lexsort((ids, -bias[ids], first[ids]))].tolist()
    group, last = -1, np.float32(0)
    for i in order:
        if first[i] == group and bias[i] >= last:
            bias[i] = np.nextafter(last, np.float32(-np.inf))
        group, last = first[i], bias[i]
    return bias
