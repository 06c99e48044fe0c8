"""d2t: what trainers store becomes ids of the target, whatever it holds."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gguftools.errors import InputError
from gguftools.verbs.convert.heads import target_ids

N = 60
VOCABULARY = np.arange(N)


@given(st.sets(st.integers(0, N - 1), min_size=1, max_size=N))
def test_distances_become_ids(chosen: set[int]) -> None:
    ids = np.array(sorted(chosen))
    found = target_ids(ids - np.arange(len(ids)), np.isin(VOCABULARY, ids), N)
    wanted = None if len(ids) == N else ids.tolist()
    assert (None if found is None else found.tolist()) == wanted


@given(st.sets(st.integers(0, N - 1), min_size=1, max_size=N - 1))
def test_ids_are_recognised_by_t2d_alone(chosen: set[int]) -> None:
    ids = np.array(sorted(chosen))
    found = target_ids(ids, np.isin(VOCABULARY, ids), N)
    assert found is not None
    assert found.tolist() == ids.tolist()


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=N))
def test_any_numbers_give_different_ids_of_the_vocabulary_or_an_error(numbers: list[int]) -> None:
    try:
        found = target_ids(np.array(numbers, np.int64), None, N)
    except InputError:
        return
    ids = VOCABULARY if found is None else found
    assert ids.dtype == np.int64
    assert len(set(ids.tolist())) == len(numbers)
    assert 0 <= ids.min() <= ids.max() < N


def test_a_t2d_that_nobody_filled_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = target_ids(np.array([3, 3, 4]), np.zeros(N, bool), N)
    assert found is not None
    assert found.tolist() == [3, 4, 6]
    assert not caplog.text


@pytest.mark.parametrize(
    ("d2t", "t2d", "said"),
    [([3, 3, 4], [0, 1, 2], "t2d marks other tokens"), ([6, 2, 0], [2, 3, 6], "ascending order")],
)
def test_what_is_odd_but_usable_is_told(
    d2t: list[int], t2d: list[int], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        found = target_ids(np.array(d2t), np.isin(VOCABULARY, t2d), N)
    assert found is not None
    assert found.tolist() == (np.array(d2t) + np.arange(3)).tolist()
    assert said in caplog.text
