"""Numbers of weights change their type with the bits that numpy and the gguf package's quantizers give."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from gguf import quants
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gguftools import _native
from gguftools.checkpoint import floats
from gguftools.checkpoint.floats import BF16, F16, F32, Q4_0, Q8_0
from gguftools.errors import InputError

ALL = np.arange(1 << 16, dtype=np.uint16)  # every BF16, every F16
LIMITS = {F16: 65520.0, BF16: float.fromhex("0x1.ffp127"), Q8_0: 127 * 65520.0, Q4_0: 8 * 65520.0}
EDGES = [0, 0x80000000, 1, 0x80000001, 0x007FFFFF, 0x00800000, 0x33000000, 0x33000001, 0x387FE000, 0x387FF000]
EDGES += [0x38800000, 0x3F800000, 0xBF800000, 0x3F808000, 0x3F818000, 0x3F801000, 0x3F803000, 0x477FE000]


def bits(values: Any) -> NDArray[np.uint32]:
    return np.ascontiguousarray(values, np.float32).view(np.uint32)


def below(values: NDArray[np.float32], kind: int) -> NDArray[np.float32]:
    return values[np.abs(values) < LIMITS[kind]]


def widened(stored: NDArray[np.uint16], kind: int) -> NDArray[np.float32]:
    if kind == F16:
        return stored.view(np.float16).astype(np.float32)
    return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)


def theirs(rows: NDArray[np.float32], kind: int) -> NDArray[np.uint8]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a scale whose inverse is infinite
        return np.asarray(quants.quantize(rows, quants.GGMLQuantizationType(kind))).view(np.uint8)


def ours(rows: NDArray[Any], source: int, kind: int) -> NDArray[np.uint8]:
    return np.ascontiguousarray(floats.recode(rows, source, kind, "w")).view(np.uint8)


@pytest.mark.parametrize("kind", [F16, BF16])
def test_every_16_bit_number_is_widened_to_the_same_bits(kind: int) -> None:
    stored = ALL.view(floats.PLAIN[kind])
    assert (bits(floats.to_f32(stored, kind)) == bits(widened(ALL, kind))).all()


@pytest.mark.parametrize(("source", "goal"), [(F16, BF16), (BF16, F16)])
def test_every_16_bit_number_becomes_the_other_type_as_numpy_and_gguf_round(source: int, goal: int) -> None:
    wide = widened(ALL, source)
    stored = ALL[np.abs(wide) < LIMITS[goal]]
    wide = widened(stored, source)
    wanted = wide.astype(np.float16).view(np.uint8) if goal == F16 else theirs(wide[None], BF16)[0]
    rows = stored.view(floats.PLAIN[source])
    assert (ours(rows, source, goal) == wanted).all()
    # Fewer than a vector's numbers at a time take the way of processors that know no halves.
    few = [ours(rows[i : i + 7], source, goal) for i in range(0, rows.size, 7)]
    assert (np.concatenate(few) == wanted).all()


@pytest.mark.parametrize("kind", [Q8_0, Q4_0])
@pytest.mark.parametrize("source", [F16, BF16])
def test_every_16_bit_number_is_quantized_to_gguf_s_bytes(source: int, kind: int) -> None:
    wide = widened(ALL, source)
    stored = ALL[np.abs(wide) < LIMITS[kind]]
    stored = stored[: stored.size // 32 * 32]
    for order in (stored, np.random.default_rng(0).permutation(stored), stored[::-1].copy()):
        rows = order.reshape(-1, 32)
        assert (
            ours(rows.view(floats.PLAIN[source]), source, kind) == theirs(widened(rows, source), kind)
        ).all()


any_float = st.one_of(st.sampled_from(EDGES), st.integers(0, (1 << 32) - 1))
SCALES = [1e-45, 1e-40, 1e-38, 3e-37, 1e-30, 1e-8, 1e-6, 1e-3, 1.0, 60000.0]


@settings(deadline=None, max_examples=300)
@given(st.lists(any_float, min_size=1, max_size=70))
def test_any_float_becomes_16_bits_as_numpy_and_gguf_round(raw: list[int]) -> None:
    values = np.array([*raw, 0], np.uint32).view(np.float32)  # one at least is below each limit
    half, brain = below(values, F16), below(values, BF16)
    assert (ours(half, F32, F16) == half.astype(np.float16).view(np.uint8)).all()
    assert (ours(brain, F32, BF16) == theirs(brain[None], BF16)[0]).all()


@settings(deadline=None, max_examples=300)
@given(
    kind=st.sampled_from([Q8_0, Q4_0]),
    scale=st.sampled_from(SCALES),
    ties=st.lists(st.integers(-254, 254), min_size=32, max_size=32),
    raw=st.dictionaries(st.integers(0, 31), any_float, max_size=4),
)
def test_any_block_is_quantized_to_gguf_s_bytes(
    kind: int, scale: float, ties: list[int], raw: dict[int, int]
) -> None:
    block = (np.array(ties, np.float32) / 2 * np.float32(scale)).astype(np.float32)  # halves: ties
    for at, pattern in raw.items():
        value = np.array([pattern], np.uint32).view(np.float32)
        if below(value, kind).size:
            block[at] = value[0]
    rows = np.stack([block, -block, block[::-1]])
    if below(rows, kind).size == rows.size:
        assert (ours(rows, F32, kind) == theirs(rows, kind)).all()


@pytest.mark.parametrize("kind", [Q8_0, Q4_0])
def test_ties_zeros_of_both_signs_and_denormal_blocks_are_as_gguf_has_them(kind: int) -> None:
    ties = np.arange(-127, 128, 0.5, dtype=np.float32)
    ties = np.concatenate([ties, [np.float32(127)] * (-ties.size % 32)]).astype(np.float32).reshape(-1, 32)
    ties[:, 0] = 127  # the scale is 1 (or 127 / 8)
    zeros = np.zeros((3, 32), np.float32)
    zeros[1], zeros[2, 5:] = -0.0, -0.0
    tiny = np.array([1, 2, 0x7FFFFF, 0x800000, 0x1000000, 0x2000000], np.uint32).view(np.float32)
    small = np.random.default_rng(1).standard_normal((6, 32)).astype(np.float32) * tiny[:, None]
    for rows in (ties, zeros, small):
        assert (ours(rows, F32, kind) == theirs(rows, kind)).all()


@pytest.mark.parametrize("size", [1, 7, 8, 9, 1023, 1024, 1025, 5000])
def test_a_length_that_is_no_whole_vector_or_span_changes_nothing(size: int) -> None:
    values = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    assert (ours(values, F32, F16) == values.astype(np.float16).view(np.uint8)).all()
    assert (ours(values, F32, BF16) == theirs(values[None], BF16)[0]).all()


@pytest.mark.parametrize("at", [0, 31, 1023, 1024, 3071])
@pytest.mark.parametrize("source", [F32, F16, BF16])
def test_a_nan_or_an_infinity_anywhere_is_refused(source: int, at: int) -> None:
    for bad in (np.nan, np.inf, -np.inf):
        values = np.ones(3072, np.float32)
        values[at] = bad
        stored: NDArray[Any] = values
        if source == F16:
            stored = values.astype(np.float16)
        elif source == BF16:
            stored = (bits(values) >> np.uint32(16)).astype(np.uint16)
        with pytest.raises(InputError, match="w holds a NaN or an infinity"):
            floats.check_finite(stored, source, "w")
        for goal in {F16, BF16, Q8_0, Q4_0} - {source}:
            with pytest.raises(InputError, match="w holds a NaN or an infinity"):
                floats.recode(stored, source, goal, "w")
        stored[at] = stored[0] if at else stored[1]
        floats.check_finite(stored, source, "w")


@pytest.mark.parametrize("kind", [F16, BF16, Q8_0, Q4_0])
def test_the_first_number_that_would_become_infinite_is_refused_and_the_one_before_it_is_not(
    kind: int,
) -> None:
    values = np.ones((3, 1024), np.float32)
    values[2, 7] = -LIMITS[kind]
    with pytest.raises(InputError, match="too large for"):
        floats.recode(values, F32, kind, "w")
    values[2, 7] = np.nextafter(np.float32(LIMITS[kind]), np.float32(0))
    stored = floats.recode(values, F32, kind, "w")
    assert np.isfinite(floats.to_f32(stored, kind)).all()


def test_nan_and_infinity_stay_what_they_are_as_f32() -> None:
    values = np.array([np.nan, np.inf, -np.inf, -0.0], np.float16)
    assert (bits(floats.to_f32(values, F16)) == bits(values.astype(np.float32))).all()


def test_rows_that_lie_apart_or_askew_are_taken_as_they_read() -> None:
    values = np.random.default_rng(2).standard_normal((64, 96)).astype(np.float32)
    for rows in (values[::2], values.T[:, :32], np.frombuffer(b"x" + values.tobytes(), "<f4", 32, 1)):
        assert (ours(rows, F32, Q8_0) == theirs(np.ascontiguousarray(rows), Q8_0)).all()


def test_sizes_that_do_not_belong_together_are_refused_not_run_over() -> None:
    four = np.zeros(4, np.uint8)
    for data, source, out, goal in (
        (np.zeros(64, np.uint8), F32, np.zeros(34, np.uint8), Q8_0),  # 16 numbers are no block
        (np.zeros(128, np.uint8), F32, np.zeros(33, np.uint8), Q8_0),
        (four[:3], BF16, np.zeros(4, np.uint8), F32),
        (four, Q8_0, np.zeros(4, np.uint8), F32),
        (four, F32, np.zeros(4, np.uint8), 12),
        (four[1:3], F16, np.zeros(4, np.uint8), F32),  # not aligned
    ):
        with pytest.raises(ValueError, match=r"out has|whole numbers|aligned"):
            _native.recode_weights(data.data, source, out.data, goal)
    empty = np.empty(0, np.uint8)
    assert _native.recode_weights(empty.data, F32, empty.data, Q8_0) == 0
    assert _native.check_weights(empty.data, BF16) == 0
