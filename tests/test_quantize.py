"""quantize: types and bytes are those of llama_model_quantize; what the file says; what a caller sees."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import quantized
from gguf_files import Tensor, write_gguf

import gguftools
from gguftools.errors import (
    InputError,
    LoadAborted,
    OutputExists,
    Unsupported,
)
from gguftools.header import read_header
from gguftools.libllama import mixes
from gguftools.libllama.quantize import FILE_TYPES, ROW_TYPES
from gguftools.verbs.quantize import rows, through

quantize = gguftools.quantize

WEIGHTED = ("IQ3_XXS", "IQ3_XS", "Q2_K_S", "IQ2_M", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ1_M", "IQ1_S")
ALIASES = ("Q5_K", "Q4_K", "Q3_K")
FREE = [name for name in FILE_TYPES if name not in (*WEIGHTED, *ALIASES)]


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


def both(src: Path, folder: Path, kind: str, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tensors of our file and of llama.cpp's, after their keys were compared."""
    ours, theirs = folder / "ours.gguf", folder / "theirs.gguf"
    quantize(src, ours, type=kind.lower(), threads=2)
    quantized.theirs(src, theirs, FILE_TYPES[kind], **options)
    assert quantized.keys(ours) == quantized.keys(theirs)
    return quantized.tensors(ours), quantized.tensors(theirs)


@pytest.mark.parametrize("kind", FREE)
def test_rows_that_are_no_whole_blocks_become_what_llama_cpp_makes_of_them(
    narrow: Path, tmp_path: Path, kind: str
) -> None:
    ours, theirs = both(narrow, tmp_path, kind)
    assert ours == theirs


@pytest.mark.parametrize("kind", FREE)
def test_a_model_of_whole_blocks_becomes_what_llama_cpp_makes_of_it(
    wide: Path, tmp_path: Path, kind: str
) -> None:
    ours, theirs = both(wide, tmp_path, kind)
    assert ours == theirs


@pytest.mark.parametrize("kind", ["Q4_K_M", "Q2_K", "IQ4_XS", "MXFP4_MOE", "Q8_0"])
@pytest.mark.parametrize("n_expert", [4, 8])
def test_experts_become_what_llama_cpp_makes_of_them(tmp_path: Path, kind: str, n_expert: int) -> None:
    src = quantized.experts(tmp_path / "m.gguf", n_expert)
    ours, theirs = both(src, tmp_path, kind)
    assert ours == theirs
    assert ours["blk.0.ffn_gate_inp.weight"][0] == "F16"  # the router stays as it is


def test_a_mix_gives_some_tensors_more_bits(wide: Path) -> None:
    done = quantize(wide, type="q4_k_m", dry_run=True)
    kinds = {row.name: row.type for row in done.tensors}
    assert kinds["output.weight"] == kinds["blk.1.attn_v.weight"] == "Q6_K"
    assert kinds["blk.0.attn_v.weight"] == kinds["blk.1.attn_q.weight"] == "Q4_K"
    assert kinds["blk.0.attn_norm.weight"] == "F32"
    assert done.type == quantize(wide, type="Q4_K", dry_run=True).type == "Q4_K_M"


def test_the_dry_run_says_what_is_written_then_to_the_byte(narrow: Path, tmp_path: Path) -> None:
    before = quantize(narrow, type="q5_k_s", dry_run=True)
    done = quantize(narrow, tmp_path / "q.gguf", type="q5_k_s")
    assert before.path is None
    assert before.nbytes == done.nbytes == (tmp_path / "q.gguf").stat().st_size
    assert before.tensors == done.tensors
    assert {row.name: row.type for row in done.tensors} == {
        name: kind for name, (kind, _) in quantized.tensors(tmp_path / "q.gguf").items()
    }
    numbers = sum(np.prod(row.shape) for row in done.tensors)
    assert done.bits_per_weight == round(8 * sum(row.nbytes for row in done.tensors) / numbers, 3)


