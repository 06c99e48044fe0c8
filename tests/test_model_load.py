"""Model.load: what is refused before libllama sees it, progress, closing, defaults, a caller's own Llama."""

from __future__ import annotations

import gc
import logging
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_session

from gguftools import Model
from gguftools.errors import (
    Closed,
    FormatError,
    IncompatibleDraft,
    InputError,
    LoadAborted,
    LoadError,
    NotFound,
)
from gguftools.header import read_header
from gguftools.libllama import hardware
from gguftools.session import fit

FIXED: Any = {"draft_tokens": 5, "draft_p_min": 0.0}


pytestmark = pytest.mark.usefixtures("real_api")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("load")


@pytest.fixture(scope="module")
def target(folder: Path) -> Path:
    return tiny_session.write(folder / "target.gguf")


@pytest.fixture(scope="module")
def draft(folder: Path) -> Path:
    return tiny_session.write(folder / "draft.gguf", n_layer=1, seed=1)


def test_a_pair_loads_and_answers(target: Path, draft: Path) -> None:
    with Model.load(target, str(draft), threads=1) as model, model.session(n_ctx=64) as session:
        assert model.report is not None
        assert model.report.verdict == "identical"
        result = session.generate("the", max_tokens=5, temperature=0).result()
        assert len(result.tokens) == 5
        assert session.has_draft


def test_progress_is_reported_for_both_stages_and_ends_at_one(target: Path, draft: Path) -> None:
    seen: list[tuple[str, float]] = []
    Model.load(target, draft, progress=lambda *step: seen.append(step)).close()
    assert [stage for stage, fraction in seen if fraction == 1.0] == ["target", "draft"]
    assert all(0 <= fraction <= 1 for _, fraction in seen)
    assert [stage for stage, _ in seen] == sorted((stage for stage, _ in seen), reverse=True)


@pytest.mark.parametrize("stage", ["target", "draft"])
def test_progress_that_returns_false_aborts_in_either_stage(target: Path, draft: Path, stage: str) -> None:
    with pytest.raises(LoadAborted):
        Model.load(target, draft, progress=lambda now, _: now != stage)


@pytest.mark.parametrize("stage", ["target", "draft"])
@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt()])
def test_an_exception_in_progress_is_raised_again_itself(
    target: Path, draft: Path, stage: str, error: BaseException
) -> None:
    def progress(now: str, _fraction: float) -> None:
        if now == stage:
            raise error

    with pytest.raises(type(error)) as caught:
        Model.load(target, draft, progress=progress)
    assert caught.value is error


