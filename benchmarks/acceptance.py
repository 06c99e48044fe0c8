"""How many tokens of a draft a target accepts, found by having both read the target's own text.

Greedy: the target's text is given, so a draft is accepted while its likeliest token is the text's. Sampled
(Leviathan, Kalman and Matias 2023): on text x that the target sampled, the expected length of a round that
begins before x_1 is 1 + Σ_k E[Π_{i<k} min(1, q(x_i) / p(x_i)) · Σ_y min(p_k(y), q_k(y))], k = 1 … 4: the
first factors turn the target's text into accepted text, the last is summed over all tokens instead of drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from answers import Answer
from numpy.typing import NDArray

from gguftools.verbs.transplant.evaluate.scoring import Head, input_rows
from gguftools.verbs.transplant.evaluate.setup import Setup
from gguftools.verbs.transplant.rows import NewRows

DRAFTED = 4


@dataclass(frozen=True, slots=True)
class Rounds:
    """Of one answer: its tokens and rounds (greedy), or the sum of expected lengths and the starts."""

    tokens: float
    rounds: int


@dataclass(frozen=True, slots=True)
class Sampled:
    """Of one answer: Rounds over all its starts, and Σ min(p, q) summed over its places."""

    rounds: Rounds
    overlap: float
    places: int


def states(setup: Setup, rows: NewRows, answer: Answer) -> NDArray[np.float32]:
    """[n, n_embd]: what each token of the answer is drafted from."""
    read = setup.reader.read(input_rows(rows, [*answer.prompt, *answer.ids[:-1]]))
    return read[len(answer.prompt) - 1 :]


def greedy(setup: Setup, rows: NewRows, head: Head, found: Sequence[Answer]) -> list[Rounds]:
    """The rounds of each answer, which the target wrote greedily."""
    out = []
    for answer in found:
        ids = np.array(answer.ids, np.int32)
        out.append(rounds(head.judge(states(setup, rows, answer), ids)[1] == ids))
    return out


def rounds(hits: NDArray[np.bool_]) -> Rounds:
    """Rounds of at most DRAFTED accepted tokens and one of the target's own.

    >>> rounds(np.array([True, True, False, True, False, False]))
    Rounds(tokens=6, rounds=3)
    """
    at = count = 0
    while at < len(hits):
        drafted = hits[at : at + DRAFTED]
        at += (int(np.argmin(drafted)) if not drafted.all() else len(drafted)) + 1
        count += 1
    return Rounds(len(hits), count)


def sampled(
    setup: Setup,
    p: NDArray[np.float32],
    drafts: Mapping[str, tuple[NewRows, Head]],
    answer: Answer,
    temperature: float,
) -> dict[str, Sampled]:
    """Of each draft, on an answer that the target sampled from p [n, n_tokens] at this temperature."""
    out, ids = {}, np.array(answer.ids)
    at = np.arange(len(ids))
    for name, (rows, head) in drafts.items():
        q = head.probabilities(states(setup, rows, answer), temperature)
        accepted = np.minimum(1.0, q[at, ids] / np.maximum(p[at, ids], 1e-30))
        overlap = np.minimum(p, q).sum(1)
        out[name] = Sampled(expected(accepted, overlap), float(overlap.sum()), len(overlap))
    return out


def expected(accepted: NDArray[np.floating], overlap: NDArray[np.floating]) -> Rounds:
    """The expected lengths of rounds from all starts that have DRAFTED places before them, summed.

    accepted, overlap [n]: min(1, q / p) of the text's token, Σ min(p, q).
    """
    starts = max(0, len(accepted) - DRAFTED + 1)
    length, reached = np.ones(starts), np.ones(starts)
    for k in range(DRAFTED):
        length += reached * overlap[k : k + starts]
        reached *= accepted[k : k + starts]
    return Rounds(float(length.sum()), starts)
