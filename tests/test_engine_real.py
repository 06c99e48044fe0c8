"""The engine on libllama: SmolLM2 with several drafts, and tiny recurrent and hybrid models."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import llama_api
import numpy as np
import pytest
import tiny_models
from llama_api import Chain, Loaded, low

from gguftools import _native
from gguftools._native import Engine, EngineError, NativeCancelled, Rewind

F32, Q4_0 = 0, 2
PROMPTS = ["The first ten prime numbers are 2, 3, 5, 7,", "def fibonacci(n):\n"]


@pytest.fixture(autouse=True)
def _table() -> None:
    llama_api.install()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    llama_api.install()
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def target(folder: Path, smollm2: Path) -> Loaded:
    return Loaded(llama_api.quantize(smollm2, folder / "f32.gguf", F32))


@pytest.fixture(scope="module")
def drafts(folder: Path, smollm2: Path, target: Loaded) -> dict[str, Loaded]:
    return {
        "q4_1": Loaded(smollm2),
        "q4_0": Loaded(llama_api.quantize(smollm2, folder / "q4_0.gguf", Q4_0)),
        "same": target,
        "random": Loaded(tiny_models.llama(folder / "random.gguf", target.n_vocab)),
    }


class Pair:
    """Contexts and an engine, freed with the block."""

    def __init__(
        self,
        target: Loaded,
        draft: Loaded | None = None,
        n_ctx: int = 512,
        n_rs: int = 0,
        exact: bool = False,
        **more: Any,
    ) -> None:
        self.target, self.n_ctx = target, n_ctx
        self.contexts = [m.context(n_ctx, n_rs_seq=n_rs, exact=exact) for m in (target, draft) if m]
        size = {"n_ctx": n_ctx, "n_batch": 512, "n_ubatch": 64}
        draft_size = (
            {f"draft_{k}": v for k, v in size.items()} | {"draft_n_vocab": draft.n_vocab} if draft else {}
        )
        self.engine = Engine(
            *self.contexts,
            n_vocab=target.n_vocab,
            eog=target.eog,
            n_draft_max=8,
            **size,
            **draft_size,
            **more,
        )

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.close()
        for context in self.contexts:
            low.llama_free(context)

    def prefill(self, prompt: Sequence[int], **more: Any) -> int:
        reused = self.engine.begin(prompt, **more)
        while len(set(self.engine.prefill())) > 1:
            pass
        return reused

    def generate(self, n: int, n_draft: int = 5, p_min: float = 0.0) -> list[int]:
        out: list[int] = []
        while len(out) < n and (got := self.engine.step(n_draft, p_min, n - len(out))):
            out += [token for token, _ in got]
        return out


def regret(model: Loaded, prompt: Sequence[int], text: Sequence[int]) -> float:
    """How far, at worst, an emitted token lies below the best when the text is scored one token at a time."""
    rows = model.rows([*prompt, *text], len(prompt) - 1)[:-1]
    return float(max(row.max() - row[token] for row, token in zip(rows, text, strict=True)))


@pytest.mark.parametrize("name", ["q4_1", "q4_0", "random"])
@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_text_is_the_targets_with_any_draft(
    target: Loaded, drafts: dict[str, Loaded], name: str, prompt: str
) -> None:
    tokens = target.tokens(prompt)
    with Pair(target, drafts[name]) as pair:
        pair.prefill(tokens)
        text = pair.generate(48)
        counters = pair.engine.counters
        assert pair.engine.draft_failed == 0
    assert len(text) == 48 or target.eog[text[-1]]
    assert regret(target, tokens, text) <= 0.2
    accepted = counters["n_accepted"] / counters["n_draft"]
    assert accepted < 0.1 if name == "random" else accepted > 0.3


def test_a_target_that_drafts_for_itself_accepts_nearly_all(
    target: Loaded, drafts: dict[str, Loaded]
) -> None:
    n_draft = n_accepted = 0
    for prompt in PROMPTS:
        with Pair(target, drafts["same"]) as pair:
            pair.prefill(target.tokens(prompt))
            pair.generate(60)
            n_draft += pair.engine.counters["n_draft"]
            n_accepted += pair.engine.counters["n_accepted"]
    assert n_accepted >= 0.95 * n_draft


def test_after_fifty_rounds_the_logits_are_those_of_a_fresh_prefill(
    target: Loaded, drafts: dict[str, Loaded]
) -> None:
    with Pair(target, drafts["q4_1"], exact=True) as pair:
        pair.prefill(target.tokens(PROMPTS[0]))
        for _ in range(50):
            assert pair.engine.step(5, 0.0, 99)
        history = pair.engine.history
        pair.engine.step(0, 0.0, 1)
        row = llama_api.logits(pair.contexts[0], 0, target.n_vocab)
    fresh = target.rows(history, len(history) - 1, exact=True)[0]
    assert np.abs(row - fresh).max() <= 0.001, np.abs(row - fresh).max()


def test_a_hundred_cancels_at_random_moments_leave_the_engine_usable(
    target: Loaded, drafts: dict[str, Loaded]
) -> None:
    rng = random.Random(0)
    prompt = target.tokens("Once upon a time there was a small fox. " * 12)
    cancelled = 0
    with Pair(target, drafts["q4_1"]) as pair:
        for i in range(100):
            timer = threading.Timer(rng.uniform(0, 0.12), pair.engine.cancel)
            timer.start()
            try:
                pair.prefill(prompt[: len(prompt) - i % 7])
                pair.generate(300)
            except NativeCancelled:
                cancelled += 1
            timer.join()
            pair.engine.clear_cancel()
        assert cancelled >= 90
        pair.prefill(prompt)
        text = pair.generate(24)
        assert pair.engine.draft_failed == 0
    assert regret(target, prompt, text) <= 0.2


def test_a_cancel_stops_a_running_decode_at_once(target: Loaded) -> None:
    prompt = target.tokens("word " * 400)
    with Pair(target) as pair:
        pair.engine.begin(prompt)
        start = time.perf_counter()
        pair.engine.prefill()  # 64 of about 400 tokens
        one = time.perf_counter() - start
        threading.Timer(one / 5, pair.engine.cancel).start()
        start = time.perf_counter()
        with pytest.raises(NativeCancelled):
            pair.prefill(prompt)
        assert time.perf_counter() - start < one


def test_a_sampled_text_with_a_seed_is_scored_as_likely_and_repeats(
    target: Loaded, drafts: dict[str, Loaded]
) -> None:
    prompt, texts = target.tokens(PROMPTS[0]), []
    for n_draft in (0, 5):
        chain = Chain(
            low.llama_sampler_init_top_k(3), low.llama_sampler_init_temp(0.9), low.llama_sampler_init_dist(11)
        )
        with chain as sampler, Pair(target, drafts["q4_1"]) as pair:
            pair.prefill(prompt, sampler=sampler, preselect=3)
            texts.append(pair.generate(32, n_draft))
    for text in texts:
        rows = target.rows([*prompt, *text], len(prompt) - 1)[:-1]
        ranked = np.sort(rows, axis=1)
        assert all(row[token] >= top[-3] - 0.2 for row, token, top in zip(rows, text, ranked, strict=True))
    same = next((i for i, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), 32)
    assert same >= 8


@pytest.mark.parametrize("n_draft", [0, 5])
def test_a_grammar_bounds_the_text_and_ends_it(
    target: Loaded, drafts: dict[str, Loaded], n_draft: int
) -> None:
    grammar = low.llama_sampler_init_grammar(target.vocab, b'root ::= "yes, " [a-c]+ "." | "no!"', b"root")
    chain = Chain(low.llama_sampler_init_top_k(40), low.llama_sampler_init_dist(5))
    with chain as sampler, Pair(target, drafts["q4_1"]) as pair:
        for more in ({}, {"sampler": sampler, "preselect": 40}):
            pair.prefill(target.tokens(PROMPTS[0]), grammar=llama_api.address(grammar), **more)
            text = pair.generate(40, n_draft)
            pieces = b"".join(target.piece(t) for t in text)
            assert pieces.startswith((b"yes, ", b"no!"))
            assert set(pieces.removeprefix(b"yes, ").split(b".")[0]) <= set(b"abc") or pieces.startswith(
                b"no!"
            )
            assert target.eog[text[-1]] or len(text) == 40
    low.llama_sampler_free(grammar)


def test_an_exception_in_libllama_becomes_a_code(target: Loaded) -> None:
    grammar = low.llama_sampler_init_grammar(target.vocab, b'root ::= "yes"', b"root")
    with Chain(low.llama_sampler_init_greedy(), grammar) as wrong, Pair(target) as pair:
        prompt = target.tokens(PROMPTS[0])
        pair.prefill(prompt)
        token = pair.generate(1)
        assert target.piece(token[0]) not in (b"yes", b"ye", b"y")
        # Greedy selects before the grammar can refuse, so the grammar throws when it is told of the token.
        pair.prefill(prompt, sampler=wrong)
        with pytest.raises(EngineError) as error:
            pair.engine.step(0, 0.0, 1)
        assert _native.CODES[error.value.code][0] == "GT_E_EXCEPTION"
        assert pair.engine.history == prompt
        pair.prefill(prompt)
        assert pair.generate(1) == token


@pytest.fixture(scope="module")
def recurrent(folder: Path) -> dict[str, Loaded]:
    return {
        "mamba": Loaded(tiny_models.mamba(folder / "mamba.gguf")),
        "lfm2": Loaded(tiny_models.lfm2(folder / "lfm2.gguf")),
        "llama": Loaded(tiny_models.llama(folder / "llama.gguf", 64)),
    }


@pytest.mark.parametrize(
    ("target_name", "rewind", "n_rs"),
    [
        ("mamba", Rewind.CHECKPOINT, 0), ("lfm2", Rewind.CHECKPOINT, 0), ("lfm2", Rewind.BOUNDED, 5),
        ("mamba", Rewind.NONE, 0),
    ],
)  # fmt: skip
@pytest.mark.parametrize("draft_name", ["same", "llama"])
def test_recurrent_and_hybrid_models_speculate_without_spoiling_their_state(
    recurrent: dict[str, Loaded], target_name: str, rewind: Rewind, n_rs: int, draft_name: str
) -> None:
    target = recurrent[target_name]
    draft = recurrent["llama"] if draft_name == "llama" else target
    draft_rewind = Rewind.CHECKPOINT if rewind == Rewind.NONE else rewind
    more = {} if draft_name == "llama" else {"draft_rewind": draft_rewind, "draft_rewind_bound": n_rs}
    prompt = [int(t) for t in np.random.default_rng(1).integers(0, 64, 90)]
    with Pair(target, draft, n_rs=n_rs, rewind=rewind, rewind_bound=n_rs, **more) as pair:
        pair.prefill(prompt)
        text = pair.generate(60, 5)
        failed = _native.CODES[pair.engine.draft_failed][0]
        assert failed == ("GT_E_NO_REWIND" if rewind == Rewind.NONE else "GT_OK")
        counters = pair.engine.counters
        follow = [*prompt, *text, 1, 2, 3]
        assert pair.prefill(follow) > len(prompt)
        more_text = pair.generate(20, 5)
        other = [*prompt[:40], 5]
        pair.prefill(other)
        other_text = pair.generate(20, 5)
    assert regret(target, prompt, text) <= 0.02
    assert regret(target, follow, more_text) <= 0.02
    assert regret(target, other, other_text) <= 0.02
    if rewind == Rewind.NONE:
        assert counters["n_draft"] == 0
    elif draft_name == "same":
        assert counters["n_accepted"] >= 0.9 * counters["n_draft"]
    else:
        assert counters["n_accepted"] < 0.5 * counters["n_draft"]
