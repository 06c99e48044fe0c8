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

from gguftools import _native

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


def joint_law(
    rig: Rig, values: tuple[float, ...], n_penalty: int, length: int
) -> dict[tuple[int, ...], float]:
    """Probability of each text of `length` tokens: the target's rows through the chain, in float64."""
    found = {}
    for text in product(range(rig.n_vocab), repeat=length):
        p, tokens = 1.0, list(PROMPT)
        for token in text:
            p *= float(
                distribution(rig.table[state(tokens)], tokens[-n_penalty:] if n_penalty else [], values)[
                    token
                ]
            )
            tokens.append(token)
        found[text] = p
    return found


def distribution(row: np.ndarray, seen: list[int], values: tuple[float, ...]) -> np.ndarray:
    """Penalties, top-k, top-p, min-p, temperature, softmax."""
    temperature, top_k, top_p, min_p, repeat, frequency, presence = values
    x = row.astype(float)
    for token in set(seen):
        x[token] = x[token] * repeat if x[token] <= 0 else x[token] / repeat
        x[token] -= seen.count(token) * frequency + presence
    order = np.argsort(-x, kind="stable")
    kept = order[: int(top_k)] if top_k else order
    p = np.exp(x[kept] - x[kept[0]])
    kept = kept[: int(np.searchsorted(np.cumsum(p / p.sum()), top_p)) + 1] if top_p < 1 else kept
    kept = kept[x[kept] >= x[kept[0]] + np.log(min_p)] if min_p else kept
    out = np.zeros(len(x))
    out[kept] = np.exp((x[kept] - x[kept[0]]) / temperature)
    return out / out.sum()


def check_law(counts: dict[tuple[int, ...], int], law: dict[tuple[int, ...], float], runs: int) -> None:
    """Chi-square of what was drawn against the law; rare texts are counted together."""
    assert all(law[text] > 0 for text in counts)
    big = [text for text, p in law.items() if p * runs >= 5]
    chi = sum((counts.get(text, 0) - law[text] * runs) ** 2 / (law[text] * runs) for text in big)
    rest = runs - sum(law[text] * runs for text in big)
    if rest > 1:
        chi += (runs - sum(counts.get(text, 0) for text in big) - rest) ** 2 / rest
    assert chi < chi_square_limit(len(big))


CHAINS = {
    "all": (0, 1.0, 0.0, 1.0, 0.0, 0.0),
    "top-k": (3, 1.0, 0.0, 1.0, 0.0, 0.0),
    "top-p and min-p": (0, 0.9, 0.05, 1.0, 0.0, 0.0),
    "penalties": (0, 1.0, 0.0, 1.3, 0.2, 0.1),
}


@pytest.mark.parametrize("temperature", [0.2, 0.7, 1.0, 1.5])
@pytest.mark.parametrize("truncation", CHAINS)
@pytest.mark.parametrize("rule", _native.RULES)
def test_every_rule_keeps_the_joint_law_of_three_tokens(
    rule: str, truncation: str, temperature: float
) -> None:
    runs, values = 6000, (temperature, *CHAINS[truncation])
    rig = Rig(n_vocab=4, agree=0.4, blend=0.7, n_ubatch=16, n_ctx=16, draft_n_ctx=16)
    n_penalty = 3 if truncation == "penalties" else 0
    counts: dict[tuple[int, ...], int] = {}
    for seed in range(runs):
        rig.prefill(PROMPT, chain=values, seed=seed, rule=rule, n_penalty=n_penalty, compares=seed % 2 == 0)
        text = tuple(rig.generate(3, 3, 0.3 if seed % 3 == 0 else 0.0))
        counts[text] = counts.get(text, 0) + 1
    check_law(counts, joint_law(rig, values, n_penalty, 3), runs)
    assert rig.engine.counters["n_accepted"] > 100


@pytest.mark.parametrize("rule", _native.RULES)
def test_pacing_and_ngrams_keep_the_joint_law(rule: str) -> None:
    """Lengths that hang on what was drawn would bend the law of `reject`."""
    runs, values = 8000, (1.0, *CHAINS["all"])
    rig = Rig(n_vocab=4, agree=0.4, blend=0.7, n_ubatch=16, n_ctx=16, draft_n_ctx=16)
    rig.engine.set_draft(True, True)
    rig.takes(1000, 100)
    rig.engine.measure(1.0)
    counts: dict[tuple[int, ...], int] = {}
    for seed in range(runs):
        rig.prefill(PROMPT, chain=values, seed=seed, rule=rule, lazy=True)
        text = tuple(rig.generate(3, _native.AUTO))
        counts[text] = counts.get(text, 0) + 1
    check_law(counts, joint_law(rig, values, 0, 3), runs)
    assert rig.engine.counters["n_accepted"] > 100


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31), agree=st.floats(0, 1), n_draft=st.integers(-1, 8), top_k=st.integers(0, 6),
    top_p=st.sampled_from([1.0, 0.9]), temperature=st.floats(0.2, 2), penalty=st.sampled_from([1.0, 1.3]),
    rule=st.sampled_from(["match", "coupled"]), ngram=st.booleans(),
)  # fmt: skip
def test_our_own_draws_give_a_seed_the_same_text_with_any_draft_and_none(
    seed: int, agree: float, n_draft: int, top_k: int, top_p: float, temperature: float, penalty: float,
    rule: str, ngram: bool,
) -> None:  # fmt: skip
    texts = []
    for drafts in (0, n_draft):
        rig = Rig(agree=agree)
        rig.engine.set_draft(True, ngram)
        values = (temperature, top_k, top_p, 0.0, penalty, 0.1, 0.0)
        rig.prefill(PROMPT, chain=values, seed=seed, rule=rule, n_penalty=8)
        texts.append(rig.generate(40, drafts))
    assert texts[0] == texts[1]


def test_coupled_accepts_more_than_match_where_draft_and_target_are_unsure_alike() -> None:
    rates = {}
    for rule in ("match", "coupled", "reject"):
        rig = Rig(n_vocab=40, agree=0.0, blend=0.9, n_ctx=256, draft_n_ctx=256)
        for seed in range(20):
            rig.prefill(PROMPT, chain=(1.5, *CHAINS["all"]), seed=seed, rule=rule)
            rig.generate(150, 3)
        rates[rule] = rig.engine.counters["n_accepted"] / rig.engine.counters["n_draft"]
    assert rates["match"] < rates["coupled"] < rates["reject"] + 0.02


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