def test_both_models_are_freed_when_the_drafts_load_fails(
    target: Path, draft: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gguftools import libllama
    from gguftools.libllama import compat

    lib = compat.library()
    freed: list[int] = []
    original = lib.llama_model_free

    def free(handle: int) -> None:
        freed.append(handle)
        original(handle)

    monkeypatch.setattr(lib, "llama_model_free", free)
    loaded: list[weakref.ref[libllama.Weights]] = []
    real = libllama.Weights

    def tracked(*args: object) -> libllama.Weights:
        made = real(*args)  # type: ignore[arg-type]
        loaded.append(weakref.ref(made))
        return made

    monkeypatch.setattr(libllama, "Weights", tracked)
    with pytest.raises(LoadAborted):
        Model.load(target, draft, progress=lambda stage, _: stage == "target")
    assert len(loaded) == len(freed) == 1


def test_a_pair_that_cannot_work_is_refused_with_the_report(target: Path, smollm2: Path) -> None:
    with pytest.raises(IncompatibleDraft) as caught:
        Model.load(target, smollm2)
    assert caught.value.report.verdict == "incompatible"
    assert caught.value.why


def test_an_alignable_pair_runs_and_names_what_is_never_drafted(
    target: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    specials = [*tiny_session.CONTROL[:3], "<|thought|>", "<|unthought|>"]
    other = tiny_session.write(folder / "renamed.gguf", specials=specials, seed=0)
    with Model.load(target, other, threads=1) as model:
        assert model.report is not None
        assert model.report.verdict == "alignable"
        assert [record.message for record in caplog.records if record.levelno == logging.WARNING] == [
            "these tokens are never drafted, the draft lacks them: <think> </think>"
        ]
        with model.session(n_ctx=128) as session:
            plain = session.generate("a", max_tokens=40, temperature=0, draft_tokens=0).result()
            drafted = session.generate(
                "a", max_tokens=40, temperature=0, draft_tokens=5, draft_p_min=0
            ).result()
            assert drafted.tokens == plain.tokens
            assert drafted.stats.acceptance_rate > 0.95


def test_a_draft_with_a_smaller_vocabulary_never_sees_an_id_that_it_lacks(target: Path, folder: Path) -> None:
    small = tiny_session.write(folder / "small.gguf", specials=tiny_session.CONTROL[:3])
    with Model.load(target, small, threads=1) as model, model.session(n_ctx=64) as session:
        result = session.generate([261, 262, 97], max_tokens=20, temperature=0).result()
        assert (
            result.tokens
            == session.generate([261, 262, 97], max_tokens=20, temperature=0, draft_tokens=0).result().tokens
        )
        assert not result.stats.draft_failed


@pytest.mark.parametrize("place", ["target", "draft"])
@pytest.mark.parametrize(
    "fault",
    [
        {"specials": [*tiny_session.CONTROL, "<think>"]},  # a token twice
        {"arch": "llama-of-tomorrow"},
    ],
    ids=["a token twice", "an unknown architecture"],
)
def test_a_file_that_would_end_the_process_is_refused_before_it_is_loaded(
    target: Path, tmp_path: Path, place: str, fault: dict[str, object]
) -> None:
    if fault.get("arch"):
        bad = tmp_path / "bad.gguf"
        bad.write_bytes(target.read_bytes().replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0lllll"))
    else:
        bad = tiny_session.write(tmp_path / "bad.gguf", **fault)  # type: ignore[arg-type]
    pair = (bad,) if place == "target" else (target, bad)
    with pytest.raises((LoadError, IncompatibleDraft)):
        Model.load(*pair)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        Model.load(tmp_path / "none.gguf")
    (tmp_path / "text.gguf").write_text("hello")
    with pytest.raises(FormatError):
        Model.load(tmp_path / "text.gguf")
    with pytest.raises(InputError):
        Model.load(7)


@pytest.mark.parametrize("options", [{"load_mode": "fast"}, {"gpu_layers": -1}, {"n_cpu_moe": -2}])
def test_a_wrong_option_is_refused_before_loading(target: Path, options: dict[str, object]) -> None:
    with pytest.raises(InputError):
        Model.load(target, **options)  # type: ignore[arg-type]


def test_a_context_that_memory_cannot_hold_is_refused_before_it_is_tried(target: Path) -> None:
    with Model.load(target) as model, pytest.raises(LoadError, match=r"GB are free"):
        model.session(n_ctx=2**31 - 1)
    with Model.load(target, cache_type_k="q9") as model, pytest.raises(InputError, match="q9"):
        model.session(n_ctx=64)


def test_close_twice_is_fine_and_use_after_close_raises(target: Path) -> None:
    model = Model.load(target)
    session = model.session(n_ctx=64)
    model.close()
    model.close()
    session.close()
    with pytest.raises(Closed):
        model.session()
    with pytest.raises(Closed):
        session.generate("a")


def test_a_model_that_is_dropped_frees_its_sessions_after_them(target: Path) -> None:
    model = Model.load(target, threads=1)
    session = model.session(n_ctx=64)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert session.generate("a", max_tokens=3, temperature=0).result().tokens
    del session
    gc.collect()
    assert gone() is None


def test_several_sessions_of_one_model_are_independent(target: Path) -> None:
    with Model.load(target, threads=1) as model:
        one, two = model.session(n_ctx=64), model.session(n_ctx=64)
        first = one.generate("abc", max_tokens=9, temperature=0)
        next(first)
        assert two.generate("abc", max_tokens=9, temperature=0).result().tokens == first.result().tokens


def test_experts_are_kept_in_the_cpu_buffer_and_nothing_else(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "gguftools.llama")
    moe = tiny_session.write(folder / "moe.gguf", arch="qwen3moe")
    Model.load(moe, n_cpu_moe=1, override_tensor=[r"blk\.1\.ffn_norm=CPU"]).close()
    moved = {r.message.split()[1] for r in caplog.records if "buffer type overridden to CPU" in r.message}
    experts = {f"blk.0.ffn_{name}_exps.weight" for name in ("gate", "up", "down")}
    assert moved == {*experts, "blk.1.ffn_norm.weight"}


def test_a_callers_llama_is_used_and_left_to_the_caller(target: Path, draft: Path) -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    llama = llama_cpp.Llama(str(target), n_ctx=256, n_threads=1, verbose=False)
    small = llama_cpp.Llama(str(draft), n_ctx=256, n_threads=1, verbose=False)
    with Model.load(target, threads=1) as own, own.session(n_ctx=128) as session:
        expected = session.generate("the", max_tokens=9, temperature=0).result().tokens
    model = Model.load(llama, draft=small)
    session = model.session()
    assert session.n_ctx == 256
    assert session.generate("the", max_tokens=9, temperature=0).result().tokens == expected
    model.close()
    assert llama.tokenize(b"the")
    again = Model.load(llama)
    late = again.session()
    late.close()
    llama.close()
    with pytest.raises(Closed):
        again.session()
    with pytest.raises(Closed):
        Model.load(llama)
    small.close()


def test_the_default_context_is_what_was_trained_and_fits(target: Path) -> None:
    with Model.load(target) as model, model.session() as session:
        assert session.n_ctx == 2048


def test_a_drafts_context_is_a_window_of_the_targets(target: Path, draft: Path) -> None:
    with Model.load(target, draft, n_ctx=1024, draft_n_ctx=256) as model:
        with model.session() as session:
            assert (session.n_ctx, session.draft_n_ctx) == (1024, 256)
        with model.session(n_ctx=128) as session:
            assert (session.n_ctx, session.draft_n_ctx) == (128, 128)


def test_cache_types_of_target_and_draft_are_set_apart(
    target: Path, draft: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gguftools.llama")
    options = {"cache_type_k": "q8_0", "cache_type_v": "q8_0", "draft_cache_type_k": "f32"}
    with Model.load(target, draft, flash_attn=True, **options) as model:  # type: ignore[arg-type]
        model.session(n_ctx=256)
    sizes = [r.message for r in caplog.records if "llama_kv_cache: size" in r.message]
    assert "K (q8_0)" in sizes[0]
    assert "V (q8_0)" in sizes[0]
    assert "K (f32)" in sizes[1]
    assert "V (f16)" in sizes[1]


def test_beta_fast_is_handed_to_the_context_where_the_graph_ignores_the_key() -> None:
    from types import MappingProxyType

    from gguftools.header import Header
    from gguftools.session.settings import beta_fast

    def header(arch: str) -> Header:
        keys = {"general.architecture": arch, f"{arch}.rope.scaling.yarn_beta_fast": 1.0}
        return Header(Path("a"), (), 3, MappingProxyType(keys), {}, dict.fromkeys(keys, 0), (), 0, 0)

    assert beta_fast(header("deepseek2")) == 1.0
    assert beta_fast(header("llama")) is None


def test_the_context_rule_counts_the_cache_the_weights_and_the_reserve() -> None:
    gb = 1 << 30
    assert fit.context_size(1e5, 131_072, 0.0, 0, 64 * gb) == 32_768
    assert fit.context_size(1e5, 2048, 0.0, 0, 64 * gb) == 2048
    assert (
        fit.context_size(1e6, 131_072, 0.0, 0, 8 * gb) == int((0.9 * 8 * gb - fit.RESERVE) / 1e6) // 256 * 256
    )
    assert fit.context_size(1e6, 131_072, 0.0, 0, 8 * gb, [7 * gb]) == fit.MIN_CTX
    assert fit.context_size(1e6, 131_072, 1.0, 4 * gb, 0) < fit.context_size(1e6, 131_072, 0.5, 4 * gb, 0)
    assert fit.context_size(1e6, 131_072, 0.0, 0, 0) == 32_768


def test_the_default_context_leaves_room_for_the_drafts_own_cache(
    target: Path, draft: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    per_token = fit.cache_bytes(read_header(target), "f16", "f16")
    weights = target.stat().st_size + draft.stat().st_size
    free = int((fit.RESERVE + weights + 2000 * per_token) / 0.9)
    monkeypatch.setattr(hardware, "free_memory", lambda: free)
    sizes = {}
    for window in (256, 1024):
        with Model.load(target, draft, draft_n_ctx=window) as model:
            sizes[window] = model.session().n_ctx
    assert sizes[256] - sizes[1024] in (512, 768, 1024)  # a step more or less by rounding


def test_cache_bytes_are_those_that_libllama_takes(target: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gguftools.llama")
    with Model.load(target) as model:
        model.session(n_ctx=2048)
    line = next(r.message for r in caplog.records if "llama_kv_cache: size" in r.message)
    said = float(line.split("size =")[1].split("MiB")[0])
    assert fit.cache_bytes(read_header(target), "f16", "f16") * 2048 / (1 << 20) == pytest.approx(
        said, abs=0.01
    )


def test_heads_per_layer_are_summed(tmp_path: Path) -> None:
    path = tiny_session.write(tmp_path / "a.gguf", n_layer=2)
    header = read_header(path)
    keys = {**header.keys, "llama.attention.head_count_kv": np.array([1, 0], np.uint32)}
    from dataclasses import replace

    assert fit.cache_bytes(replace(header, keys=keys), "f16", "f16") == 1 * 32 * 2 * 2


def test_cores_and_memory_are_plausible() -> None:
    import os

    assert 1 <= hardware.physical_cores() <= (os.cpu_count() or 1)
    assert hardware.free_memory() > 1 << 28
