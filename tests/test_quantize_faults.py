"""quantize: what is refused, and that nothing is left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import quantized
from gguf_files import Tensor, write_gguf

import gguftools
from gguftools.errors import (
    DiskFull,
    FormatError,
    InputError,
    NotFound,
    OutputExists,
    Unsupported,
)
from gguftools.header import read_header
from gguftools.libllama import mixes

quantize = gguftools.quantize


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The types are found in this process: a new one each time takes half a second."""
    monkeypatch.setattr(mixes, "APART", False)


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return quantized.narrow(tmp_path_factory.mktemp("narrow") / "m.gguf")


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return quantized.wide(tmp_path_factory.mktemp("wide") / "m.gguf")


@pytest.fixture(scope="module")
def experts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return quantized.experts(tmp_path_factory.mktemp("experts") / "m.gguf")


def _bad(path: Path, value: float, kind: int = 0) -> Path:
    data = np.zeros((4, 256), np.float32)
    data[2, 3] = value
    weight = data.astype(np.float16).tobytes() if kind == 1 else data.tobytes()
    return write_gguf(path, quantized.llama_keys(), [Tensor("blk.0.attn_q.weight", (256, 4), kind, weight)])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("goal", ["q4_0", "iq4_nl", "f32"])
def test_a_number_that_is_none_is_refused(tmp_path: Path, value: float, kind: int, goal: str) -> None:
    src = _bad(tmp_path / "m.gguf", value, kind)
    with pytest.raises(InputError, match="NaN or an infinity"):
        quantize(src, tmp_path / "q.gguf", type=goal)
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]


@pytest.mark.parametrize("goal", ["f16", "q8_0", "q4_0", "iq4_nl", "q3_k_s", "q6_k"])
def test_a_number_too_large_for_the_type_is_refused(tmp_path: Path, goal: str) -> None:
    with pytest.raises(InputError, match="too large"):
        quantize(_bad(tmp_path / "m.gguf", 3e38), tmp_path / "q.gguf", type=goal)
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"type": "q4_k_x"}, "type 'q4_k_x' is unknown"),
        ({"type": "q8_0", "output_type": "q4_k_m"}, "output type 'q4_k_m' is unknown"),
        ({"type": "q8_0", "embedding_type": ""}, "embedding type '' is unknown"),
        ({"type": "q8_0", "tensor_type": ["attn_q"]}, "cannot be understood"),
        ({"type": "q8_0", "tensor_type": ["=q8_0"]}, "cannot be understood"),
        ({"type": "q8_0", "tensor_type": ["attn_(q=q4_0"]}, "regular expression"),
        ({"type": "f16", "tensor_type": ["attn_q=q4_0"]}, "no effect with F16"),
        ({"type": "iq2_xxs"}, "IQ2_XXS needs an importance matrix"),
        ({"type": "q2_k_s"}, "Q2_K_S needs an importance matrix"),
        ({"type": "q8_0", "embedding_type": "iq1_s"}, "IQ1_S needs an importance matrix"),
        ({"type": "q8_0", "tensor_type": ["attn_q=iq2_xs"]}, "IQ2_XS needs an importance matrix"),
        ({"type": "q8_0", "output_type": "q6_k"}, "rows of 320 are no whole blocks of 256"),
        ({"type": "q8_0", "threads": 0}, "threads is 0"),
        ({"type": "q8_0", "threads": 513}, "threads is 513"),
    ],
)
def test_a_wrong_wish_is_an_error_that_says_why(
    narrow: Path, tmp_path: Path, options: dict[str, Any], match: str
) -> None:
    with pytest.raises(InputError, match=match):
        quantize(narrow, tmp_path / "q.gguf", **options)
    assert not list(tmp_path.iterdir())


def test_an_output_type_without_an_output_matrix_is_refused_where_it_would_do_nothing(experts: Path) -> None:
    with pytest.raises(InputError, match="--embedding-type"):
        quantize(experts, type="f16", output_type="q8_0", dry_run=True)
    done = quantize(experts, type="q4_k_m", output_type="q8_0", dry_run=True)
    assert next(row.type for row in done.tensors if row.name == "token_embd.weight") == "Q8_0"


