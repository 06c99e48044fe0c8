"""A bias that is carried into the head."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lowlevel
import numpy as np
import pytest
import transplants as tp
from hypothesis import given, settings
from hypothesis import strategies as st

from gguftools import transplant
from gguftools.verbs.transplant import prior, unit
from gguftools.verbs.transplant.unit import Unit
from gguftools.verbs.transplant.write import folded, low_row


@pytest.fixture(scope="module")
def texts() -> list[Any]:
    """States with a part in common, as those after a last norm have."""
    random = np.random.default_rng(4)
    common = random.normal(size=32)
    return [(common + 0.4 * random.normal(size=(100, 32))).astype("f4") for _ in range(12)]


def test_a_folded_bias_is_added_to_every_score_within_its_spread(texts: list[Any]) -> None:
    found = unit.fit(texts[:8])
    assert 0.01 < found.spread < 0.3
    states = np.concatenate(texts[8:])
    assert np.std(states @ found.vector) < 1.5 * found.spread
    rows = np.random.default_rng(5).normal(size=(4, 32)).astype("f4")
    bias = np.array([0, -0.5, -1, 0.25], np.float32)
    added = states @ found.fold(rows, bias).T - states @ rows.T
    lowered = found.lowered(bias)
    assert np.abs(added - lowered).max() < 6 * found.spread
    assert np.exp(added).mean(0) == pytest.approx(np.exp(bias), rel=0.05)
    assert (found.fold(rows, bias)[0] == rows[0]).all()


@given(st.floats(-30, 3), st.floats(0, 0.5))
def test_a_bias_is_lowered_until_the_mean_of_its_exp_is_right(bias: float, spread: float) -> None:
    one = Unit(np.ones(2, np.float32), spread)
    (b,) = one.lowered(np.array([bias], np.float32))
    lowest = -1 / max(spread**2, 1e-9)
    if 1 + 2 * max(spread**2, 1e-9) * bias > 0:
        assert b + spread**2 * b**2 / 2 == pytest.approx(bias, abs=1e-3)
        assert b >= lowest
    else:
        assert b == pytest.approx(lowest)


def test_one_text_is_enough_for_a_vector(texts: list[Any]) -> None:
    assert unit.fit(texts[:1]).vector.shape == (32,)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_an_id_that_must_not_be_drafted_has_never_the_best_score(seed: int, fold: bool) -> None:
    """Whatever the state is, also where u · h is far from 1."""
    random = np.random.default_rng(seed)
    n = int(random.integers(2, 700))
    matrix = random.normal(size=(n, 8)).astype("f4")
    bias = np.where(random.random(n) < 0.4, prior.NEVER, -5 * random.random(n)).astype("f4")
    bias[0] = 0
    rows: Any = SimpleNamespace(n_tokens=n, bias=bias, head_rows=lambda lo, hi: matrix[lo:hi])
    one = Unit(random.normal(size=8).astype("f4"), 0.3) if fold else None
    scores = random.normal(size=(50, 8)) * 10 @ folded(matrix, bias, one, low_row(rows, one)).T
    may = bias > prior.NEVER / 2
    assert may[scores.argmax(1)].all() or may.sum() == 1


def test_where_nothing_may_be_drafted_all_rows_are_zero() -> None:
    never = np.full(3, prior.NEVER, np.float32)
    rows: Any = SimpleNamespace(n_tokens=3, bias=never, head_rows=lambda lo, hi: np.ones((hi - lo, 4), "f4"))
    assert not folded(np.ones((3, 4), np.float32), never, None, low_row(rows, None)).any()


@pytest.mark.parametrize("outtype", ["q8_0", "f16"])
@pytest.mark.parametrize("kind", ["qwen3", "llama, llama3 frequencies"])
def test_a_draft_with_its_bias_in_the_head_proposes_no_special_token_in_any_text(
    tmp_path: Path, kind: str, outtype: Any
) -> None:
    """Random donors' states have little in common, so their u · h is as bad as it gets."""
    donor = tp.donor_gguf(tmp_path, tp.DONORS[kind])
    target = tp.write_target(tmp_path / "target")
    assert transplant(donor, target, tmp_path / "d.gguf", outtype=outtype).ties == 0
    may = tp.aligned(target, donor).draftable
    for seed in range(4):
        ids = np.random.default_rng(seed).integers(0, 269, 250).tolist()
        assert may[lowlevel.logits(tmp_path / "d.gguf", ids).argmax(1)].all()
