"""The chain over rows of floats keeps what libllama's keeps and draws by its law."""

from __future__ import annotations

import numpy as np
import pytest
import selection as twin
from candidates import Candidates, Floats, distinct_row, libllama, parts
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_api import Chain

from gguftools import _native

HUGE = 163_840
TRUNCATIONS = [
    {},
    {"top_k": 40},
    {"top_p": 0.9},
    {"min_p": 0.05},
    {"top_p": 0.95, "min_p": 0.02},
    {"top_k": 30, "top_p": 0.8, "min_p": 0.02},
    {"top_k": 1},
    {"top_p": 0.0},
    {"min_p": 1.0},
]


def on_a_border(row: Floats, top_k: int = 0, top_p: float = 1.0, **_: float) -> bool:
    """Whether a running sum comes so close to top_p that rounding decides."""
    order = twin.ranked(row)[: top_k or None]
    weights = np.exp(row[order].astype(float) - float(row[order[0]]))
    return top_p < 1 and bool((abs(np.cumsum(weights) / weights.sum() - np.float32(top_p)) < 2e-6).any())


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 2**31), n=st.sampled_from([1, 2, 17, 64, 100, 1025, 3000]),
    scale=st.sampled_from([0.1, 2.0, 8.0]), temperature=st.sampled_from([0.2, 0.7, 1.0, 1.5]),
    top_k=st.sampled_from([0, 1, 5, 40, 5000]), top_p=st.sampled_from([0.0, 0.3, 0.9, 0.95, 0.999, 1.0]),
    min_p=st.sampled_from([0.0, 0.02, 0.5, 1.0]),
)  # fmt: skip
def test_the_chain_keeps_what_libllamas_keeps_with_its_probabilities(
    seed: int, n: int, scale: float, temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    row, cut = distinct_row(seed, n, scale), {"top_k": top_k, "top_p": top_p, "min_p": min_p}
    if on_a_border(row, **cut):
        return
    wanted = libllama(row, temperature=temperature, **cut)
    made = _native.Row(n, temperature=temperature, **cut).fill(row)
    assert {i for i, _ in made.kept} == set(wanted)
    assert all(x == row[i] for i, x in made.kept)
    logits = np.array(list(wanted.values()))
    weights = np.exp(logits - logits.max())
    ours = [made.probability(i) for i in wanted]
    assert ours == pytest.approx(weights / weights.sum(), rel=1e-4, abs=1e-9)
    assert sum(made.probability(i) for i in set(range(n)) - set(wanted)) == 0


def test_top_k_then_top_p_have_libllamas_borders_to_the_last_bit() -> None:
    """Equal logits: their running sum meets top_p, and float rounding decides."""
    for n in range(2, 200):
        row = np.linspace(0, -1e-6, n).astype(np.float32)
        for top_p in (0.5, 0.75, 0.9):
            made = _native.Row(n, top_k=n - 1, top_p=top_p).fill(row)
            assert len(made.kept) == len(libllama(row, top_k=n - 1, top_p=top_p))


@settings(max_examples=200, deadline=None)
@given(
    n=st.sampled_from([1, 2, 3, 17, 64, 65, 1025, 3000]), cut=st.sampled_from(TRUNCATIONS),
    scale=st.sampled_from([0.1, 3, 20]), ties=st.booleans(), holes=st.sampled_from([0.0, 0.3, 0.97]),
    hole=st.sampled_from([-np.inf, np.nan]), seed=st.integers(0, 2**32),
)  # fmt: skip
def test_of_equal_logits_the_lower_ids_are_kept_and_what_is_no_number_never(
    n: int, cut: dict[str, float], scale: float, ties: bool, holes: float, hole: float,
    seed: int,
) -> None:  # fmt: skip
    rng = np.random.default_rng(seed)
    row = rng.normal(0, scale, n).astype(np.float32)
    row = np.round(row) if ties else row
    row[rng.random(n) < holes] = hole
    made = _native.Row(n, **cut)  # type: ignore[arg-type]
    if not (twin.clean(row) > -np.inf).any():
        with pytest.raises(_native.EngineError, match="no finite number"):
            made.fill(row)
        return
    if on_a_border(twin.clean(row), **cut):
        return
    made.fill(row)
    wanted = twin.kept(row, **cut)  # type: ignore[arg-type]
    found = {i for i, x in made.kept if x > -np.inf}
    assert found == set(wanted)
    assert set(made.draw(seed, 0, 20)) <= set(wanted)


def test_a_greedy_or_infinite_row_leaves_one_token() -> None:
    row = np.array([1, 3, 3, np.nan], np.float32)
    for temperature in (0.0, -1.0, 1e-45):
        made = _native.Row(4, temperature=temperature).fill(row)
        assert [i for i, _ in made.kept] == made.draw(1, 1) == [1]
        assert [made.probability(i) for i in range(4)] == [0, 1, 0, 0]
    row[2] = np.inf
    for cut in TRUNCATIONS:
        made = _native.Row(4, **cut).fill(row)  # type: ignore[arg-type]
        assert made.draw(1, 0, 9) == [2] * 9
        assert made.probability(2) == 1


# ---- the law of draws ----


@pytest.mark.parametrize("temperature", [0.2, 0.7, 1.0, 1.5])
@pytest.mark.parametrize("cut", TRUNCATIONS[:6], ids=str)
def test_draws_have_the_law_that_libllama_computes(temperature: float, cut: dict[str, float]) -> None:
    n, draws = 60, 40_000
    row = distinct_row(4, n, 2.0)
    wanted = libllama(row, temperature=temperature, **cut)
    expected = np.full(n, -np.inf)
    expected[list(wanted)] = list(wanted.values())
    expected = np.exp(expected - expected.max())
    counts = np.bincount(
        _native.Row(n, temperature=temperature, **cut).fill(row).draw(7, 0, draws), minlength=n
    )  # type: ignore[arg-type]
    assert twin.fits(counts.astype(float), expected / expected.sum() * draws)


@pytest.mark.parametrize("cut", [{}, {"top_p": 0.9}, {"top_k": 500, "min_p": 0.001}], ids=str)
def test_draws_from_a_large_vocabulary_have_its_law(cut: dict[str, float]) -> None:
    draws, temperature = 3000, 0.7
    row = np.random.default_rng(3).normal(0, 1.5, HUGE).astype(np.float32)
    row[::4001] += 9
    made = _native.Row(HUGE, temperature=temperature, **cut).fill(row)  # type: ignore[arg-type]
    exact = twin.probabilities(row, temperature, twin.kept(row, **cut))  # type: ignore[arg-type]
    counts = np.bincount(made.draw(21, 0, draws), minlength=HUGE).astype(float)
    likely, group = row > 7, np.arange(HUGE) % 50
    for cells in (np.where(likely, 50 + np.cumsum(likely), group), np.searchsorted([-2, 0, 2, 4, 6], row)):
        assert twin.fits(np.bincount(cells, counts), np.bincount(cells, exact) * draws)


def test_libllamas_own_draws_have_the_same_law() -> None:
    n, draws, values = 40, 20_000, {"temperature": 0.8, "top_k": 30, "top_p": 0.9}
    row = distinct_row(6, n, 2.0)
    chain, counts = Chain(*parts(**values, dist=5)), np.zeros((2, n))  # type: ignore[arg-type]
    with chain:
        for _ in range(draws):
            some = Candidates(row)
            some.apply(chain)
            counts[0, some.data["id"][some.array.selected]] += 1
    ours = _native.Row(n, **values).fill(row).draw(5, 0, draws)  # type: ignore[arg-type]
    counts[1] = np.bincount(ours, minlength=n)
    assert ((counts[0] > 0) == (counts[1] > 0)).all()
    seen = counts[:, counts[1] > 0]
    chi = ((seen[0] - seen[1]) ** 2 / (seen[0] + seen[1])).sum()
    assert chi < twin.chi_square_limit(seen.shape[1] - 1)
