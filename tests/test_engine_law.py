"""Losslessness: libllama's own samplers on fake logits. A draft changes neither law nor text."""

from __future__ import annotations

from itertools import product

import llama_api
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_api import Chain, low
from rig import Rig, state

PROMPT = [3, 1, 0, 2]
REAL = {name: a for name, a in llama_api.addresses().items() if name.startswith("llama_sampler_")}


pytestmark = pytest.mark.usefixtures("real_api")


def chain(
    seed: int, temperature: float, top_k: int = 0, top_p: float = 1.0, penalty: float = 1.0, n: int = 12
) -> Chain:
    """Penalties, top-k, top-p, temperature, distribution: those that do something."""
    parts = []
    if penalty != 1.0:
        parts.append(low.llama_sampler_init_penalties(n, 8, penalty, 0.1, 0.1))
    if top_k:
        parts.append(low.llama_sampler_init_top_k(top_k))
    if top_p < 1.0:
        parts.append(low.llama_sampler_init_top_p(top_p, 1))
    return Chain(*parts, low.llama_sampler_init_temp(temperature), low.llama_sampler_init_dist(seed))


def sampled(
    rig: Rig, chain: Chain, n: int, n_draft: int, preselect: int = 0, n_penalty: int = 0
) -> list[int]:
    with chain as handle:
        rig.prefill(PROMPT, sampler=handle, preselect=preselect, n_penalty=n_penalty)
        return rig.generate(n, n_draft)


def rig_with_samplers(**more: float) -> Rig:
    rig = Rig(**more)  # type: ignore[arg-type]
    rig.fake.install(REAL)
    return rig


def chi_square_limit(dof: int, z: float = 4.0) -> float:
    """Wilson and Hilferty's approximation of the quantile at z standard deviations."""
    return float(dof * (1 - 2 / (9 * dof) + z * (2 / (9 * dof)) ** 0.5) ** 3)


@pytest.mark.parametrize(("temperature", "top_k"), [(0.7, 0), (1.0, 3), (1.5, 0)])
def test_the_joint_law_of_three_tokens_is_the_targets(temperature: float, top_k: int) -> None:
    n_vocab, runs = 4, 10000
    rig = rig_with_samplers(n_vocab=n_vocab, agree=0.5, n_ubatch=16, n_ctx=16, draft_n_ctx=16)
    counts: dict[tuple[int, ...], int] = {}
    for seed in range(runs):
        text = tuple(sampled(rig, chain(seed, temperature, top_k, n=n_vocab), 3, 3))
        counts[text] = counts.get(text, 0) + 1
    expected = {}
    for text in product(range(n_vocab), repeat=3):
        p, tokens = 1.0, list(PROMPT)
        for token in text:
            row = rig.table[state(tokens)].astype(float) / temperature
            kept = np.argsort(row)[-top_k:] if top_k else np.arange(n_vocab)
            weights = np.exp(row - row.max())
            p *= float(weights[token] / weights[kept].sum()) if token in kept else 0.0
            tokens.append(token)
        expected[text] = p * runs
    assert all(expected[text] > 0 for text in counts)
    big = [t for t, e in expected.items() if e >= 5]
    rest = runs - sum(expected[t] for t in big)
    chi = sum((counts.get(t, 0) - expected[t]) ** 2 / expected[t] for t in big)
    if rest > 1:
        chi += (runs - sum(counts.get(t, 0) for t in big) - rest) ** 2 / rest
    assert chi < chi_square_limit(len(big))
    assert rig.engine.counters["n_accepted"] > 100


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31), agree=st.floats(0, 1), n_draft=st.integers(0, 8), top_k=st.integers(0, 6),
    top_p=st.sampled_from([1.0, 0.9]), temperature=st.floats(0.2, 2), penalty=st.sampled_from([1.0, 1.3]),
)  # fmt: skip
def test_a_seed_gives_the_same_text_with_any_draft_and_none(
    seed: int, agree: float, n_draft: int, top_k: int, top_p: float, temperature: float, penalty: float
) -> None:
    texts = []
    for drafts in (0, n_draft):
        rig = rig_with_samplers(agree=agree)
        texts.append(sampled(rig, chain(seed, temperature, top_k, top_p, penalty), 40, drafts, n_penalty=8))
    assert texts[0] == texts[1]


def test_preselected_candidates_give_the_text_of_the_whole_chain() -> None:
    for seed in range(30):
        texts = [
            sampled(
                rig_with_samplers(n_vocab=3000, seed=seed), chain(seed, 1.5, 40, n=3000), 20, 3, preselect
            )
            for preselect in (0, 40)
        ]
        assert texts[0] == texts[1]


def test_a_chain_used_for_a_second_request_starts_afresh() -> None:
    rig = rig_with_samplers(n_vocab=300)
    with chain(7, 1.5, penalty=1.2, n=300) as handle:
        texts = []
        for _ in range(2):
            rig.prefill(PROMPT, sampler=handle, n_penalty=8)
            texts.append(rig.generate(20, 3))
    assert texts[0] == texts[1]


class Seen:
    """Takes the first candidate and keeps what it was handed."""

    def apply(self, ids: np.ndarray, logits: np.ndarray) -> int:
        self.ids, self.logits = ids.tolist(), logits.tolist()
        return 0

    def accept(self, token: int) -> None:
        return None

    def reset(self) -> None:
        return None


@settings(max_examples=150, deadline=None)
@given(data=st.data(), n=st.sampled_from([1, 2, 15, 16, 17, 63, 64, 65, 1023, 1024, 1025, 2500]))
def test_selection_over_a_row_is_that_of_a_sort(data: st.DataObject, n: int) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    row = rng.normal(0, 3, n).astype(np.float32)
    if data.draw(st.booleans()):
        row = np.round(row)  # many equal ones
    row[rng.random(n) < data.draw(st.sampled_from([0.0, 0.3]))] = data.draw(
        st.sampled_from([-np.inf, np.nan])
    )
    rig = Rig(n_vocab=n, draft=False)
    rig.target.law = lambda t: row
    clean = np.where(np.isnan(row), -np.inf, row)
    order = np.lexsort((np.arange(n), -clean))
    if not np.isfinite(clean).any():
        return
    rig.prefill([0])
    assert rig.generate(1) == [order[0]]
    k = data.draw(st.integers(1, n + 3))
    seen = Seen()
    rig.prefill([0], sampler=rig.fake.add_sampler(seen), preselect=k)
    assert rig.generate(1) == [order[0]]
    assert seen.ids == order[:k].tolist()
    assert seen.logits == clean[order[:k]].tolist()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), n=st.integers(1, 5000), scale=st.floats(0.01, 40))
def test_the_probability_of_the_best_is_softmaxs(seed: int, n: int, scale: float) -> None:
    row = np.random.default_rng(seed).normal(0, scale, n).astype(np.float32)
    exact = 1 / np.exp(row.astype(float) - row.max()).sum()
    for p_min, proposed in ((exact * (1 - 1e-5), 1), (exact * (1 + 1e-5), 0)):
        rig = Rig(n_vocab=n)
        rig.target.law = rig.draft.law = lambda t: row
        rig.prefill([0])
        rig.engine.step(1, float(p_min), 9)
        assert rig.engine.counters["n_draft"] == proposed
