"""quantize: types and bytes are those of llama_model_quantize; what is refused; nothing is left behind."""

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
    DiskFull,
    FormatError,
    InputError,
    LoadAborted,
    NotFound,
    OutputExists,
    Unsupported,
)
from gguftools.header import read_header
from gguftools.libllama.quantize import FILE_TYPES, ROW_TYPES
from gguftools.verbs.quantize import rows, through

quantize = gguftools.quantize

WEIGHTED = ("IQ3_XXS", "IQ3_XS", "Q2_K_S", "IQ2_M", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ1_M", "IQ1_S")
ALIASES = ("Q5_K", "Q4_K", "Q3_K")
FREE = [name for name in FILE_TYPES if name not in (*WEIGHTED, *ALIASES)]


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
            **_llama_keys(),
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


def _llama_keys() -> dict[str, Any]:
    own = {
        "context_length": 64,
        "embedding_length": 32,
        "block_count": 1,
        "feed_forward_length": 32,
        "attention.head_count": 1,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "vocab_size": 4,
    }
    return {"general.architecture": "llama", **{f"llama.{key}": value for key, value in own.items()}}


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


def _bad(path: Path, value: float, kind: int = 0) -> Path:
    data = np.zeros((4, 32), np.float32)
    data[2, 3] = value
    weight = data.astype(np.float16).tobytes() if kind == 1 else data.tobytes()
    return write_gguf(path, _llama_keys(), [Tensor("blk.0.attn_q.weight", (32, 4), kind, weight)])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("goal", ["q4_0", "iq4_nl", "f32"])
def test_a_number_that_is_none_is_refused(tmp_path: Path, value: float, kind: int, goal: str) -> None:
    src = _bad(tmp_path / "m.gguf", value, kind)
    with pytest.raises(InputError, match="NaN or an infinity"):
        quantize(src, tmp_path / "q.gguf", type=goal)
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]


@pytest.mark.parametrize("goal", ["f16", "q8_0", "q4_0", "iq4_nl"])
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
    assert not out.exists()


def test_integers_are_not_quantized(tmp_path: Path) -> None:
    numbers = [Tensor("blk.0.attn_q.weight", (32, 4), 24, bytes(128))]
    with pytest.raises(Unsupported, match="I8"):
        quantize(write_gguf(tmp_path / "m.gguf", _llama_keys(), numbers), tmp_path / "q.gguf", type="q8_0")


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


def test_progress_goes_to_one_and_may_stop_it(wide: Path, tmp_path: Path) -> None:
    seen: list[float] = []
    quantize(wide, tmp_path / "q.gguf", type="q4_k_m", progress=lambda stage, part: seen.append(part))
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    (tmp_path / "q.gguf").unlink()
    with pytest.raises(LoadAborted):
        quantize(wide, tmp_path / "q.gguf", type="q4_k_m", progress=lambda stage, part: part < 0.5)
    assert not list(tmp_path.iterdir())


def test_a_source_that_shrinks_meanwhile_is_an_error(wide: Path, tmp_path: Path) -> None:
    src = tmp_path / "m.gguf"
    src.write_bytes(wide.read_bytes())

    def cut(_stage: str, _part: float) -> None:
        src.write_bytes(src.read_bytes()[:300_000])

    with pytest.raises(FormatError, match="ends too early"):
        quantize(src, tmp_path / "q.gguf", type="q8_0", threads=1, progress=cut)
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]


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
