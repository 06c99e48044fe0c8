"""What the engine does when llama_decode, a sampler or the memory fails: I7, I8, and the ways back."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from rig import Rig, state

from gguftools import _native
from gguftools._native import EngineError, NativeCancelled

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
CODES = [1, 2, -1, -2, -3]
RECURRENT = {"recurrent": True}


pytestmark = pytest.mark.usefixtures("real_api")


def name_of(error: pytest.ExceptionInfo[EngineError]) -> str:
    return str(_native.CODES[error.value.code][0])


def expect(code: int) -> Any:
    return pytest.raises(NativeCancelled) if code == 2 else pytest.raises(EngineError)


@pytest.mark.parametrize("kind", [{}, RECURRENT])
@pytest.mark.parametrize("code", CODES)
def test_a_failing_prefill_is_reported_and_can_be_repeated(code: int, kind: dict[str, bool]) -> None:
    rig = Rig(n_ubatch=4, target_kind=kind, rewind=2 if kind else 0)
    rig.target.codes = [0, code]
    with expect(code) as error:
        rig.prefill(PROMPT)
    if code != 2:
        assert error.value.code == code
    rig.check()
    while rig.engine.prefill()[0] < 20:
        pass
    assert rig.generate(20) == rig.expected(PROMPT, 20)


@pytest.mark.parametrize("kind", [{}, RECURRENT])
@pytest.mark.parametrize("code", [1, -1, -2, -3])
def test_a_failing_verify_is_retried_once_without_a_draft(code: int, kind: dict[str, bool]) -> None:
    rig = Rig(target_kind=kind, rewind=2 if kind else 0, agree=1.0)
    rig.prefill(PROMPT)
    out = rig.generate(6)
    rig.target.codes = [code]
    got = rig.engine.step(4, 0.0, 99)
    rig.check()
    assert len(got) == 1
    assert not got[0][1]
    assert rig.engine.draft_failed == 0
    assert [*out, got[0][0], *rig.generate(10)] == rig.expected(PROMPT, 17)


@pytest.mark.parametrize("kind", [{}, RECURRENT])
@pytest.mark.parametrize("code", CODES)
def test_a_verify_that_fails_again_is_reported_with_the_history_as_before(
    code: int, kind: dict[str, bool]
) -> None:
    rig = Rig(target_kind=kind, rewind=2 if kind else 0, agree=1.0)
    rig.prefill(PROMPT)
    out = rig.generate(6)
    rig.target.codes = [code] * 3
    with expect(code) as error:
        rig.engine.step(4, 0.0, 99)
    if code != 2:
        assert error.value.code == code
    rig.target.codes = []
    rig.check()
    assert rig.engine.history == PROMPT + out
    assert out + rig.generate(10) == rig.expected(PROMPT, 16)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("place", range(6))
def test_a_failing_draft_is_switched_off_and_never_fails_the_request(code: int, place: int) -> None:
    rig = Rig(n_ubatch=4, agree=1.0)
    rig.draft.codes = [0] * place + [code]
    rig.prefill(PROMPT)
    assert rig.generate(20) == rig.expected(PROMPT, 20)
    assert rig.engine.draft_failed == code
    assert rig.engine.cached[1] == 0
    rig.prefill([7, 8, 9])
    rig.generate(20)
    assert rig.engine.draft_failed == 0
    assert rig.engine.counters["n_accepted"] > 0


def test_a_draft_fed_an_id_it_does_not_have_is_switched_off() -> None:
    rig = Rig()
    engine = _native.Engine(
        0x1000, 0x2000, n_vocab=12, n_ctx=64, n_batch=32, n_ubatch=8, draft_n_vocab=4, draft_n_ctx=64,
        draft_n_batch=32, draft_n_ubatch=8, n_draft_max=8, eog=bytes(12),
    )  # fmt: skip
    engine.begin(PROMPT)
    while len(set(engine.prefill())) > 1:
        pass
    engine.step(4, 0.0, 9)
    assert _native.CODES[engine.draft_failed][0] == "GT_E_TOKEN"
    assert rig.fake.faults == []


@pytest.mark.parametrize("which", ["target", "draft"])
def test_a_cache_that_somebody_else_moved_is_noticed_before_the_decode(which: str) -> None:
    rig = Rig()
    rig.prefill(PROMPT)
    out = rig.generate(4)
    getattr(rig, which).cells.append(0)
    if which == "target":
        with pytest.raises(EngineError) as error:
            rig.engine.step(0, 0.0, 99)
        assert name_of(error) == "GT_E_POSITION"
    out += rig.generate(10)
    assert out == rig.expected(PROMPT, 14)
    assert (rig.engine.draft_failed != 0) == (which == "draft")
    assert rig.fake.faults == []


@pytest.mark.parametrize("rewind", [1, 2])
@pytest.mark.parametrize("agree", [0.3, 0.8, 1.0])
@pytest.mark.parametrize("n_draft", [1, 3, 8])
@pytest.mark.parametrize("both", [False, True])
def test_recurrent_memory_goes_back_by_snapshots_or_a_checkpoint(
    rewind: int, agree: float, n_draft: int, both: bool
) -> None:
    kind = {"recurrent": True, "snapshots": 4 if rewind == 1 else 0}
    rig = Rig(
        agree=agree, target_kind=kind, rewind=rewind, rewind_bound=4, draft_kind=kind if both else {},
        draft_rewind=rewind if both else 0, draft_rewind_bound=4,
    )  # fmt: skip
    rig.prefill(PROMPT)
    prefilled = len(rig.fake.decodes("draft"))
    text = rig.generate(30, n_draft)
    assert text == rig.expected(PROMPT, 30)
    assert rig.engine.draft_failed == 0
    counters = rig.engine.counters
    assert counters["target_decodes"] <= 2 + 2 * counters["verify_steps"]
    assert max(len(tokens) for tokens, *_ in rig.fake.decodes("draft")[prefilled:]) <= 2 + n_draft
    follow = [*rig.engine.history, 1, 2]
    assert rig.prefill(follow) >= len(follow) - 3 - n_draft
    assert rig.generate(5) == rig.expected(follow, 5)


def test_a_prefix_that_recurrent_memory_cannot_be_cut_to_is_decoded_again() -> None:
    rig = Rig(target_kind=RECURRENT, rewind=2, draft_kind=RECURRENT, draft_rewind=2)
    rig.prefill(PROMPT)
    rig.generate(5)
    other = [*PROMPT[:6], 0]
    assert rig.prefill(other) == 0
    assert rig.generate(10) == rig.expected(other, 10)


def test_memory_that_cannot_be_rewound_runs_plain() -> None:
    rig = Rig(target_kind=RECURRENT, rewind=3)
    rig.prefill(PROMPT)
    assert rig.generate(20) == rig.expected(PROMPT, 20)
    assert rig.engine.counters["n_draft"] == 0


def test_a_sliding_window_is_never_cut_further_back_than_it_remembers() -> None:
    kind = {"window": (6, 8)}
    rig = Rig(target_kind=kind, draft_kind=kind, n_ctx=200, draft_n_ctx=200, agree=0.8)
    prompt = PROMPT * 3
    rig.prefill(prompt)
    assert rig.generate(40) == rig.expected(prompt, 40)
    for cut in (3, 2, 60, 20, 1):
        follow = [*rig.engine.history[:-cut], 3, 3, 3]
        rig.prefill(follow)
        assert rig.generate(10) == rig.expected(follow, 10)


class Chain:
    """A sampler that takes the largest logit and remembers what it was told; `fail`: it selects nothing."""

    def __init__(self, allowed: Any = None, fail: bool = False) -> None:
        self.allowed, self.fail, self.accepted, self.sizes = allowed, fail, [], []  # type: ignore[var-annotated]
        self.resets = 0

    def apply(self, ids: np.ndarray, logits: np.ndarray) -> int | None:
        self.sizes.append(len(ids))
        if self.allowed is not None:
            logits[[self.allowed(self.accepted, int(i)) is False for i in ids]] = -np.inf
            return None
        return None if self.fail else int(np.argmax(logits))

    def accept(self, token: int) -> None:
        self.accepted.append(token)

    def reset(self) -> None:
        self.resets += 1
        self.accepted = []


@pytest.mark.parametrize("n_draft", [0, 4])
@pytest.mark.parametrize("preselect", [0, 3])
def test_the_sampler_accepts_each_emitted_token_exactly_once_after_the_prompts_last(
    n_draft: int, preselect: int
) -> None:
    rig, chain = Rig(agree=0.8), Chain()
    rig.prefill(PROMPT, sampler=rig.fake.add_sampler(chain), preselect=preselect, n_penalty=4)
    text = rig.generate(20, n_draft)
    assert text == rig.expected(PROMPT, 20)
    assert chain.accepted == PROMPT[-4:] + text
    assert chain.sizes == [preselect or 12] * 20
    assert chain.resets == 1


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("n_draft", [0, 4])
def test_the_grammar_sees_each_emitted_token_once_and_no_refused_one(n_draft: int, sampled: bool) -> None:
    rig, chain = Rig(agree=1.0), Chain()
    grammar = Chain(allowed=lambda seen, token: token % 3 == len(seen) % 3)
    sampler = rig.fake.add_sampler(chain) if sampled else 0
    rig.prefill(PROMPT, sampler=sampler, grammar=rig.fake.add_sampler(grammar), preselect=2 if sampled else 0)
    text = rig.generate(20, n_draft)
    tokens = list(PROMPT)
    for i in range(20):
        row = rig.table[state(tokens)].copy()
        row[[t % 3 != i % 3 for t in range(12)]] = -np.inf
        tokens.append(int(row.argmax()))
    assert text == tokens[len(PROMPT) :]
    assert grammar.accepted == text
    assert not sampled or chain.accepted == text


@pytest.mark.parametrize("at", [0, 2])
def test_a_grammar_without_a_way_on_is_an_error_after_what_was_emitted(at: int) -> None:
    rig = Rig(agree=1.0)
    grammar = Chain(allowed=lambda seen, token: len(seen) < at)
    rig.prefill(PROMPT, grammar=rig.fake.add_sampler(grammar))
    if at:
        assert [t for t, _ in rig.engine.step(4, 0.0, 99)] == rig.expected(PROMPT, at)
    before = len(rig.fake.decodes("target"))
    with pytest.raises(EngineError) as error:
        rig.engine.step(4, 0.0, 99)
    assert name_of(error) == "GT_E_GRAMMAR"
    assert len(rig.fake.decodes("target")) - before == (0 if at else 1)
    assert rig.engine.history == PROMPT + grammar.accepted
    rig.check()


def test_rows_without_a_finite_logit_and_samplers_without_a_choice_are_errors() -> None:
    rig = Rig(draft=False)
    rig.prefill(PROMPT)
    rig.table[:] = np.nan
    with pytest.raises(EngineError) as error:
        rig.engine.step(0, 0.0, 1)
    assert name_of(error) == "GT_E_LOGITS"
    rig.prefill(PROMPT, sampler=rig.fake.add_sampler(Chain(fail=True)))
    with pytest.raises(EngineError) as error:
        rig.engine.step(0, 0.0, 1)
    assert name_of(error) == "GT_E_SAMPLER"


def test_missing_logits_are_an_error_on_the_target_and_end_the_draft() -> None:
    rig = Rig()
    rig.prefill(PROMPT)
    rig.draft.on_decode = lambda: setattr(rig.draft, "law", lambda t: np.full(12, np.nan))
    rig.generate(3)
    assert _native.CODES[rig.engine.draft_failed][0] == "GT_E_LOGITS"


def test_the_table_is_whole_and_its_structs_are_those_of_ctypes() -> None:
    from fake_llama import Batch, TokenData, TokenDataArray

    assert _native.has_api()
    with pytest.raises(ValueError, match="addresses"):
        _native.set_api([1])
    for name, kind in (
        ("llama_batch", Batch), ("llama_token_data", TokenData), ("llama_token_data_array", TokenDataArray),
    ):  # fmt: skip
        fields = {field[0]: getattr(kind, field[0]).offset for field in kind._fields_}
        assert _native.STRUCTS[name] == fields | {"sizeof": ctypes.sizeof(kind)}
