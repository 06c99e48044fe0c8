"""Importance matrices: both formats, the bytes that llama.cpp makes with them, damaged and foreign ones."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import quantized
from gguf_files import Tensor, write_gguf
from hypothesis import given, settings
from hypothesis import strategies as st

import gguftools
from gguftools.errors import FormatError, GGUFToolsError, InputError, NotFound
from gguftools.header import read_header
from gguftools.libllama import mixes
from gguftools.libllama.quantize import FILE_TYPES, ROW_TYPES
from gguftools.verbs.quantize import imatrix

quantize = gguftools.quantize


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The types are found in this process: a new one each time takes half a second."""
    monkeypatch.setattr(mixes, "APART", False)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return quantized.wide(tmp_path_factory.mktemp("wide") / "m.gguf", n_layer=8)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return quantized.wide(tmp_path_factory.mktemp("small") / "m.gguf", n_layer=1)


@pytest.fixture(scope="module")
def experts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return quantized.experts(tmp_path_factory.mktemp("experts") / "m.gguf")


def gguf_file(folder: Path, weights: quantized.Weights, count: float = 1) -> Path:
    """One text, each expert asked `count` times."""
    n = {name: 4 if "exps" in name else 1 for name in weights}
    counts = {name: [count] * n[name] for name in weights}
    return quantized.write_gguf_imatrix(folder / "im.gguf", weights, counts)


FEW_BITS = ["IQ2_XXS", "IQ2_M", "IQ3_XXS", "IQ1_S", "IQ1_M"]


@pytest.mark.parametrize("kind", ["Q4_K_M", "Q2_K_S", "Q3_K_M", "IQ4_XS", "Q4_0", "Q5_1"])
def test_with_importances_a_model_becomes_what_llama_cpp_makes_of_it(
    wide: Path, tmp_path: Path, kind: str
) -> None:
    _compare(wide, tmp_path, kind)


@pytest.mark.parametrize("kind", FEW_BITS)
def test_few_bits_become_what_llama_cpp_makes_of_them(small: Path, tmp_path: Path, kind: str) -> None:
    _compare(small, tmp_path, kind)


@pytest.mark.parametrize("kind", ["Q4_K_M", "IQ4_NL"])
def test_each_expert_has_importances_of_its_own(experts: Path, tmp_path: Path, kind: str) -> None:
    _compare(experts, tmp_path, kind)


def _compare(src: Path, folder: Path, kind: str) -> None:
    weights = quantized.importances(src)
    quantize(src, folder / "ours.gguf", type=kind, imatrix=gguf_file(folder, weights))
    quantized.theirs(src, folder / "theirs.gguf", FILE_TYPES[kind], weights)
    ours = quantized.tensors(folder / "ours.gguf")
    assert ours == quantized.tensors(folder / "theirs.gguf")
    quantized.theirs(src, folder / "plain.gguf", FILE_TYPES["Q4_K_S"])
    assert ours != quantized.tensors(folder / "plain.gguf")


def test_importances_change_the_bytes(small: Path, tmp_path: Path) -> None:
    file = gguf_file(tmp_path, quantized.importances(small))
    quantize(small, tmp_path / "with.gguf", type="q4_k_s", imatrix=file)
    quantize(small, tmp_path / "without.gguf", type="q4_k_s")
    ours, plain = quantized.tensors(tmp_path / "with.gguf"), quantized.tensors(tmp_path / "without.gguf")
    assert ours["blk.0.ffn_up.weight"] != plain["blk.0.ffn_up.weight"]
    assert ours["token_embd.weight"] == plain["token_embd.weight"]


def test_the_file_says_which_importances_made_it(small: Path, tmp_path: Path) -> None:
    weights = quantized.importances(small)
    quantize(small, tmp_path / "q.gguf", type="q4_k_m", imatrix=gguf_file(tmp_path, weights))
    keys = read_header(tmp_path / "q.gguf").keys
    found = {key[17:]: value for key, value in keys.items() if key.startswith("quantize.imatrix.")}
    assert found == {
        "file": "im.gguf",
        "dataset": "some text.txt",
        "entries_count": len(weights),
        "chunks_count": 7,
    }


def test_both_formats_hold_means_of_squares(tmp_path: Path) -> None:
    sums = {"blk.0.attn_q.weight": np.array([3, 6, 9, 1], np.float32)}
    one = quantized.write_gguf_imatrix(tmp_path / "a", sums, {"blk.0.attn_q.weight": [3]})
    (tmp_path / "b").write_bytes(quantized.dat_bytes(sums, 3))
    for path in (one, tmp_path / "b"):
        read = imatrix.read(path)
        found = read.of("blk.0.attn_q.weight", 4, 1)
        assert found is not None
        np.testing.assert_array_equal(found, np.array([[3, 6, 9, 1]], np.float32) / np.float32(3))
        assert (read.dataset, read.chunks) == ("some text.txt", 7)
        assert read.of("blk.1.attn_q.weight", 4, 1) is None


def test_an_expert_that_was_never_asked_knows_nothing(tmp_path: Path) -> None:
    sums = {"x": np.array([4, 8, 5, 5, 2, 6], np.float32)}
    read = imatrix.read(quantized.write_gguf_imatrix(tmp_path / "a", sums, {"x": [2, 0, 1.4]}))
    found = read.of("x", 2, 3)
    assert found is not None
    assert found.tolist() == [[2, 4], [1, 1], [2, 6]]  # counts are whole: 1.4 is 1


def test_an_old_file_may_lack_its_tail_and_its_calls(tmp_path: Path) -> None:
    sums = {"x": np.array([4, 8], np.float32)}
    (tmp_path / "a").write_bytes(quantized.dat_bytes(sums, 0, None))
    read = imatrix.read(tmp_path / "a")
    assert (read.dataset, read.chunks) == ("", 0)
    found = read.of("x", 2, 1)
    assert found is not None
    assert found.tolist() == [[4, 8]]


