"""`coupled` and `reject` over rows of a draft and a target: laws, agreement, ids of the draft's own."""

from __future__ import annotations

import numpy as np
import pytest
import selection as twin
from candidates import Floats
from hypothesis import given, settings
from hypothesis import strategies as st

from gguftools import _native

HUGE = 163_840


def pair_of_rows(seed: int, n: int, distance: float) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    p = rng.normal(0, 2, n).astype(np.float32)
    return p, (p + rng.normal(0, distance, n)).astype(np.float32)


CUTS = [{}, {"top_k": 8}, {"top_p": 0.8}, {"top_k": 12, "min_p": 0.05}]


@pytest.mark.parametrize("temperature", [0.2, 0.7, 1.0, 1.5])
@pytest.mark.parametrize("p_cut", CUTS, ids=str)
@pytest.mark.parametrize("q_cut", CUTS, ids=str)
def test_reject_emits_the_targets_law(
    temperature: float, p_cut: dict[str, float], q_cut: dict[str, float]
) -> None:
    n, draws = 30, 20_000
    p_row, q_row = pair_of_rows(3, n, 1.5)
    p = _native.Row(n, temperature=temperature, **p_cut).fill(p_row)  # type: ignore[arg-type]
    q = _native.Row(n, temperature=0.9, **q_cut).fill(q_row)  # type: ignore[arg-type]
    exact = twin.probabilities(p_row, temperature, twin.kept(p_row, **p_cut))  # type: ignore[arg-type]
    counts = np.bincount(p.reject(q, 13, 0, draws), minlength=n).astype(float)
    assert twin.fits(counts, exact * draws)


@pytest.mark.parametrize("rule", ["coupled", "reject"])
def test_similar_rows_agree_as_often_as_the_rule_promises(rule: str) -> None:
    """coupled: at least (1 - TV) / (1 + TV); reject: 1 - TV."""
    n, draws = 300, 20_000
    for distance in (0.0, 0.3, 2.0):
        p_row, q_row = pair_of_rows(5, n, distance)
        p, q = (_native.Row(n).fill(row) for row in (p_row, q_row))
        tv = abs(twin.probabilities(p_row, 1.0) - twin.probabilities(q_row, 1.0)).sum() / 2
        drafted = q.draw(1, 0, draws)
        emitted = p.draw(1, 0, draws) if rule == "coupled" else p.reject(q, 1, 0, draws)
        agreed = float(np.mean(np.array(drafted) == emitted))
        slack = 4 * 0.5 / draws**0.5
        assert agreed > ((1 - tv) / (1 + tv) if rule == "coupled" else 1 - tv) - slack
        if rule == "reject":
            assert agreed < 1 - tv + slack


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**31), n=st.sampled_from([1, 2, 40, 65, 1500]),
    scale=st.sampled_from([0.0, 1e-6, 1, 30]), holes=st.sampled_from([0.0, 0.5]),
    p_cut=st.sampled_from(CUTS), q_cut=st.sampled_from(CUTS),
)  # fmt: skip
def test_what_replaces_a_refused_token_is_more_likely_for_the_target_than_for_the_draft(
    seed: int, n: int, scale: float, holes: float, p_cut: dict[str, float], q_cut: dict[str, float]
) -> None:
    rng = np.random.default_rng(seed)
    p_row, q_row = pair_of_rows(seed, n, scale)
    p_row[rng.random(n) < holes] = -np.inf
    if not np.isfinite(p_row).any():
        return
    p, q = _native.Row(n, **p_cut).fill(p_row), _native.Row(n, **q_cut).fill(q_row)  # type: ignore[arg-type]
    left = max(0.0, max(p.probability(i) - q.probability(i) for i in range(n)))
    for position in range(10):
        token = p.residual(q, seed, position)
        assert p.probability(token) > 0
        if left > 1e-5:
            assert p.probability(token) > q.probability(token) * (1 - 2e-6)


