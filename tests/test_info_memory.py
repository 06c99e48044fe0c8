"""info's figures of memory, against what libllama reserves for the same models."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import shapes
import tiny_models
from gguf_files import Tensor, gguf_bytes
from hypothesis import given, settings
from hypothesis import strategies as st
from reserved import MIB, reserved

from gguftools import info, read_header
from gguftools.errors import FormatError, GGUFToolsError
from gguftools.verbs.info import caches, memory
from gguftools.verbs.info.shape import Shape, shape_of

SERVER, OURS = memory.SERVER, memory.OURS
F16 = ("f16", "f16")
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the files are sparse")


def check(
    shape: Shape, path: Path, log: pytest.LogCaptureFixture, n_ctx: int, rows: int
) -> tuple[float, float]:
    """The estimate of compute as a share of libllama's; caches are compared exactly."""
    theirs = reserved(path, log, n_ctx=n_ctx, rows=rows)
    assert memory.cache_bytes(shape, n_ctx, F16) == pytest.approx(theirs.cache, abs=0.02 * MIB)
    assert memory.state_bytes(shape) == pytest.approx(theirs.state, abs=0.02 * MIB)
    return memory.alone(shape, n_ctx, rows) / theirs.compute, theirs.compute


@LINUX
@pytest.mark.parametrize("name", shapes.ALL)
def test_caches_are_exact_and_the_room_to_compute_is_at_most_a_fifth_too_large(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = shapes.ALL[name]()
    path = made.write(tmp_path / "m.gguf")
    for n_ctx, rows in ((4096, SERVER), (32_768, OURS)):
        share, _ = check(shape_of(made.header()), path, caplog, n_ctx, rows)
        assert 1 <= share < 1.2, (n_ctx, rows)


def test_it_holds_for_a_real_model(smollm2: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = info(smollm2, n_ctx=8192).memory
    theirs = reserved(smollm2, caplog, n_ctx=8192, rows=OURS)
    assert found is not None
    assert found.cache == pytest.approx(theirs.cache, abs=0.02 * MIB)
    assert 1 <= found.compute / theirs.compute < 1.1
    assert found.total == found.weights + found.cache + found.state + found.compute


@pytest.mark.parametrize(
    "make",
    [tiny_models.gemma3, tiny_models.lfm2, tiny_models.mamba, tiny_models.qwen35, tiny_models.kimi_linear],
)
def test_windows_and_recurrent_layers_keep_what_libllama_keeps(
    make: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make(tmp_path / "m.gguf")
    check(shape_of(read_header(tmp_path / "m.gguf")), tmp_path / "m.gguf", caplog, 4096, SERVER)


@LINUX
def test_quantized_caches_are_exact_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = shapes.qwen3_30b_a3b()
    theirs = reserved(made.write(tmp_path / "m.gguf"), caplog, n_ctx=4096, rows=OURS, cache_type="q8_0")
    ours = memory.cache_bytes(shape_of(made.header()), 4096, ("q8_0", "q8_0"))
    assert ours == pytest.approx(theirs.cache, abs=0.02 * MIB)


def test_a_latent_cache_is_one_row_of_576_elements_a_layer() -> None:
    shape = shape_of(shapes.kimi_k2().header())
    assert memory.cache_bytes(shape, 1024, F16) == 61 * 576 * 2 * 1024


def test_a_window_keeps_itself_and_a_batch() -> None:
    shape = shape_of(shapes.gemma3_27b().header())
    a_layer = 16 * 2 * 128 * 2
    windowed = memory.cache_bytes(shape, 32_768, F16, windowed=True)
    assert windowed == a_layer * (10 * 32_768 + 52 * (1024 + 512))
    assert [i for i, layer in enumerate(shape.layers) if not layer.cache.window] == list(range(5, 62, 6))


def test_layers_that_guess_further_tokens_take_nothing() -> None:
    plain, more = (shape_of(shapes.deepseek_v3(nextn=n).header()) for n in (0, 1))
    assert len(more.layers) == len(plain.layers) + 1
    assert (more.nbytes, more.layers[-1].nbytes) == (plain.nbytes, 0)
    groups = {row.name: row for row in info(shapes.deepseek_v3(nextn=1).header()).groups}
    assert groups["next-token heads"].nbytes > 0


def test_one_token_of_kimi_reads_a_twentieth_of_it() -> None:
    shape = shape_of(shapes.kimi_k2().header())
    assert 0.03 < shape.active / shape.nbytes < 0.06


# Headers that are not trusted

KEYS = ("block_count", "embedding_length", "attention.head_count", "attention.head_count_kv")


@pytest.mark.parametrize("key", [*KEYS, "attention.key_length", "feed_forward_length", "expert_count"])
@pytest.mark.parametrize("value", ["a text", -1, 1.5, 1 << 40])
def test_a_number_that_cannot_be_is_refused_and_info_says_so(key: str, value: Any) -> None:
    made = shapes.smollm2()
    broken = shapes.Shape("llama", {**made.keys, key: value}, made.rows, made.n_vocab).header()
    with pytest.raises(FormatError, match=key):
        shape_of(broken)
    found = info(broken)
    assert found.memory is None
    assert key in found.unknown


@pytest.mark.parametrize("layers", [0, 513, 1 << 23])
def test_a_number_of_layers_that_llama_cpp_does_not_take_is_refused(layers: int) -> None:
    made = shapes.smollm2()
    broken = shapes.Shape("llama", {**made.keys, "block_count": layers}, made.rows, made.n_vocab).header()
    with pytest.raises(FormatError, match="layers"):
        shape_of(broken)


NUMBERS = st.one_of(
    st.integers(-5, 1 << 33),
    st.text(max_size=3),
    st.booleans(),
    st.floats(width=32),
    st.lists(st.integers(0, 99), min_size=1),
)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["llama", "gemma3", "qwen3next", "kimi-linear", "deepseek2", "mamba", "llama4", "lfm2"]),
    st.dictionaries(
        st.sampled_from(
            [
                *KEYS,
                "attention.sliding_window",
                "attention.sliding_window_pattern",
                "context_length",
                "kda.head_dim",
                "attention.key_length_mla",
                "attention.value_length_mla",
                "full_attention_interval",
                "ssm.state_size",
                "expert_count",
                "expert_used_count",
                "attention.shared_kv_layers",
                "nextn_predict_layers",
            ]
        ),
        NUMBERS,
    ),
)
def test_any_header_gives_figures_or_an_error_of_ours(arch: str, keys: dict[str, Any]) -> None:
    full = {"general.architecture": arch, f"{arch}.block_count": 2}
    full |= {f"{arch}.{key}": value for key, value in keys.items()}
    header = read_header(
        gguf_bytes(full, [Tensor("blk.0.attn_q.weight"), Tensor("token_embd.weight", (32, 2))])
    )
    try:
        shape = shape_of(header)
    except GGUFToolsError:
        return
    found = memory.needed(shape, 4096, F16)
    assert 0 <= found.cache_window <= found.cache
    assert found.compute >= 0
    assert caches.cells(1) == 256
