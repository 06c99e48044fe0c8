"""Any order of requests, rounds, cuts, cancels and failures: the engine against a simple model in Python."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from rig import Rig

from gguftools import _native
from gguftools._native import EngineError, NativeCancelled

KINDS = [
    ({}, 0), ({"window": (5, 8)}, 0), ({"recurrent": True, "snapshots": 3}, 1), ({"recurrent": True}, 2),
]  # fmt: skip
TOKENS = st.lists(st.integers(0, 11), min_size=1, max_size=20)


class Requests(RuleBasedStateMachine):
    """The model: `tokens` is the history, the target's greedy continuation is all that may follow."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens: list[int] = []
        self.ended = True

    @initialize(
        memory=st.sampled_from(KINDS), draft=st.sampled_from(KINDS), agree=st.sampled_from([0.0, 0.6, 1.0]),
        seed=st.integers(0, 5), n_ctx=st.sampled_from([20, 64]), draft_n_ctx=st.sampled_from([8, 20, 64]),
        eog=st.sampled_from([[], [3]]),
    )  # fmt: skip
    def make(self, memory, draft, agree, seed, n_ctx, draft_n_ctx, eog) -> None:  # type: ignore[no-untyped-def]
        self.rig = Rig(
            seed=seed, agree=agree, n_ctx=n_ctx, draft_n_ctx=draft_n_ctx, eog=eog, target_kind=memory[0],
            rewind=memory[1], rewind_bound=3, draft_kind=draft[0],
            draft_rewind=draft[1], draft_rewind_bound=3,
        )  # fmt: skip

    @rule(prompt=TOKENS, keep=st.integers(0, 64))
    def begin(self, prompt: list[int], keep: int) -> None:
        self.tokens = (self.tokens[:keep] + prompt)[: self.rig.n_ctx]
        assert self.rig.engine.begin(self.tokens) < len(self.tokens)
        self.ended = False
        self.same()

    @precondition(lambda self: self.tokens)
    @rule(chunks=st.integers(1, 9))
    def prefill(self, chunks: int) -> None:
        for _ in range(chunks):
            done, total = self.rig.engine.prefill()
            assert 0 <= done <= total
            if done == total:
                break
        self.same()

    def emitted(self, got: list[tuple[int, bool]], most: int) -> None:
        text = [token for token, _ in got]
        assert len(text) <= most
        assert text == ([] if self.ended else self.rig.expected(self.tokens, len(text)))
        assert text or self.ended or most == 0 or len(self.tokens) == self.rig.n_ctx
        self.tokens = self.tokens + text
        self.ended = self.ended or bool(text and text[-1] in self.rig.eog)
        self.same()

    @precondition(lambda self: self.tokens)
    @rule(n_draft=st.integers(0, 9), p_min=st.sampled_from([0.0, 0.4]), most=st.integers(0, 12))
    def step(self, n_draft: int, p_min: float, most: int) -> None:
        self.emitted(self.rig.engine.step(n_draft, p_min, most), most)

    @precondition(lambda self: self.tokens)
    @rule(n=st.integers(1, 64))
    def truncate(self, n: int) -> None:
        self.tokens = self.tokens[:n]
        self.rig.engine.truncate(len(self.tokens))
        self.ended = True
        self.same()

    @precondition(lambda self: self.tokens)
    @rule(after=st.integers(0, 6), n_draft=st.integers(0, 5))
    def cancelled(self, after: int, n_draft: int) -> None:
        count = iter(range(99))
        hook = lambda: next(count) == after and self.rig.engine.cancel()  # noqa: E731
        self.rig.target.on_decode = self.rig.draft.on_decode = hook  # type: ignore[assignment]
        try:
            self.emitted(self.rig.engine.step(n_draft, 0.0, 9), 9)
        except NativeCancelled:
            self.same()
        self.rig.target.on_decode = self.rig.draft.on_decode = None
        self.rig.engine.clear_cancel()

    @precondition(lambda self: self.tokens)
    @rule(code=st.sampled_from([1, -1, -2, -3]), after=st.integers(0, 3), n_draft=st.integers(0, 5))
    def failing(self, code: int, after: int, n_draft: int) -> None:
        self.rig.target.codes = [0] * after + [code]
        try:
            self.emitted(self.rig.engine.step(n_draft, 0.0, 9), 9)
        except EngineError as error:
            self.same()
            if error.code != code:
                raise
        self.rig.target.codes = []

    @rule(code=st.sampled_from([1, 2, -1, -2, -3]), after=st.integers(0, 9))
    def failing_draft(self, code: int, after: int) -> None:
        self.rig.draft.codes = [0] * after + [code]

    @precondition(lambda self: self.tokens)
    @rule()
    def reload(self) -> None:
        """The state goes out and comes back: the caches hold what they held."""
        engine = self.rig.engine
        before = engine.cached
        (_, n, _), (_, n_draft, base) = (_native.state_part(engine, draft) for draft in (False, True))
        states = [_native.read_state(engine, draft) for draft in (False, True)]
        engine.truncate(1)
        _native.restore_state(engine, array("i", self.tokens), states[0], n, states[1], n_draft, base)
        assert engine.cached == before
        self.ended = True
        self.same()

    @rule(on=st.booleans())
    def toggle(self, on: bool) -> None:
        self.rig.engine.set_draft(on)

    def same(self) -> None:
        assert self.rig.engine.history == self.tokens
        self.rig.check()


@pytest.mark.usefixtures("real_api")
def test_any_order_of_calls_gives_the_targets_text_and_valid_caches() -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Requests,
        settings=settings(
            max_examples=400, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