def test_importances_of_another_model_are_refused(small: Path, tmp_path: Path) -> None:
    right = quantized.importances(small)
    strange = {name.replace("blk.0", "blk.7").replace("output", "out"): w for name, w in right.items()}
    with pytest.raises(InputError, match="of another model"):
        quantize(small, tmp_path / "q.gguf", type="q4_0", imatrix=gguf_file(tmp_path, strange))
    narrow = {name: w[: w.size // 2] for name, w in right.items()}
    with pytest.raises(InputError, match=r"128 columns for .*, the tensor 256"):
        quantize(small, tmp_path / "q.gguf", type="q4_0", imatrix=gguf_file(tmp_path, narrow))
    assert not (tmp_path / "q.gguf").exists()


def test_missing_importances_are_warned_of_and_where_they_must_be_refused(
    small: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    some = quantized.importances(small, skip=("token_embd.weight", "output.weight", "blk.0.attn_q.weight"))
    file = gguf_file(tmp_path, some)
    quantize(small, tmp_path / "q.gguf", type="q4_k_s", imatrix=file)
    assert "nothing of 1 of 7 weights (blk.N.attn_q.weight)" in caplog.text
    for kind in ("iq2_xxs", "iq3_xxs", "q2_k_s"):
        with pytest.raises(InputError, match=r"lacks a tensor\n.*attn_q"):
            quantize(small, tmp_path / "x.gguf", type=kind, imatrix=file)
    with pytest.raises(InputError, match=r"token_embd.weight cannot be written as IQ2_XS"):
        quantize(small, tmp_path / "x.gguf", type="q4_0", embedding_type="iq2_xs", imatrix=file)
    assert not (tmp_path / "x.gguf").exists()


def test_importances_of_an_embedding_that_do_not_fit_are_left_out(small: Path, tmp_path: Path) -> None:
    """An embedding's rows are looked up: llama-imatrix may have measured something else there."""
    weights = {**quantized.importances(small), "token_embd.weight": np.ones(3, np.float32)}
    quantize(small, tmp_path / "ours.gguf", type="q4_0", imatrix=gguf_file(tmp_path, weights))
    quantized.theirs(small, tmp_path / "theirs.gguf", ROW_TYPES["Q4_0"], weights)
    assert quantized.tensors(tmp_path / "ours.gguf") == quantized.tensors(tmp_path / "theirs.gguf")


@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0, 1e30])
def test_a_number_that_is_no_mean_of_squares_is_an_error(small: Path, tmp_path: Path, value: float) -> None:
    weights = dict(quantized.importances(small))
    weights["blk.0.attn_q.weight"][5] = value
    with pytest.raises(FormatError, match="no mean of squares"):
        quantize(small, tmp_path / "q.gguf", type="q4_0", imatrix=gguf_file(tmp_path, weights))
    assert not (tmp_path / "q.gguf").exists()


@pytest.mark.parametrize(
    "tensors",
    [
        [],
        [Tensor("x.weight", (32,))],
        [Tensor("x.in_sum2", (32,))],
        [Tensor("x.in_sum2", (32,)), Tensor("x.counts", (3,))],
        [Tensor("x.in_sum2", (32,)), Tensor("x.counts", (0,))],
        [Tensor("x.in_sum2", (32,), 1), Tensor("x.counts", (1,))],
    ],
)
def test_a_gguf_that_is_none_is_an_error(tmp_path: Path, tensors: list[Tensor]) -> None:
    with pytest.raises(FormatError):
        imatrix.read(write_gguf(tmp_path / "a", {"general.type": "imatrix"}, tensors))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"abc",
        struct.pack("<i", 0),
        struct.pack("<i", -5),
        struct.pack("<i", 2**31 - 1),
        struct.pack("<iii", 1, 2**30, 0),
        struct.pack("<ii", 1, -1),
        struct.pack("<ii", 1, 1) + b"x" + struct.pack("<ii", 1, 2**31 - 1),
        struct.pack("<ii", 1, 1) + b"x" + struct.pack("<ii", 1, 0),
        struct.pack("<ii", 1, 1) + b"x" + struct.pack("<iif", 1, 1, 2.0) + b"\1",
        b"PK\3\4 a zip archive",
    ],
)
def test_a_file_that_is_none_is_an_error(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(FormatError):
        imatrix.read(tmp_path / "a")


def test_a_file_that_is_not_there_is_an_error(small: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        quantize(small, tmp_path / "q.gguf", type="q4_0", imatrix=tmp_path / "none.dat")
    with pytest.raises(InputError, match="cannot be read"):
        quantize(small, tmp_path / "q.gguf", type="q4_0", imatrix=tmp_path)


def test_the_output_is_never_the_importance_matrix(small: Path, tmp_path: Path) -> None:
    file = gguf_file(tmp_path, quantized.importances(small))
    with pytest.raises(InputError, match="about to be read"):
        quantize(small, file, type="q4_0", imatrix=file, force=True)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_damaged_old_file_is_read_or_refused(data: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Never another error, and never more numbers than the file has bytes for."""
    whole = quantized.dat_bytes({"a.weight": np.ones(5, np.float32), "b": np.ones(2, np.float32)}, 3)
    changed = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    for _ in range(data.draw(st.integers(0, 3)) if changed else 0):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.dat"
    path.write_bytes(changed)
    try:
        read = imatrix.read(path)
    except GGUFToolsError:
        return
    assert sum(means().size for means in read.weights.values()) * 4 <= len(changed)
