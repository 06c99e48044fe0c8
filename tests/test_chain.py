"""The chain over rows of floats keeps what libllama's keeps and draws by its law; penalties come and go."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import selection as twin
from candidates import Candidates, parts
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_api import Chain, low
from numpy.typing import NDArray

from gguftools import _native

Floats = NDArray[np.float32]
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


def libllama(
    row: Floats, penalties: tuple[Any, ...] = (), tokens: list[int] | None = None, **values: Any
) -> dict[int, float]:
    first = [low.llama_sampler_init_penalties(len(row), *penalties)] if penalties else []
    chain = Chain(*first, *parts(**values))
    with chain:
        for token in tokens or []:
            low.llama_sampler_accept(chain.handle, token)
        return Candidates(row).apply(chain)


def distinct_row(seed: int, n: int, scale: float) -> Floats:
    """No two logits equal: libllama's sort is not stable."""
    row = np.random.default_rng(seed).normal(0, scale, n).astype(np.float32)
    while len(np.unique(row)) < n:
        row = np.random.default_rng(seed := seed + 1).uniform(-9, 9, n).astype(np.float32)
    return row


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


# ---- penalties ----


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


# ---- draft and target ----


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
