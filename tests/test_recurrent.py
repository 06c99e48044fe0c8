"""Recurrent and hybrid models: a refused proposal leaves no trace in their state."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path

import llama_api
import numpy as np
import pytest
import tiny_models
import tiny_session
from llama_api import Loaded
from rig import Rig
from test_engine_real import Pair, regret

from gguftools import Model, Session, _native
from gguftools._native import EngineError, NativeCancelled, Rewind

ARCHS = ["mamba", "lfm2", "qwen35", "kimi_linear"]
SNAPSHOTS = {"lfm2", "qwen35"}  # libllama keeps earlier states of these
WORDS = ["the", "in a thin line", "0123456789"]
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recurrent")


@pytest.fixture(scope="module")
def make(folder: Path) -> Callable[..., Path]:
    """make(arch, noise) writes a model that can be talked to, once."""

    @functools.cache
    def write(arch: str, noise: float = 0) -> Path:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                "gguf.GGUFWriter.add_tokenizer_model", lambda writer, _: tiny_session.add_tokens(writer)
            )
            n_vocab = len(tiny_session.tokens())
            made: Path = getattr(tiny_models, arch)(folder / f"{arch}-{noise}.gguf", n_vocab, noise=noise)
            return made

    return write


def texts(session: Session, n: int = 60) -> list[tuple[int, ...]]:
    """Greedy answers to three prompts; the second request begins as the first did, the third as none."""
    prompts = [WORDS[0], WORDS[0] + WORDS[1], WORDS[2]]
    return [
        session.generate(p, max_tokens=n, temperature=0, draft_tokens=5, draft_p_min=0).result().tokens
        for p in prompts
    ]


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("kind", ["noisy", "attention"])
def test_the_text_is_the_plain_one_through_many_refused_proposals(
    make: Callable[..., Path], folder: Path, arch: str, kind: str
) -> None:
    target = make(arch)
    draft = make(arch, 0.12) if kind == "noisy" else tiny_session.write(folder / "attention.gguf")
    with Model.load(target, threads=1) as model, model.session(n_ctx=256) as session:
        expected = texts(session)
    with Model.load(target, draft, threads=1) as model, model.session(n_ctx=256) as session:
        assert texts(session) == expected
        counters = session.engine.counters
        assert session.engine.draft_failed == 0
    refused = counters["n_draft"] - counters["n_accepted"]
    assert refused > 50
    assert counters["verify_steps"] > 30
    assert kind == "attention" or counters["n_accepted"] > 30


@pytest.mark.parametrize("arch", ARCHS)
def test_snapshots_spare_the_decode_that_a_checkpoint_costs(make: Callable[..., Path], arch: str) -> None:
    with (
        Model.load(make(arch), make(arch, 0.12), threads=1) as model,
        model.session(n_ctx=256) as session,
    ):
        session.generate(WORDS[0], max_tokens=60, temperature=0, draft_tokens=5, draft_p_min=0).result()
        counters = session.engine.counters
    prefill = 1
    again = counters["target_decodes"] - counters["verify_steps"] - prefill
    assert (again == 0) if arch in SNAPSHOTS else (again > 10)


@pytest.fixture(scope="module")
def loaded(folder: Path) -> Callable[..., Loaded]:
    llama_api.install()
    return functools.cache(
        lambda arch, noise=0: Loaded(
            getattr(tiny_models, arch)(folder / f"bare-{arch}-{noise}.gguf", noise=noise)
        )
    )


def rewind(arch: str) -> tuple[Rewind, int]:
    return (Rewind.BOUNDED, 8) if arch in SNAPSHOTS else (Rewind.CHECKPOINT, 0)


def pair(loaded: Callable[..., Loaded], arch: str) -> Pair:
    llama_api.install()
    kind, bound = rewind(arch)
    return Pair(
        loaded(arch), loaded(arch, 0.12), n_rs=bound, rewind=kind, rewind_bound=bound,
        draft_rewind=kind, draft_rewind_bound=bound, exact=True,
    )  # fmt: skip


@pytest.mark.parametrize("arch", ARCHS)
def test_after_fifty_rounds_the_logits_are_those_of_a_fresh_prefill(
    loaded: Callable[..., Loaded], arch: str
) -> None:
    target = loaded(arch)
    with pair(loaded, arch) as both:
        both.prefill([int(t) for t in np.random.default_rng(1).integers(0, 64, 90)])
        for _ in range(50):
            assert both.engine.step(5, 0.0, 99)
        history = both.engine.history
        both.engine.step(0, 0.0, 1)
        row = llama_api.logits(both.contexts[0], 0, target.n_vocab)
        assert both.engine.counters["n_accepted"] < both.engine.counters["n_draft"]
    fresh = target.rows(history, len(history) - 1, exact=True)[0]
    assert np.abs(row - fresh).max() <= 0.001


def requests(rng: np.random.Generator, tokens: Sequence[int]) -> list[int]:
    """A prompt that shares some beginning with `tokens`."""
    keep = int(rng.integers(0, len(tokens) + 1))
    return [*tokens[:keep], *(int(t) for t in rng.integers(0, 64, rng.integers(1, 40)))]


@pytest.mark.parametrize("arch", ARCHS)
def test_any_beginning_may_be_shared_by_the_next_request(loaded: Callable[..., Loaded], arch: str) -> None:
    rng = np.random.default_rng(2)
    with pair(loaded, arch) as both:
        for _ in range(12):
            prompt = requests(rng, both.engine.history)[-400:]
            both.prefill(prompt)
            text = both.generate(int(rng.integers(1, 12)), int(rng.integers(0, 6)))
            assert regret(loaded(arch), prompt, text) <= 0.02
            if rng.random() < 0.3:
                both.engine.truncate(int(rng.integers(1, len(both.engine.history))))


@pytest.mark.usefixtures("real_api")
@pytest.mark.parametrize("snapshots", [0, 4])
def test_a_cancelled_verify_goes_back_to_the_checkpoint(snapshots: int) -> None:
    rig = Rig(
        target_kind={"recurrent": True, "snapshots": snapshots},
        rewind=1 if snapshots else 2,
        rewind_bound=4,
        n_ctx=256,
        draft_n_ctx=256,
    )
    rig.prefill(PROMPT)
    rig.generate(100)
    before = rig.engine.n_history - 1
    rig.target.codes = [0, 2] if rig.engine.cached[0] < before else [2]
    with pytest.raises(NativeCancelled):
        rig.engine.step(4, 0.0, 99)
    rig.check()
    assert (before - 70 < rig.engine.cached[0] < before) if snapshots else (rig.engine.cached[0] == before)
    assert rig.generate(20) == rig.expected(rig.engine.history[:-20], 20)


@pytest.mark.usefixtures("real_api")
def test_snapshots_need_no_checkpoint_in_each_round() -> None:
    rig = Rig(
        target_kind={"recurrent": True, "snapshots": 4}, rewind=1, rewind_bound=4, n_ctx=256, draft_n_ctx=256
    )
    rig.prefill(PROMPT)
    rig.generate(150)
    saves = [entry for entry in rig.fake.log if entry[:2] == ("save", "target")]
    assert 2 <= len(saves) <= 4


@pytest.mark.usefixtures("real_api")
@pytest.mark.parametrize("last", range(6))
def test_a_checkpoint_of_tokens_that_were_cut_off_is_never_gone_back_to(last: int) -> None:
    rig = Rig(draft_kind={"recurrent": True, "snapshots": 4}, draft_rewind=1, draft_rewind_bound=4, agree=0.2)
    rig.prefill(PROMPT)
    rig.generate(5, 0)
    length = rig.engine.n_history
    rig.engine.step(
        4, 1.0, 9
    )  # the draft reads what it lacks in one batch, saves its state, proposes nothing
    rig.prefill([*rig.engine.history[: length - 2], 7, last])  # its snapshots reach back so far
    assert rig.engine.cached[1] == length - 1
    rig.generate(20, 4)
    assert ("restore", "draft", length) in rig.fake.log
    assert rig.engine.draft_failed == 0


@pytest.mark.usefixtures("real_api")
def test_a_memory_that_gives_no_state_is_not_speculated_on_and_says_why() -> None:
    rig = Rig(target_kind={"recurrent": True, "stateless": True}, rewind=2)
    rig.prefill(PROMPT)
    assert rig.generate(20) == rig.expected(PROMPT, 20)
    assert _native.CODES[rig.engine.draft_failed] == (
        "GT_E_NO_REWIND", "this memory cannot be rewound, so it cannot speculate"
    )  # fmt: skip
    assert rig.engine.counters["n_draft"] == 0
    decodes = len(rig.fake.decodes("draft"))
    rig.generate(10)
    assert len(rig.fake.decodes("draft")) == decodes


@pytest.mark.usefixtures("real_api")
def test_a_draft_that_cannot_be_rewound_is_refused() -> None:
    with pytest.raises(EngineError, match="cannot be rewound"):
        Rig(draft_rewind=3)