def test_a_residual_has_its_law_in_a_large_vocabulary() -> None:
    p_row, q_row = pair_of_rows(2, HUGE, 1.0)
    p, q = (_native.Row(HUGE).fill(row) for row in (p_row, q_row))
    exact = np.maximum(0, twin.probabilities(p_row, 1.0) - twin.probabilities(q_row, 1.0))
    cells = np.arange(HUGE) % 101 * (p_row > 3)
    draws = 1500
    counts = np.bincount([p.residual(q, 17, i) for i in range(draws)], minlength=HUGE).astype(float)
    assert counts[exact <= 0].sum() == 0
    assert twin.fits(np.bincount(cells, counts), np.bincount(cells, exact / exact.sum()) * draws)


def test_a_kept_token_is_one_the_target_wants_too() -> None:
    p_row, q_row = pair_of_rows(9, 50, 1.0)
    p, q = _native.Row(50, top_k=10).fill(p_row), _native.Row(50, top_k=20).fill(q_row)
    for token in range(50):
        ratio = p.probability(token) / q.probability(token) if q.probability(token) else np.inf
        for uniform in (1e-12, 0.3, 0.999999):
            assert p.accepts(q, token, uniform) == (ratio > uniform and p.probability(token) > 0)


@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_a_draft_with_ids_of_its_own_draws_the_targets(cut: dict[str, float]) -> None:
    """The same tokens as of the row that stands in the target's order, and none that the target lacks."""
    n, n_own = 90, 70
    rng = np.random.default_rng(12)
    to_target = np.full(n_own, -1, np.int32)
    known = rng.permutation(n_own)[:60]
    to_target[known] = rng.permutation(n)[:60]
    own = rng.normal(0, 2, n_own).astype(np.float32)
    moved = np.full(n, -np.inf, np.float32)
    moved[to_target[known]] = own[known]
    ours = _native.Row(n_own, to_target=to_target, **cut).fill(own.copy())  # type: ignore[arg-type]
    theirs = _native.Row(n, **cut).fill(moved)  # type: ignore[arg-type]
    assert ours.draw(4, 0, 3000) == theirs.draw(4, 0, 3000)
    assert [ours.probability(i) for i in range(n)] == pytest.approx([theirs.probability(i) for i in range(n)])
    assert ours.probability(-1) == 0
    p = _native.Row(n, temperature=1.2).fill(rng.normal(0, 2, n).astype(np.float32))
    assert p.reject(ours, 8, 0, 3000) == p.reject(theirs, 8, 0, 3000)


def test_a_row_outlives_its_logits_when_it_owns_them() -> None:
    for cut in CUTS:
        logits = np.random.default_rng(1).normal(0, 2, 100).astype(np.float32)
        row = _native.Row(100, **cut).fill(logits)  # type: ignore[arg-type]
        before = row.draw(2, 0, 50), [row.probability(i) for i in range(100)]
        row.own(np.zeros(100, np.float32))
        logits[:] = 0
        assert (row.draw(2, 0, 50), [row.probability(i) for i in range(100)]) == before


def test_wrong_sizes_are_refused() -> None:
    with pytest.raises(_native.EngineError, match="argument"):
        _native.Row(0)
    with pytest.raises(_native.EngineError, match="argument"):
        _native.Row(3, to_target=np.zeros(2, np.int32))
    row = _native.Row(3)
    with pytest.raises(_native.EngineError, match="order"):
        row.draw(0, 0)
    with pytest.raises(_native.EngineError, match="argument"):
        row.fill(np.zeros(4, np.float32))
    row.fill(np.zeros(3, np.float32))
    with pytest.raises(_native.EngineError, match="argument"):
        row.residual(_native.Row(4).fill(np.zeros(4, np.float32)), 0, 0)
    with pytest.raises(_native.EngineError, match="argument"):
        row.own(np.zeros(2, np.float32))