def test_what_is_no_model_is_an_error(tmp_path: Path) -> None:
    out = tmp_path / "q.gguf"
    (tmp_path / "text.gguf").write_text("no GGUF at all")
    with pytest.raises(FormatError, match="GGUF"):
        quantize(tmp_path / "text.gguf", out, type="q8_0")
    with pytest.raises(NotFound):
        quantize(tmp_path / "none.gguf", out, type="q8_0")
    with pytest.raises(InputError, match="no tensors"):
        quantize(write_gguf(tmp_path / "v.gguf", {"general.architecture": "llama"}), out, type="q8_0")
    one = [Tensor("blk.0.attn_q.weight", (32, 4))]
    with pytest.raises(FormatError, match=r"general\.architecture"):
        quantize(write_gguf(tmp_path / "k.gguf", {"general.name": "x"}, one), out, type="q8_0")
    with pytest.raises(Unsupported, match="unknown model architecture: 'marvin'"):
        quantize(write_gguf(tmp_path / "a.gguf", {"general.architecture": "marvin"}, one), out, type="q8_0")
    with pytest.raises(Unsupported, match="key not found"):
        quantize(write_gguf(tmp_path / "b.gguf", {"general.architecture": "llama"}, one), out, type="q8_0")
    long = [Tensor("a" * 80 + ".weight", (32, 4))]
    with pytest.raises(Unsupported, match="name") as caught:
        quantize(write_gguf(tmp_path / "l.gguf", quantized.llama_keys(), long), out, type="q8_0")
    assert "gguftools-" not in str(caught.value)  # our own file, which is gone
    assert not out.exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [("block_count", 0), ("block_count", 2**31), ("expert_count", 3), ("expert_count", 9999)],
)
def test_keys_for_which_libllama_ends_the_process_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, value: int
) -> None:
    monkeypatch.setattr(mixes, "APART", True)
    one = [Tensor("blk.0.attn_q.weight", (32, 4))]
    src = write_gguf(tmp_path / "m.gguf", {**quantized.llama_keys(), f"llama.{key}": value}, one)
    with pytest.raises(Unsupported, match="it ended with: GGML_ASSERT"):
        quantize(src, tmp_path / "q.gguf", type="q8_0")
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]


def test_integers_are_not_quantized(tmp_path: Path) -> None:
    numbers = [Tensor("blk.0.attn_q.weight", (32, 4), 24, bytes(128))]
    with pytest.raises(Unsupported, match="I8"):
        quantize(
            write_gguf(tmp_path / "m.gguf", quantized.llama_keys(), numbers), tmp_path / "q.gguf", type="q8_0"
        )


def test_the_output_is_never_the_source(wide: Path, tmp_path: Path) -> None:
    src = tmp_path / "m.gguf"
    src.write_bytes(wide.read_bytes())
    (tmp_path / "link.gguf").symlink_to(src)
    for out in (src, tmp_path / "link.gguf", tmp_path / "." / "m.gguf"):
        with pytest.raises(InputError, match="replace itself"):
            quantize(src, out, type="q8_0", force=True)
    assert src.read_bytes() == wide.read_bytes()
    with pytest.raises(InputError, match="no output"):
        quantize(src, type="q8_0")


def test_what_is_there_is_kept_without_force(wide: Path, tmp_path: Path) -> None:
    out = tmp_path / "q.gguf"
    out.write_text("mine")
    with pytest.raises(OutputExists):
        quantize(wide, out, type="q8_0")
    assert out.read_text() == "mine"
    quantize(wide, out, type="q8_0", force=True)
    assert read_header(out).keys["general.file_type"] == 7


def test_too_little_space_is_found_before_the_first_byte(
    wide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _path: type("Usage", (), {"free": 100_000})())
    with pytest.raises(DiskFull):
        quantize(wide, tmp_path / "q.gguf", type="q8_0")
    assert not list(tmp_path.iterdir())


def test_a_source_that_shrinks_meanwhile_is_an_error(wide: Path, tmp_path: Path) -> None:
    src = tmp_path / "m.gguf"
    src.write_bytes(wide.read_bytes())

    def cut(_stage: str, _part: float) -> None:
        src.write_bytes(src.read_bytes()[:300_000])

    with pytest.raises(FormatError, match="ends too early"):
        quantize(src, tmp_path / "q.gguf", type="q8_0", threads=1, progress=cut)
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]