def test_rows_that_do_not_fit_are_named_with_what_they_became(
    narrow: Path, wide: Path, caplog: pytest.LogCaptureFixture
) -> None:
    done = quantize(narrow, type="q4_k_m", dry_run=True)
    (record,) = caplog.records
    assert "rows of 320: Q4_K → Q5_0 in" in record.message
    assert "blk.N.attn_q.weight" in record.message
    row = next(row for row in done.tensors if row.name == "blk.1.attn_q.weight")
    assert (row.type, row.wished) == ("Q5_0", "Q4_K")
    caplog.clear()
    assert not any(row.wished for row in quantize(wide, type="q4_k_m", dry_run=True).tensors)
    assert not caplog.records


def test_llama_cpps_own_lines_about_the_stand_in_are_not_logged(
    narrow: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    quantize(narrow, type="q4_k_m", dry_run=True)
    assert not [record for record in caplog.records if record.name == "gguftools.llama"]


def test_single_tensors_get_the_types_that_were_asked_for(wide: Path, tmp_path: Path) -> None:
    rules = [r"blk\.0\.attn_(q|k)=q8_0", "attn_q=F16", "ffn_(up|down)=iq4_nl"]
    pairs = [(rule.rpartition("=")[0].encode(), ROW_TYPES[rule.rpartition("=")[2].upper()]) for rule in rules]
    options: dict[str, Any] = {"output_type": "q5_1", "embedding_type": "bf16"}
    quantize(wide, tmp_path / "ours.gguf", type="q4_k_m", tensor_type=rules, **options)
    quantized.theirs(
        wide,
        tmp_path / "theirs.gguf",
        FILE_TYPES["Q4_K_M"],
        tt_overrides=pairs,
        output_tensor_type=ROW_TYPES["Q5_1"],
        token_embedding_type=ROW_TYPES["BF16"],
    )
    ours = quantized.tensors(tmp_path / "ours.gguf")
    assert ours == quantized.tensors(tmp_path / "theirs.gguf")
    assert ours["blk.0.attn_q.weight"][0] == "Q8_0"
    assert ours["blk.1.attn_q.weight"][0] == "F16"
    assert ours["output.weight"][0] == "Q5_1"
    assert ours["token_embd.weight"][0] == "BF16"


def test_a_pattern_that_fits_nothing_is_warned_of(wide: Path, caplog: pytest.LogCaptureFixture) -> None:
    quantize(wide, type="q8_0", tensor_type=["atn_q=q4_0"], dry_run=True)
    assert "'atn_q'" in caplog.text


def test_keys_stay_and_the_new_type_is_noted(tmp_path: Path) -> None:
    src = write_gguf(
        tmp_path / "m.gguf",
        {
            **quantized.llama_keys(),
            "general.alignment": 64,
            "general.name": "Ä",
        },
        [Tensor("blk.0.attn_q.weight", (32, 4)), Tensor("blk.0.attn_norm.weight", (32,))],
        alignment=64,
    )
    quantize(src, tmp_path / "q.gguf", type="q8_0")
    header = read_header(tmp_path / "q.gguf")
    assert header.keys["general.name"] == "Ä"
    assert header.keys["general.file_type"] == 7
    assert header.keys["general.quantization_version"] == 2
    assert "general.alignment" not in header.keys


def test_the_shards_of_a_model_become_one_file(wide: Path, tmp_path: Path) -> None:
    files = quantized.split(wide, tmp_path)
    quantize(files[1], tmp_path / "from_shards.gguf", type="q4_k_m")
    quantize(wide, tmp_path / "whole.gguf", type="q4_k_m")
    assert quantized.tensors(tmp_path / "from_shards.gguf") == quantized.tensors(tmp_path / "whole.gguf")
    keys = read_header(tmp_path / "from_shards.gguf").keys
    assert not [key for key in keys if key.startswith("split.")]
    assert keys["general.note"] == -3


def test_threads_and_pieces_change_no_byte(
    experts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quantize(experts, tmp_path / "a.gguf", type="q4_k_m", threads=1)
    monkeypatch.setattr(rows, "CHUNK", 300)  # a row at a time
    quantize(experts, tmp_path / "b.gguf", type="q4_k_m", threads=5)
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()


@pytest.mark.parametrize("kind", ["q8_0", "q5_1", "q4_k_m", "q6_k", "iq4_xs", "bf16"])
def test_a_quantized_source_is_taken_on_demand_alone(wide: Path, tmp_path: Path, kind: str) -> None:
    middle = tmp_path / "middle.gguf"
    quantize(wide, middle, type=kind, threads=2)
    if kind != "bf16":
        with pytest.raises(InputError, match="--allow-requantize"):
            quantize(middle, tmp_path / "x.gguf", type="q3_k_s")
    quantize(middle, tmp_path / "ours.gguf", type="q3_k_s", allow_requantize=True)
    quantized.theirs(middle, tmp_path / "theirs.gguf", FILE_TYPES["Q3_K_S"], allow_requantize=True)
    assert quantized.tensors(tmp_path / "ours.gguf") == quantized.tensors(tmp_path / "theirs.gguf")


def test_a_source_in_the_type_asked_for_is_copied(wide: Path, tmp_path: Path) -> None:
    quantize(wide, tmp_path / "q8.gguf", type="q8_0")
    quantize(tmp_path / "q8.gguf", tmp_path / "again.gguf", type="q8_0")
    assert (tmp_path / "q8.gguf").read_bytes() == (tmp_path / "again.gguf").read_bytes()


def test_another_process_finds_the_same_types(
    narrow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules: dict[str, Any] = {"tensor_type": ["attn_k=q5_1"], "embedding_type": "q8_0"}
    here = quantize(narrow, type="q4_k_m", dry_run=True, **rules)
    monkeypatch.setattr(mixes, "APART", True)
    assert quantize(narrow, type="q4_k_m", dry_run=True, **rules) == here
    with pytest.raises(InputError, match="regular expression"):
        quantize(narrow, type="q4_k_m", dry_run=True, tensor_type=["(=q8_0"])
    one = [Tensor("a.weight", (32, 4))]
    bad = write_gguf(tmp_path / "b.gguf", {"general.architecture": "llama"}, one)
    with pytest.raises(Unsupported, match="key not found"):
        quantize(bad, type="q8_0", dry_run=True)


def test_progress_goes_to_one_and_may_stop_it(wide: Path, tmp_path: Path) -> None:
    seen: list[float] = []
    quantize(wide, tmp_path / "q.gguf", type="q4_k_m", progress=lambda stage, part: seen.append(part))
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    (tmp_path / "q.gguf").unlink()
    with pytest.raises(LoadAborted):
        quantize(wide, tmp_path / "q.gguf", type="q4_k_m", progress=lambda stage, part: part < 0.5)
    assert not list(tmp_path.iterdir())


def test_through_quantizes_what_another_verb_writes_and_keeps_that_alone(wide: Path, tmp_path: Path) -> None:
    def make(path: Path) -> None:
        assert path.parent.parent == tmp_path
        path.write_bytes(wide.read_bytes())

    done = through(make, tmp_path / "q.gguf", type="q4_k_m", output_type="q8_0")
    assert done.types["Q4_K"] > 0
    assert [path.name for path in tmp_path.iterdir()] == ["q.gguf"]


def test_through_finds_a_wrong_type_before_the_work(tmp_path: Path) -> None:
    never: Callable[[Path], object] = lambda path: pytest.fail("it was called")  # noqa: E731
    with pytest.raises(InputError, match="unknown"):
        through(never, tmp_path / "q.gguf", type="q9")
    (tmp_path / "q.gguf").touch()
    with pytest.raises(OutputExists):
        through(never, tmp_path / "q.gguf", type="q8_0")


def test_a_real_model_becomes_what_llama_cpp_makes_of_it(smollm2: Path, tmp_path: Path) -> None:
    """SmolLM2 in Q4_1, whose rows of 576 are no whole blocks: 181 of 272 tensors fall back."""
    done = quantize(smollm2, tmp_path / "ours.gguf", type="q4_k_m", allow_requantize=True)
    quantized.theirs(smollm2, tmp_path / "theirs.gguf", 15, allow_requantize=True, nthread=2)
    assert quantized.tensors(tmp_path / "ours.gguf") == quantized.tensors(tmp_path / "theirs.gguf")
    assert quantized.keys(tmp_path / "ours.gguf") == quantized.keys(tmp_path / "theirs.gguf")
    assert sum(row.wished is not None for row in done.tensors) == 181
