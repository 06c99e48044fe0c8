"""Penalties over a row of floats come and go with a history, and are libllama's."""

from __future__ import annotations

import numpy as np
import pytest
import selection as twin
from candidates import distinct_row, libllama
from hypothesis import given, settings
from hypothesis import strategies as st

from gguftools import _native


@settings(max_examples=200, deadline=None)
@given(data=st.data(), n=st.integers(1, 12), last_n=st.integers(0, 9), seed=st.integers(0, 2**31))
def test_counts_follow_a_history_that_grows_and_shrinks(
    data: st.DataObject, n: int, last_n: int, seed: int
) -> None:
    """Whatever was tried and taken back, penalties are libllama's after the tokens that are there."""
    tokens = st.integers(0, n - 1)
    history = data.draw(st.lists(tokens, max_size=20), "prompt")
    counts = _native.Counts(n, last_n)
    counts.begin(data.draw(st.lists(tokens, max_size=5), "an older request"))
    counts.begin(history)
    for step in data.draw(st.lists(st.one_of(tokens, st.none()), max_size=30), "tokens, None: taken back"):
        if step is not None:
            history.append(step)
            counts.push(step)
        elif history:
            history.pop()
            counts.pop()
    values = (1.3, 0.25, 0.5)
    row = np.random.default_rng(seed).normal(0, 3, n).astype(np.float32)
    changed = row.copy()
    counts.penalize(changed, *values)
    assert (
        changed.tolist()
        == twin.penalized(row, history[len(history) - min(last_n, len(history)) :], *values).tolist()
    )
    theirs = libllama(row, (last_n, *values), history)
    assert {i: float(x) for i, x in enumerate(changed)} == theirs
    counts.unpenalize(changed)
    assert changed.tolist() == row.tolist()


@pytest.mark.parametrize("penalties", [(1.2, 0, 0), (1, 0.5, 0), (1, 0, 0.7), (0.9, -0.3, 0.2)])
def test_each_penalty_alone_is_libllamas(penalties: tuple[float, float, float]) -> None:
    history, row = [3, 3, 1, 7, 3, 0], distinct_row(1, 10, 2.0)
    counts, changed = _native.Counts(10, 4), row.copy()
    counts.begin(history)
    counts.penalize(changed, *penalties)
    assert dict(enumerate(changed.tolist())) == libllama(row, (4, *penalties), history)


@pytest.mark.parametrize("temperature", [0.2, 0.7, 1.0, 1.5])
@pytest.mark.parametrize("cut", [{}, {"top_k": 12, "top_p": 0.9}, {"top_p": 0.8, "min_p": 0.02}], ids=str)
def test_the_joint_law_of_two_penalised_tokens_is_libllamas(
    temperature: float, cut: dict[str, float]
) -> None:
    """The first token drawn changes the second's row."""
    n, draws, penalties = 6, 20_000, (1.4, 0.2, 0.3)
    row, prompt = distinct_row(8, n, 1.5), [2, 2, 5]
    expected, counts = np.zeros((n, n)), np.zeros((n, n))
    laws = {}
    for first in (None, *range(n)):
        tokens = prompt if first is None else [*prompt, first]
        left = libllama(row, (3, *penalties), tokens, temperature=temperature, **cut)
        law = np.full(n, -np.inf)
        law[list(left)] = list(left.values())
        laws[first] = np.exp(law - law.max()) / np.exp(law - law.max()).sum()
    for first in range(n):
        expected[first] = laws[None][first] * laws[first] * draws
    window, made = _native.Counts(n, 3), _native.Row(n, temperature=temperature, **cut)  # type: ignore[arg-type]
    window.begin(prompt)
    shown = row.copy()
    for seed in range(draws):
        pair = []
        for position in range(2):
            window.penalize(shown, *penalties)
            pair += made.fill(shown).draw(seed, position)
            window.unpenalize(shown)
            window.push(pair[-1])
        window.pop()
        window.pop()
        counts[tuple(pair)] += 1
    assert shown.tolist() == row.tolist()
    assert twin.fits(counts.ravel(), expected.ravel())


def test_two_tokens_that_share_a_place_in_a_drafts_row_are_put_back() -> None:
    row = np.array([1, 2], np.float32)
    counts = _native.Counts(4, 8)
    counts.begin([0, 1, 2, 3])
    to_own = np.array([1, 0, 1, 2], np.int32)
    changed = row.copy()
    counts.penalize(changed, 2.0, 0, 0, to_own)
    assert changed.tolist() == [0.5, 0.5]
    counts.unpenalize(changed, to_own)
    assert changed.tolist() == row.tolist()
    with pytest.raises(_native.EngineError, match="argument"):
        counts.penalize(changed, 2.0, 0, 0, to_own[:3])
    for wrong in (-1, 4):
        with pytest.raises(_native.EngineError, match="token"):
            counts.push(wrong)
