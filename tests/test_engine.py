"""The round on a fake llama.cpp: what is decoded, kept and dropped."""

from __future__ import annotations

import numpy as np
import pytest
from rig import Rig, state

from gguftools import _native
from gguftools._native import EngineError, NativeCancelled

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]


pytestmark = pytest.mark.usefixtures("real_api")


@pytest.mark.parametrize("n_draft", [0, 1, 2, 3, 8])
@pytest.mark.parametrize("agree", [0.0, 0.7, 1.0])
def test_the_text_is_the_targets_own_with_any_draft(n_draft: int, agree: float) -> None:
    rig = Rig(agree=agree)
    rig.prefill(PROMPT)
    assert rig.generate(30, n_draft) == rig.expected(PROMPT, 30)


def test_prefill_goes_in_ubatch_chunks_target_first_and_leaves_the_last_token() -> None:
    rig = Rig(n_ubatch=4)
    rig.engine.begin(PROMPT)
    seen = [rig.engine.prefill() for _ in range(6)]
    assert seen == [(4, 20), (8, 20), (10, 20), (14, 20), (18, 20), (20, 20)]
    assert [(e[1], len(e[2])) for e in rig.fake.log if e[0] == "decode"] == [
        ("target", 4), ("target", 4), ("target", 2), ("draft", 4), ("draft", 4), ("draft", 2),
    ]  # fmt: skip
    assert all(rows == () for *_, rows, _ in rig.fake.decodes("target") + rig.fake.decodes("draft"))
    rig.check()


def test_full_acceptance_costs_one_draft_decode_per_token_and_a_catch_up_of_two() -> None:
    rig = Rig(agree=1.0)
    rig.prefill(PROMPT)
    before = len(rig.fake.decodes("draft"))
    for _ in range(3):
        assert [f for _, f in rig.engine.step(4, 0.0, 99)] == [True] * 4 + [False]
    sizes = [len(tokens) for tokens, *_ in rig.fake.decodes("draft")[before:]]
    assert sizes == [1, 1, 1, 1, 2, 1, 1, 1, 2, 1, 1, 1]
    assert all(rows == (len(tokens) - 1,) for tokens, _, rows, _ in rig.fake.decodes("draft")[before:])
    assert [(len(t), rows) for t, _, rows, _ in rig.fake.decodes("target")[-3:]] == [(5, (0, 1, 2, 3, 4))] * 3


def test_a_rejected_proposal_costs_no_catch_up() -> None:
    rig = Rig(agree=0.0, seed=5)
    rig.prefill(PROMPT)
    for _ in range(5):
        before = len(rig.fake.decodes("draft"))
        rig.engine.step(3, 0.0, 99)
        assert len(rig.fake.decodes("draft")) - before == 3
    rig.check()


def test_the_minimum_probability_costs_at_most_one_more_draft_decode() -> None:
    rig = Rig(agree=0.8)
    rig.prefill(PROMPT)
    for _ in range(12):
        before, proposed = len(rig.fake.decodes("draft")), rig.engine.counters["n_draft"]
        rig.engine.step(4, 0.5, 99)
        k = rig.engine.counters["n_draft"] - proposed
        decodes = len(rig.fake.decodes("draft")) - before
        assert decodes == (k if k == 4 else k + 1)
    assert rig.engine.history[len(PROMPT) :] == rig.expected(PROMPT, 99)[: rig.engine.n_history - len(PROMPT)]


def test_proposals_are_exactly_those_at_least_as_probable_as_the_minimum() -> None:
    rig = Rig(agree=1.0)
    rig.prefill(PROMPT)
    tokens, p_min, k = list(PROMPT), 0.4, 0
    while k < 8:
        row = rig.table[state(tokens)].astype(float)
        p = np.exp(row - row.max())
        if p.max() / p.sum() < p_min:
            break
        tokens.append(int(row.argmax()))
        k += 1
    rig.engine.step(8, p_min, 99)
    assert rig.engine.counters["n_draft"] == k


@pytest.mark.parametrize("n_draft", range(9))
def test_a_context_fills_to_the_exact_token(n_draft: int) -> None:
    rig = Rig(n_ctx=32, draft_n_ctx=32, agree=0.9)
    rig.prefill(PROMPT)
    assert rig.generate(1000, n_draft) == rig.expected(PROMPT, 1000)
    assert rig.engine.n_history == 32
    assert rig.engine.step(n_draft, 0.0, 9) == []


@pytest.mark.parametrize("n", [1, 31, 32])
def test_a_prompt_may_fill_the_context_or_be_one_token(n: int) -> None:
    rig = Rig(n_ctx=32, draft_n_ctx=32)
    prompt = (PROMPT * 3)[:n]
    rig.prefill(prompt)
    assert rig.generate(1000) == rig.expected(prompt, 1000)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5])
