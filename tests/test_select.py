"""Selection over a row of floats: what vectors compute is what a sort and float64 compute; noise is noise."""

from __future__ import annotations

import numpy as np
import pytest
import selection as twin
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gguftools import _native

SIZES = st.sampled_from([1, 2, 31, 32, 33, 63, 64, 65, 1023, 1024, 1025, 2500])
HUGE = 163_840


def some_row(data: st.DataObject, n: int) -> NDArray[np.float32]:
    """Random logits: often with ties, NaN and infinities."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32), "seed"))
    row = rng.normal(0, data.draw(st.sampled_from([0.1, 3, 30]), "scale"), n).astype(np.float32)
    if data.draw(st.booleans(), "ties"):
        row = np.round(row)
    share = data.draw(st.sampled_from([0.0, 0.3, 0.95]), "holes")
    row[rng.random(n) < share] = data.draw(st.sampled_from([-np.inf, np.nan]), "hole")
    return row


def empty(row: NDArray[np.float32]) -> bool:
    return not (twin.clean(row) > -np.inf).any()


@settings(max_examples=150, deadline=None)
@given(data=st.data(), n=SIZES)
def test_the_largest_is_the_first_of_a_sort_and_has_its_softmax(data: st.DataObject, n: int) -> None:
    row = some_row(data, n)
    at, probability = _native.argmax(row)
    if empty(row):
        assert (at, probability) == (-1, 0)
        return
    assert at == twin.ranked(row)[0]
    assert probability == pytest.approx(np.exp(twin.log_softmax(row)[at]), rel=3e-6)


@settings(max_examples=150, deadline=None)
@given(data=st.data(), n=SIZES)
def test_log_probabilities_are_those_of_float64(data: st.DataObject, n: int) -> None:
    row = some_row(data, n)
    if empty(row):
        assert _native.log_softmax(row, [0]) == [-np.inf]
        return
    exact = twin.log_softmax(row)
    assert _native.log_softmax(row, range(n)) == pytest.approx(exact, rel=1e-6, abs=3e-6)
    k = data.draw(st.integers(0, n + 2), "k")
    top = _native.top_log_softmax(row, k)
    assert [token for token, _ in top] == twin.ranked(row)[:k].tolist()
    assert [p for _, p in top] == _native.log_softmax(row, [token for token, _ in top])


def test_a_row_of_a_large_vocabulary_is_summed_exactly() -> None:
    for scale in (0.0, 1.0, 4.0, 40.0):
        row = np.random.default_rng(1).normal(0, 1, HUGE).astype(np.float32) * np.float32(scale)
        exact = twin.log_softmax(row)
        assert _native.log_softmax(row, range(0, HUGE, 97)) == pytest.approx(exact[::97], rel=1e-6, abs=3e-6)
        assert _native.argmax(row)[1] == pytest.approx(np.exp(exact.max()), rel=3e-6)


def test_an_infinite_logit_is_certain_and_an_unknown_id_is_an_error() -> None:
    row = np.array([1, np.inf, np.nan, -np.inf], np.float32)
    assert _native.argmax(row) == (1, 1)
    assert _native.log_softmax(row, [0, 1, 2, 3]) == [-np.inf, 0, -np.inf, -np.inf]
    for token in (-1, 4):
        with pytest.raises(IndexError):
            _native.log_softmax(row, [token])


# ---- noise ----


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**64 - 1), position=st.integers(0, 2**40), token=st.integers(-2, 2**31 - 1))
def test_noise_is_named_by_seed_position_and_id_alone(seed: int, position: int, token: int) -> None:
    [(uniform, gumbel)] = _native.noise(seed, position, [token])
    assert uniform == twin.uniform(seed, position, token)
    assert gumbel == pytest.approx(-np.log(-np.log1p(-uniform)), rel=1e-12)
    assert gumbel <= -np.log(uniform)


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**64 - 1), position=st.integers(0, 2**40), bits=st.integers(0, 2**32 - 1))
def test_the_id_of_some_bits_is_the_one_that_has_them(seed: int, position: int, bits: int) -> None:
    [token] = _native.noise_ids(seed, position, [bits])
    assert int(twin.uniform(seed, position, token) * 2**32) == bits


def uniforms(seeds: range, positions: range, ids: range) -> NDArray[np.float64]:
    """Shape (seeds, positions, ids)."""
    return np.array([[[u for u, _ in _native.noise(s, p, ids)] for p in positions] for s in seeds])


SHAPES = {
    "ids": (range(1), range(1), range(200_000)),
    "positions": (range(1), range(200_000), range(1)),
    "seeds": (range(200_000), range(1), range(1)),
}


@pytest.mark.parametrize("along", SHAPES)
def test_noise_is_uniform_in_its_high_and_low_bits(along: str) -> None:
    u = uniforms(*SHAPES[along]).ravel()
    for first in (0, 20, 43):  # of nine bits
        counts = np.bincount((u * 2**first % 1 * 512).astype(int), minlength=512)
        assert twin.fits(counts.astype(float), np.full(512, len(u) / 512))


@pytest.mark.parametrize("along", SHAPES)
def test_neighbours_are_independent(along: str) -> None:
    u = uniforms(*SHAPES[along]).ravel()
    for lag in (1, 2, 3, 4, 7, 8, 16, 64, 1024):
        a, b = u[:-lag], u[lag:]
        assert abs(np.corrcoef(a, b)[0, 1]) < 4.5 / len(a) ** 0.5
        pairs = np.bincount((a * 30).astype(int) * 30 + (b * 30).astype(int), minlength=900)
        assert twin.fits(pairs.astype(float), np.full(900, len(a) / 900))


def test_the_largest_noise_of_neighbouring_positions_is_independent() -> None:
    """A sampler sees the extremes: the ids that win are uniform, and so are pairs of following winners."""
    n, positions = 12, 20_000
    row = _native.Row(n).fill(np.zeros(n, np.float32))
    won = np.array(row.draw(3, 0, positions))
    assert twin.fits(np.bincount(won, minlength=n).astype(float), np.full(n, positions / n))
    pairs = np.bincount(won[:-1] * n + won[1:], minlength=n * n).astype(float)
    assert twin.fits(pairs, np.full(n * n, (positions - 1) / n / n))


@pytest.mark.parametrize("what", ["seed", "position", "id"])
def test_each_bit_that_goes_in_flips_each_bit_that_comes_out_half_the_time(what: str) -> None:
    rng = np.random.default_rng(5)
    tries, widths = 400, {"seed": 64, "position": 40, "id": 31}
    for bit in range(widths[what]):
        changed = np.zeros(52)
        for _ in range(tries):
            at = {name: int(rng.integers(0, 2 ** min(width, 62))) for name, width in widths.items()}
            one = _bits(**at)
            at[what] ^= 1 << bit
            changed += [(one ^ _bits(**at)) >> i & 1 for i in range(52)]
        assert abs(changed / tries - 0.5).max() < 5.5 * 0.5 / tries**0.5


def _bits(seed: int, position: int, id: int) -> int:
    return int(_native.noise(seed, position, [id])[0][0] * 2**52)


# ---- draws ----


@settings(max_examples=200, deadline=None)
@given(data=st.data(), n=SIZES, temperature=st.sampled_from([0.05, 0.7, 1.0, 3.0]))
def test_a_draw_is_the_largest_sum_of_log_probability_and_noise(
    data: st.DataObject, n: int, temperature: float
) -> None:
    """Nothing that is skipped could have won."""
    row, seed = some_row(data, n), data.draw(st.integers(0, 2**64 - 1), "draws")
    if empty(row):
        return
    made = _native.Row(n, temperature=temperature).fill(row)
    for position, drawn in enumerate(made.draw(seed, 0, 5)):
        noise = np.array([g for _, g in _native.noise(seed, position, range(n))])
        assert drawn == int(np.argmax(clean_scores(row, temperature) + noise))


def clean_scores(row: NDArray[np.float32], temperature: float) -> NDArray[np.float64]:
    return (twin.clean(row).astype(float) - np.nanmax(row)) * float(1 / np.float32(temperature))


@pytest.mark.parametrize("temperature", [0.2, 1.0])
@pytest.mark.parametrize("scale", [0.0, 1.5, 5.0])
def test_a_draw_from_a_large_vocabulary_is_the_largest_sum_too(scale: float, temperature: float) -> None:
    row = (np.random.default_rng(2).normal(0, 1, HUGE) * scale).astype(np.float32)
    made = _native.Row(HUGE, temperature=temperature).fill(row)
    for position, drawn in enumerate(made.draw(11, 0, 4)):
        noise = np.array([g for _, g in _native.noise(11, position, range(HUGE))])
        assert drawn == int(np.argmax(clean_scores(row, temperature) + noise))


def test_ids_with_much_noise_win_from_where_blocks_are_skipped() -> None:
    """Each of the ids that have more noise than 12 at a position is given just enough to win."""
    n, tried = 1 << 17, 0
    for position in range(40):
        ids = _native.noise_ids(9, position, range(26_000))
        for token in [i for i in ids if 0 < i < n]:
            (_, first), (_, most) = _native.noise(9, position, [0, token])
            row = np.full(n, -60.0, np.float32)
            row[0], row[token] = 0.0, first - most + 0.001
            assert _native.Row(n).fill(row).draw(9, position) == [token]
            row[token] -= 0.002
            assert _native.Row(n).fill(row).draw(9, position) == [0]
            tried += 1
    assert tried > 10
