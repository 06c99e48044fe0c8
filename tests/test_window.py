"""Sliding windows: a cut past what they still hold decodes again, any other is free; the text is the same."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from pathlib import Path

import llama_api
import numpy as np
import pytest
import tiny_models
import tiny_session
from llama_api import Loaded, low
from test_engine_real import regret

from gguftools import Model, _native
from gguftools._native import Engine

N_SWA, N_UBATCH, N_CTX = 192, 64, 2048  # windows of 256 positions, no padding beside


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    llama_api.install()
    return Loaded(tiny_models.gemma3(tmp_path_factory.mktemp("window") / "gemma3.gguf", n_swa=N_SWA))


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return Loaded(
        tiny_models.gemma3(tmp_path_factory.mktemp("window") / "draft.gguf", n_swa=N_SWA, noise=0.12)
    )


class Windowed:
    """An engine on contexts whose window layers hold the window alone."""

    def __init__(self, model: Loaded, draft: Loaded) -> None:
        llama_api.install()
        self.model = model
        self.contexts = [self._context(one) for one in (model, draft)]
        sizes = {"n_ctx": N_CTX, "n_batch": 512, "n_ubatch": N_UBATCH}
        self.engine = Engine(
            *self.contexts, n_vocab=model.n_vocab, eog=model.eog, n_draft_max=8, draft_n_vocab=model.n_vocab,
            **sizes, **{f"draft_{name}": value for name, value in sizes.items()},
        )  # fmt: skip

    def _context(self, model: Loaded) -> int:
        params = low.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.swa_full = N_CTX, 512, N_UBATCH, False
        params.n_threads = params.n_threads_batch = 1
        params.type_k = params.type_v = params.flash_attn_type = 0
        return llama_api.address(low.llama_init_from_model(model.model, params))

    def ask(self, prompt: list[int], n: int, n_draft: int = 5) -> int:
        """Checks an answer of n tokens, scored one by one on a fresh context; returns the reused tokens."""
        reused = self.engine.begin(prompt)
        while len(set(self.engine.prefill())) > 1:
            pass
        text: list[int] = []
        while len(text) < n and (got := self.engine.step(n_draft, 0.0, n - len(text))):
            text += [token for token, _ in got]
        assert regret(self.model, prompt, text) <= 0.02
        assert self.engine.draft_failed == 0
        return reused

    def close(self) -> None:
        self.engine.close()
        for context in self.contexts:
            low.llama_free(context)


@pytest.fixture
def windowed(model: Loaded, draft: Loaded) -> Iterator[Windowed]:
    made = Windowed(model, draft)
    yield made
    made.close()


def tokens(n: int, seed: int = 0) -> list[int]:
    return [int(t) for t in np.random.default_rng(seed).integers(0, 64, n)]


def test_refused_proposals_far_past_the_window_leave_no_trace(windowed: Windowed) -> None:
    windowed.ask(tokens(700), 200)
    counters = windowed.engine.counters
    assert counters["n_draft"] - counters["n_accepted"] > 50
    assert counters["n_accepted"] > 50
    assert counters["target_decodes"] == counters["verify_steps"] + 11  # 699 tokens in chunks of 64


def test_a_cut_inside_the_window_is_free_and_one_behind_it_decodes_again(windowed: Windowed) -> None:
    prompt = tokens(700)
    windowed.ask(prompt, 8)
    assert windowed.ask([*prompt[:690], 5, 6], 8) == 690
    assert windowed.ask([*prompt[:300], 5, 6], 8) == 0
    assert windowed.ask([*prompt[:290], 5, 6], 8) == 290


def test_any_order_of_cuts_and_growth_gives_the_right_text(windowed: Windowed) -> None:
    rng = np.random.default_rng(3)
    prompt, free = tokens(400), 0
    for i in range(30):
        free += windowed.ask(prompt, int(rng.integers(1, 20)), int(rng.integers(0, 9))) > 0
        history = windowed.engine.history
        keep = max(1, len(history) - int(rng.integers(0, 80)))
        prompt = [*history[:keep], *tokens(int(rng.integers(1, 50)), i)][:1200]
    assert free > 10


def test_after_a_load_only_what_the_window_shows_is_there(windowed: Windowed) -> None:
    prompt, engine = tokens(700), windowed.engine
    windowed.ask(prompt, 20)
    history = engine.history
    parts = [_native.state_part(engine, draft) for draft in (False, True)]
    states = [_native.read_state(engine, draft) for draft in (False, True)]

    def load() -> None:
        (_, n, _), (_, n_draft, first) = parts
        _native.restore_state(engine, array("i", history), states[0], n, states[1], n_draft, first)

    load()
    assert windowed.ask([*history, 5, 6], 12) == len(history) - 1
    load()
    assert windowed.ask([*history[:-10], 5, 6], 12) == 0


@pytest.mark.parametrize("n_swa", [16, 64])
def test_a_session_writes_the_plain_text_past_the_window_and_after_a_rewind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_swa: int
) -> None:
    monkeypatch.setattr(
        "gguf.GGUFWriter.add_tokenizer_model", lambda writer, _: tiny_session.add_tokens(writer)
    )
    n_vocab = len(tiny_session.tokens())
    target = tiny_models.gemma3(tmp_path / "target.gguf", n_vocab, n_swa=n_swa)
    draft = tiny_models.gemma3(tmp_path / "draft.gguf", n_vocab, n_swa=n_swa, noise=0.12)
    prompts = ["the thin line " * 40, "the thin line " * 20 + "in", "the thin line " * 20 + "in the end"]

    def answers(draft: Path | None) -> list[tuple[int, ...]]:
        with Model.load(target, draft, threads=1) as model, model.session(n_ctx=1024) as session:
            found = [
                session.generate(prompt, max_tokens=80, temperature=0, draft_tokens=5, draft_p_min=0).result()
                for prompt in prompts
            ]
        if draft is not None:
            assert sum(result.stats.draft_n - result.stats.draft_n_accepted for result in found) > 30
            assert found[1].stats.cache_n > n_swa
        return [result.tokens for result in found]

    assert answers(draft) == answers(None)
