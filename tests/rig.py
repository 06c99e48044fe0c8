"""A fake target and draft with random laws, an engine on both, and what the target alone would say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from fake_llama import Context, FakeLlama

from gguftools import _native

STATES = 101


def state(tokens: Iterable[int]) -> int:
    """A hash of the whole prefix: a wrong token anywhere gives other logits."""
    h = 1
    for token in tokens:
        h = (h * 31 + token + 7) % STATES
    return h


class Rig:
    def __init__(
        self, *, n_vocab: int = 12, seed: int = 0, agree: float = 0.7, blend: float = 0.0,
        n_ctx: int = 64, n_batch: int = 32,
        n_ubatch: int = 8, n_draft_max: int = 8, draft: bool = True, draft_n_ctx: int = 64,
        eog: Sequence[int] = (), target_kind: dict[str, Any] | None = None,
        draft_kind: dict[str, Any] | None = None, **more: Any,
    ) -> None:  # fmt: skip
        rng = np.random.default_rng(seed)
        self.table = rng.normal(0, 2, (STATES, n_vocab)).astype(np.float32)
        other = rng.normal(0, 2, (STATES, n_vocab)).astype(np.float32)
        other = (blend * self.table + (1 - blend) * other).astype(np.float32)  # 1: the target's
        self.draft_table = np.where(rng.random((STATES, 1)) < agree, self.table, other)
        self.n_vocab, self.n_ctx, self.eog = n_vocab, n_ctx, set(eog)
        self.fake = FakeLlama()
        self.fake.install()
        self.target = Context(
            "target",
            lambda t: self.table[state(t)],
            n_vocab,
            n_ctx,
            n_batch,
            n_draft_max + 1,
            **target_kind or {},
        )
        self.draft = Context(
            "draft",
            lambda t: self.draft_table[state(t)],
            n_vocab,
            draft_n_ctx,
            n_batch,
            1,
            **draft_kind or {},
        )
        target, other_handle = self.fake.add(self.target), self.fake.add(self.draft)
        flags = bytes(int(i in self.eog) for i in range(n_vocab))
        self.engine = _native.Engine(
            target, other_handle if draft else 0, n_vocab=n_vocab, n_ctx=n_ctx, n_batch=n_batch,
            n_ubatch=n_ubatch, draft_n_vocab=n_vocab, draft_n_ctx=draft_n_ctx, draft_n_batch=n_batch,
            draft_n_ubatch=n_ubatch, n_draft_max=n_draft_max, eog=flags, **more,
        )  # fmt: skip

    def takes(self, target_us: int, draft_us: int) -> None:
        """Gives decodes a time of their own."""

        def wait(us: int) -> None:
            self.fake.clock += us

        self.target.on_decode = lambda: wait(target_us)
        self.draft.on_decode = lambda: wait(draft_us)

    def expected(self, prompt: Sequence[int], n: int) -> list[int]:
        """The target's greedy continuation of at most n tokens, up to an end token or the context's end."""
        tokens = list(prompt)
        while len(tokens) < min(len(prompt) + n, self.n_ctx):
            tokens.append(int(np.argmax(self.table[state(tokens)])))
            if tokens[-1] in self.eog:
                break
        return tokens[len(prompt) :]

    def prefill(self, prompt: Sequence[int], **more: Any) -> int:
        reused = self.engine.begin(prompt, **more)
        while True:
            done, total = self.engine.prefill()
            if done == total:
                return reused

    def generate(self, n: int, n_draft: int = 4, p_min: float = 0.0) -> list[int]:
        out: list[int] = []
        while len(out) < n:
            got = self.engine.step(n_draft, p_min, n - len(out))
            if not got:
                break
            out += [token for token, _ in got]
            self.check()
        return out

    def run(self, prompt: Sequence[int], n: int) -> list[int]:
        self.prefill(prompt)
        return self.generate(n)

    def check(self) -> None:
        """I1 … I3 between calls, and nothing that would have ended the process."""
        assert self.fake.faults == []
        history, (n_target, n_draft) = self.engine.history, self.engine.cached
        cells = self.target.cells[: self.target.pos_max() + 1]
        assert cells == history[:n_target]
        assert n_target <= len(history) - 1
        cells = self.draft.cells[: self.draft.pos_max() + 1]
        assert len(cells) == n_draft
        assert n_draft == 0 or any(
            cells == history[i : i + n_draft] for i in range(len(history) - n_draft + 1)
        )