def test_a_step_never_gives_more_than_max_tokens(limit: int) -> None:
    rig = Rig(agree=1.0)
    rig.prefill(PROMPT)
    assert len(rig.engine.step(8, 0.0, limit)) == limit
    assert rig.engine.step(8, 0.0, 0) == []
    rig.check()


@pytest.mark.parametrize("place", range(6))
def test_nothing_is_kept_after_an_end_token_at_any_place_of_a_block(place: int) -> None:
    for seed in range(40):
        rig = Rig(agree=1.0, seed=seed)
        text = rig.expected(PROMPT, 10)
        if text[place] in text[:place]:
            continue
        rig = Rig(agree=1.0, seed=seed, eog=[text[place]])
        rig.prefill(PROMPT)
        assert rig.generate(99, 5) == text[: place + 1]
        assert rig.engine.history == PROMPT + text[: place + 1]
        assert rig.engine.cached[0] == len(PROMPT) + place
        assert rig.engine.step(5, 0.0, 99) == []
        return
    pytest.fail("no seed has a fresh token there")


def test_drafting_stops_at_an_end_token() -> None:
    rig = Rig(agree=1.0, seed=3)
    text = rig.expected(PROMPT, 4)
    rig = Rig(agree=1.0, seed=3, eog=[text[2]])
    rig.prefill(PROMPT)
    rig.engine.step(8, 0.0, 99)
    assert rig.engine.counters["n_draft"] == text.index(text[2]) + 1


def test_the_same_prompt_again_decodes_its_last_token_only() -> None:
    rig = Rig()
    rig.prefill(PROMPT)
    first = rig.generate(10)
    before = len(rig.fake.log)
    assert rig.prefill(PROMPT) == len(PROMPT) - 1
    assert rig.generate(10) == first
    decodes = [len(e[2]) for e in rig.fake.log[before:] if e[:2] == ("decode", "target")]
    assert decodes[0] <= 5


def test_a_shared_prefix_is_reused_in_both_caches() -> None:
    rig = Rig()
    rig.prefill(PROMPT)
    answer = rig.generate(6)
    follow = PROMPT + answer + [7, 7, 8]
    before = len(rig.fake.log)
    assert rig.prefill(follow) == len(PROMPT) + 5
    sizes = [(e[1], len(e[2])) for e in rig.fake.log[before:] if e[0] == "decode"]
    assert sizes[0] == ("target", 3)
    assert sizes[1][0] == "draft"
    assert sizes[1][1] <= 4
    assert rig.generate(10) == rig.expected(follow, 10)
    other = [*PROMPT[:4], 0, 0]
    assert rig.prefill(other) == 4
    assert rig.generate(10) == rig.expected(other, 10)


def test_truncate_cuts_history_and_caches_and_ends_the_request() -> None:
    rig = Rig(agree=1.0)
    rig.prefill(PROMPT)
    text = rig.generate(10, 4)
    rig.engine.truncate(len(PROMPT) + 3)
    rig.check()
    assert rig.engine.history == PROMPT + text[:3]
    assert len(rig.target.cells) == len(PROMPT) + 2
    assert rig.engine.step(4, 0.0, 9) == []
    follow = PROMPT + text[:3] + [5]
    assert rig.prefill(follow) == len(PROMPT) + 2
    assert rig.generate(10) == rig.expected(follow, 10)


def test_a_small_draft_context_is_a_window_on_the_newest_tokens() -> None:
    rig = Rig(n_ctx=200, draft_n_ctx=16, n_ubatch=4)
    prompt = PROMPT * 4
    rig.prefill(prompt)
    assert len(rig.draft.cells) == 7
    assert rig.generate(120, 5) == rig.expected(prompt, 120)
    assert rig.engine.draft_failed == 0
    assert max(pos + len(tokens) for tokens, pos, *_ in rig.fake.decodes("draft")) <= 16


def test_ids_are_exchanged_and_unshared_ones_never_drafted() -> None:
    n, shift, unshared = 12, 5, 7
    to_draft = np.array([(i + shift) % n for i in range(n)], np.int32)
    to_target = np.array([(i - shift) % n for i in range(n)], np.int32)
    to_target[(unshared + shift) % n] = -1
    rig = Rig(agree=1.0, to_draft=to_draft, to_target=to_target)
    law = rig.table
    rig.draft.law = lambda t: np.roll(law[state([(i - shift) % n for i in t])], shift)
    rig.prefill(PROMPT)
    drafted = []
    while len(rig.engine.history) < 60:
        got = rig.engine.step(4, 0.0, 99)
        drafted += [token for token, f in got if f]
    assert rig.engine.history == PROMPT + rig.expected(PROMPT, len(rig.engine.history) - len(PROMPT))
    assert unshared not in drafted
    assert len(drafted) > 20
    assert rig.fake.decodes("draft")[0][0] == tuple((i + shift) % n for i in PROMPT[:8])


