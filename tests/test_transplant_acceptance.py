"""Intervals, and how many drafted tokens are accepted."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

from gguftools.intervals import bootstrap, ratio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
import acceptance


def test_an_interval_holds_the_mean_of_what_it_was_drawn_from() -> None:
    values = np.random.default_rng(0).normal(5, 1, 200)
    found = ratio(values)
    assert found.value == pytest.approx(values.mean())
    assert found.low < found.value < found.high
    assert 0.2 < found.high - found.low < 0.4  # 2 · 1.96 · σ / √n is 0.28
    assert ratio(np.full(5, 2.0), np.full(5, 4.0)) == ratio(np.ones(3), np.full(3, 2.0))
    assert math.isnan(bootstrap(0, lambda w: w.sum(1)).value)


def test_rounds_end_with_a_token_of_the_target() -> None:
    def of(text: str) -> tuple[float, int]:
        found = acceptance.rounds(np.array([letter == "1" for letter in text]))
        return found.tokens, found.rounds

    assert of("110100") == (6, 3)
    assert of("11111") == (5, 1)
    assert of("1111011111") == (10, 2)
    assert of("000") == (3, 3)


def test_the_expected_length_is_that_of_simulated_rounds() -> None:
    rng = np.random.default_rng(1)
    p, q = rng.dirichlet(np.ones(4), 4), rng.dirichlet(np.ones(4), 4)
    n = 100_000
    text = np.stack([rng.choice(4, n, p=row) for row in p], 1)  # what the target writes
    at = np.arange(4)
    overlap = np.minimum(p, q).sum(1)
    lengths = np.mean(
        [acceptance.expected(np.minimum(1, q[at, row] / p[at, row]), overlap).tokens for row in text[:20_000]]
    )
    drafted = np.stack([rng.choice(4, n, p=row) for row in q], 1)
    kept = rng.random((n, 4)) < p[at, drafted] / q[at, drafted]
    simulated = 1 + np.cumprod(kept, 1).sum(1).mean()
    assert lengths == pytest.approx(simulated, abs=0.02)
