"""The parts of pace: costs from noisy clocks, chances from outcomes, rounds of any kind, what is kept."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pace_world import COSTS, F16, MODEL, NGRAM, aware, calibrate, noisy, on_line, run

from gguftools._native import Pace

Told = tuple[int, tuple[int, int, int], int, int, float, int, bool]
FLOATS = len(Pace().save())


def measured(table: dict[int, float], times: int = 5) -> Pace:
    pace = Pace()
    for _ in range(times):
        for n, ms in table.items():
            pace.verified(n, int(ms * 1000))
    return pace


def test_a_cost_follows_the_median_and_not_the_mean() -> None:
    rng, pace = np.random.default_rng(0), Pace()
    for _ in range(300):
        pace.verified(4, noisy(rng, 174))
    assert pace.verify_us(4) == pytest.approx(174_000, rel=0.06)


def test_a_first_call_ten_times_as_long_is_forgotten_with_the_second() -> None:
    pace = Pace()
    for us in (800_000, 80_000):
        pace.verified(1, us)
    assert pace.verify_us(1) == 80_000


def test_one_outlier_of_a_larger_batch_is_bounded_by_what_is_known_of_others() -> None:
    pace = measured({1: 80, 8: 240})
    pace.verified(4, 1_700_000)
    assert pace.verify_us(4) <= 240_000
    pace = measured({1: 80})
    pace.verified(2, 1_700_000)
    assert pace.verify_us(2) <= 2.2 * 80_000


def test_sizes_never_measured_lie_on_lines_and_beyond_the_last_the_line_goes_on() -> None:
    pace = measured({1: 85, 4: 175, 8: 243})
    assert [pace.verify_us(n) / 1000 for n in (2, 3, 6)] == pytest.approx([115, 145, 209], rel=1e-3)
    assert pace.verify_us(15) / 1000 == pytest.approx(243 + 7 * (243 - 85) / 7, rel=1e-3)


@given(st.dictionaries(st.integers(1, 64), st.integers(1, 10**7), min_size=1), st.integers(1, 600))
def test_costs_of_any_size_are_positive_and_grow_beyond_the_largest_measured(
    table: dict[int, int], n: int
) -> None:
    pace = Pace()
    for size, us in table.items():
        pace.verified(size, us)
    assert pace.verify_us(n) > 0
    assert pace.verify_us(600) >= pace.verify_us(520) * 0.999


def test_sizes_out_of_use_follow_a_machine_that_slows_down() -> None:
    pace = measured(F16)
    for _ in range(60):
        pace.verified(1, 170_000)
    assert pace.verify_us(8) == pytest.approx(2 * 242_000, rel=0.2)


def test_nothing_is_drafted_before_plain_tokens_have_been_measured() -> None:
    pace = Pace()
    assert pace.rate == 0
    assert pace.begin(1 << MODEL | 1 << NGRAM, (1, 0, 1)) is None


@pytest.mark.parametrize("boast", [0.5, 1.0, 2.0])
def test_chances_are_those_that_outcomes_show_however_sure_the_source_is(boast: float) -> None:
    text, pace = aware(np.random.default_rng(1), 1500, 0.7, boast), measured({1: 10})
    for sure, right in zip(text.sure, text.right, strict=True):
        outcomes(pace, sure, bool(right))
    for low, high in ((0.2, 0.5), (0.5, 0.7), (0.7, 0.9), (0.9, 1.0)):
        among = (text.sure >= low) & (text.sure < high)
        expected = np.mean([pace.chance(MODEL, sure, 0) for sure in text.sure[among]])
        assert expected == pytest.approx(text.right[among].mean(), abs=0.12)


def outcomes(pace: Pace, sure: float, *hits: bool) -> None:
    for hit in hits:
        pace.begin(0, (1, 1, 1))
        pace.add(MODEL, sure)
        pace.outcome(int(hit))


def test_a_few_tens_of_outcomes_overcome_what_was_believed_before() -> None:
    pace = measured({1: 10})
    outcomes(pace, 0.9, *[False] * 20)
    assert pace.chance(MODEL, 0.9, 0) < 0.4


def test_a_source_more_sure_of_a_token_is_not_worth_less() -> None:
    pace = measured({1: 10})
    outcomes(pace, 0.99, *[False] * 300)
    outcomes(pace, 0.3, *[True] * 300)
    assert pace.chance(MODEL, 0.98, 3) >= 0.9 * pace.chance(MODEL, 0.75, 3)


def test_proposals_behind_the_first_refused_one_and_behind_the_end_tell_nothing() -> None:
    refused, ended, untold = measured({1: 10}), measured({1: 10}), measured({1: 10})
    for pace, hits, end in ((refused, 0, False), (ended, 0, True), (untold, 0, True)):
        pace.begin(0, (1, 1, 1))
        if pace is not untold:
            for _ in range(5):
                pace.add(MODEL, 0.7)
        pace.outcome(hits, end)
    assert ended.chance(MODEL, 0.7, 0) == untold.chance(MODEL, 0.7, 0)
    assert refused.chance(MODEL, 0.7, 0) < untold.chance(MODEL, 0.7, 0)
    once = measured({1: 10})
    outcomes(once, 0.7, False)
    assert refused.chance(MODEL, 0.7, 0) == once.chance(MODEL, 0.7, 0)


def test_of_proposals_in_hand_the_part_is_verified_that_is_worth_most() -> None:
    pace = measured({1: 85, 2: 140, 4: 174, 8: 242})
    pace.begin(1 << NGRAM, (1, 0, 1))
    for sure in (0.98, 0.98, 0.98, 0.02, 0.02):
        pace.add(NGRAM, sure)
    assert pace.length() == 3


@settings(max_examples=150)
@given(
    st.integers(0, 64),
    st.sampled_from([(), (1, 2, 4, 8), (3,), (65, 900, -1)]),
    st.lists(
        st.tuples(
            st.integers(0, 7),
            st.tuples(*[st.integers(0, 9000)] * 3),
            st.integers(-1, 70),
            st.integers(-5, 10**12),
            st.floats(width=32),
            st.integers(0, 70),
            st.booleans(),
        ),
        max_size=25,
    ),
)
def test_whatever_it_is_told_lengths_are_allowed_and_what_is_learned_can_be_kept(
    n_max, widths, rounds
) -> None:  # type: ignore[no-untyped-def]
    pace = Pace(n_max, widths)
    for on, lag, most, us, sure, hits, flag in rounds:
        left, kind = on, pace.begin(on, lag, most)
        for _ in range(200):
            if kind is None:
                break
            assert left >> kind & 1
            pace.drafted(kind, lag[kind], us)
            if flag or pace.n_draft >= max(0, min(most, 64)):
                left &= ~(1 << kind)
            else:
                pace.add(kind, sure)
            kind = pace.more(left, lag)
        assert kind is None
        before = pace.n_draft
        n = pace.length()
        assert 0 <= n <= min(before, n_max)
        assert not widths or n == 0 or n + 1 in widths
        pace.verified(n + 1, us)
        pace.outcome(min(hits, n + (before > n)), flag)
    kept = pace.save()
    assert all(math.isfinite(x) for x in kept)
    other = Pace(5)
    other.load(kept)
    assert other.save() == kept


def test_a_proposal_that_was_not_verified_is_judged_by_the_token_that_came() -> None:
    for right in (True, False):
        pace = measured({1: 10, 2: 18, 4: 34})
        before = pace.chance(NGRAM, 0.3, 0)
        for _ in range(3):
            assert pace.begin(1 << NGRAM, (1, 0, 1)) == NGRAM
            pace.add(NGRAM, 0.3)
            assert pace.length() == 0
            pace.outcome(int(right))
        assert (pace.chance(NGRAM, 0.3, 0) > before) is right


def test_of_several_that_were_not_verified_only_the_first_is_judged() -> None:
    one, several = measured({1: 10, 2: 18, 4: 34}), measured({1: 10, 2: 18, 4: 34})
    for pace, n in ((one, 1), (several, 3)):
        pace.begin(1 << NGRAM, (1, 0, 1))
        for _ in range(n):
            pace.add(NGRAM, 0.3)
        assert pace.length() == 0
        pace.outcome(1)
    assert several.chance(NGRAM, 0.3, 1) == one.chance(NGRAM, 0.3, 1)


def test_a_loaded_pace_decides_as_the_saved_one() -> None:
    rng, costs = np.random.default_rng(2), COSTS["f16 smol"]
    first, second = Pace(), Pace()
    calibrate(first, costs, rng)
    run(first, costs, aware(rng, 400, 0.8), rng)
    second.load(first.save())
    first.request()
    second.request()
    text = aware(rng, 300, 0.8)
    logs = [run(pace, costs, text, np.random.default_rng(3)) for pace in (first, second)]
    assert logs[0].drafted[1:] == logs[1].drafted[1:]


@given(st.integers(0, FLOATS - 1), st.sampled_from([math.nan, math.inf, -math.inf, -1e30, 1e30]))
def test_numbers_out_of_range_are_refused_and_nothing_changes(at: int, value: float) -> None:
    pace = measured(F16)
    kept = pace.save()
    with pytest.raises(ValueError, match="another version, or numbers out of range"):
        pace.load([*kept[:at], value, *kept[at + 1 :]])
    assert pace.save() == kept


@pytest.mark.parametrize("n", [0, 1, FLOATS - 1, FLOATS + 1])
def test_another_count_of_numbers_is_refused(n: int) -> None:
    with pytest.raises(ValueError, match="not what pace has saved"):
        Pace().load([1.0] * n)


def test_another_version_is_refused() -> None:
    kept = Pace().save()
    with pytest.raises(ValueError, match="another version"):
        Pace().load([kept[0] + 1, *kept[1:]])


def test_the_simulated_costs_are_those_measured() -> None:
    assert on_line(F16, 5) == pytest.approx(176.5)
    assert on_line(F16, 33) == pytest.approx(880 + (880 - 450) / 16)