def test_a_draft_that_is_turned_off_stays_a_prefix_and_catches_up() -> None:
    rig = Rig(agree=1.0)
    rig.prefill(PROMPT)
    out = rig.generate(8)
    rig.engine.set_draft(False)
    before = len(rig.fake.decodes("draft"))
    out += rig.generate(8)
    assert len(rig.fake.decodes("draft")) == before
    rig.engine.set_draft(True)
    out += rig.generate(8)
    assert out == rig.expected(PROMPT, 24)
    assert len(rig.fake.decodes("draft")) > before


def test_cancel_stops_before_the_next_chunk_and_prefill_goes_on_afterwards() -> None:
    rig = Rig(n_ubatch=4)
    rig.engine.begin(PROMPT)
    rig.engine.prefill()
    rig.engine.cancel()
    with pytest.raises(NativeCancelled):
        rig.engine.prefill()
    assert len(rig.fake.decodes("target")) == 1
    rig.engine.clear_cancel()
    assert rig.engine.prefill() == (8, 20)
    assert rig.generate(10) == rig.expected(PROMPT, 10)


@pytest.mark.parametrize("at", range(12))
def test_cancel_inside_any_decode_leaves_the_engine_usable(at: int) -> None:
    rig = Rig(n_ubatch=4, agree=1.0)
    count = iter(range(1000))

    def cancel() -> None:
        if next(count) == at:
            rig.engine.cancel()

    rig.target.on_decode = rig.draft.on_decode = cancel
    with pytest.raises(NativeCancelled):
        rig.run(PROMPT, 40)
    rig.check()
    rig.engine.clear_cancel()
    so_far = rig.engine.history[len(PROMPT) :]
    assert so_far == rig.expected(PROMPT, len(so_far)) if so_far else True
    assert so_far + rig.generate(10) == rig.expected(PROMPT, len(so_far) + 10)


def test_counters_count_and_closed_engines_refuse() -> None:
    rig = Rig(agree=1.0)
    rig.prefill(PROMPT)
    out = rig.generate(30, 4)
    c = rig.engine.counters
    assert len(out) == c["n_accepted"] + c["verify_steps"]
    assert c["n_draft"] == c["n_accepted"]
    assert c["target_decodes"] == len(rig.fake.decodes("target"))
    assert c["draft_decodes"] == len(rig.fake.decodes("draft"))
    assert 0 < c["select_us"] < c["total_us"]
    assert rig.target.abort
    assert rig.draft.abort
    rig.engine.close()
    rig.engine.close()
    rig.engine.cancel()
    assert rig.target.abort is None
    with pytest.raises(ValueError, match="closed"):
        rig.engine.step(1, 0.0, 1)


@pytest.mark.parametrize(
    ("prompt", "code"),
    [([], "GT_E_ARGUMENT"), ([0] * 65, "GT_E_ARGUMENT"), ([12], "GT_E_TOKEN"), ([-1], "GT_E_TOKEN")],
)
def test_a_wrong_prompt_is_refused(prompt: list[int], code: str) -> None:
    rig = Rig()
    with pytest.raises(EngineError) as error:
        rig.engine.begin(prompt)
    assert _native.CODES[error.value.code][0] == code


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_draft_max": 32}, {"to_draft": np.zeros(3, np.int32)}, {"to_draft": np.full(12, 12, np.int32)},
        {"to_target": np.full(12, -2, np.int32)}, {"rewind": 4}, {"n_ctx": 0}, {"draft_rewind": 3},
    ],
)  # fmt: skip
def test_wrong_parameters_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(EngineError):
        Rig(**wrong)  # type: ignore[arg-type]


def test_what_ngrams_propose_is_learned_from_though_none_of_it_is_verified() -> None:
    """A batch of two costs nearly two plain tokens here: only what is all but certain would be verified."""
    pace, rig = _native.Pace(), Rig(draft=False)
    for width in (1, 2, 4, 8):
        for _ in range(9):
            pace.verified(width, 950 * width + 50)
    rig.takes(1000, 0)
    rig.engine.learned = pace.save()
    rig.engine.set_draft(False, True)
    rig.prefill([1, 2, 3] * 6)
    rig.generate(6, _native.AUTO)
    assert rig.engine.counters["n_draft"] == 0
    before = pace.chance(1, 0.8, 0)
    pace.load(rig.engine.learned)
    assert pace.chance(1, 0.8, 0) != before
