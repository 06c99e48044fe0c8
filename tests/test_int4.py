"""Packed int4: Q4_0 keeps it bit for bit wherever F16 holds the scales, and else says that it does not."""

from __future__ import annotations

import logging
import tracemalloc
from pathlib import Path
from typing import Any

import encoded
import hypothesis
import hypothesis.extra.numpy
import lowlevel
import numpy as np
import numpy_mla
import pytest
import tiny
import tiny_mla
from gguf import quants
from hypothesis import strategies as st
from numpy.typing import NDArray

from gguftools.checkpoint import Checkpoint, floats, int4
from gguftools.checkpoint.weights import settled, weights
from gguftools.errors import InputError
from gguftools.header import read_header, read_tensor
from gguftools.verbs.convert import convert, pieces, plan

CONFIG = {**tiny_mla.DEEPSEEK, "moe_intermediate_size": 64, "quantization_config": encoded.INT4}
EXPERT = "model.layers.1.mlp.experts.3.up_proj.weight"


def write(folder: Path, tokenizer: Path, **options: Any) -> tuple[Path, dict[str, NDArray[np.float32]]]:
    """A checkpoint as Kimi-K2-Thinking's: the routed experts in int4, the rest BF16."""
    stored, meant = encoded.quantized(
        tiny.weights(CONFIG), lambda values, name: encoded.int4(values, name, **options)
    )
    return tiny.write_checkpoint(folder / "m", CONFIG, stored, shards=2, tokenizer=tokenizer), meant


def bits_of(values: NDArray[np.float32]) -> Any:
    return values.view(np.uint32)


def tensor(path: Path, name: str) -> tuple[int, NDArray[np.float32]]:
    header = read_header(path)
    info = next(info for info in header.tensors if info.name == name)
    rows = np.frombuffer(read_tensor(header, info), np.uint8).reshape(
        -1, floats.row_bytes(info.shape[0], info.type)
    )
    typed = rows.view(floats.PLAIN[info.type]) if info.type in floats.PLAIN else rows
    return info.type, floats.to_f32(typed, info.type).reshape(info.shape[::-1])


ALL_BF16 = np.arange(1 << 16, dtype=np.uint32)
FINITE = ALL_BF16[(ALL_BF16 & 0x7F80) != 0x7F80].astype(np.uint16)


def test_which_bf16_scales_f16_holds_is_what_its_two_formats_say() -> None:
    """Of all 65,280 finite ones: normal numbers up to 65,280, and multiples of 2^-24 below 2^-14."""
    scales = (FINITE.astype(np.uint32) << 16).view(np.float32)
    size = np.abs(scales.astype(np.float64))
    held = (size <= 65504) & ((size >= 2.0**-14) | (size * 2.0**24 % 1 == 0))
    assert (int4.fits_f16(scales) == held).all()
    assert held[size >= 2.0**-17].sum() == 2 * 128 * (17 + 16)
    quick = ((FINITE & 0x7FFF) - np.uint16(int4._LEAST)) < int4._MOST - int4._LEAST
    assert not (quick & ~held).any()
    assert quick.sum() == 2 * 128 * (17 + 16)


def test_every_scale_that_fits_and_every_number_come_out_of_q4_0_bit_for_bit() -> None:
    """All 16 numbers with all BF16 scales that F16 holds, widened by the gguf package and by hand."""
    scales = (FINITE.astype(np.uint32) << 16).view(np.float32)
    scales = scales[int4.fits_f16(scales)]
    numbers = np.random.default_rng(0).permuted(
        np.tile(np.arange(16, dtype=np.uint8), (scales.size, 2)), axis=1
    )
    packed = (numbers[:, 0::2] | numbers[:, 1::2] << 4)[:, None]
    blocks = int4._blocks(packed, scales.astype(np.float16)[:, None])
    wide = quants.dequantize(blocks.reshape(-1, 18), quants.GGMLQuantizationType.Q4_0)
    by_hand = (numbers.astype(np.float32) - 8) * scales[:, None]
    assert (bits_of(wide) == bits_of(by_hand)).all()
    exact = (numbers.astype(np.float64) - 8) * scales[:, None].astype(np.float64)
    assert (by_hand.astype(np.float64) == exact).all()
    assert (bits_of(int4._wide(packed, scales[:, None]).reshape(wide.shape)) == bits_of(wide)).all()


@hypothesis.given(
    hypothesis.extra.numpy.arrays(np.int32, (3, 8)), st.lists(st.integers(0, 65535), min_size=6, max_size=6)
)
def test_any_words_and_scales_mean_the_same_both_ways_or_the_scales_are_told(
    tmp_path_factory: pytest.TempPathFactory, words: NDArray[np.int32], scales: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("words")
    stored = {"w.weight_packed": words, "w.weight_scale": np.array(scales, np.uint16).reshape(3, 2)}
    stored["w.weight_shape"] = np.array([3, 64])
    checkpoint = Checkpoint.open(tiny.write_checkpoint(folder, {**CONFIG}, stored))
    source = weights(checkpoint)["w.weight"]
    if any(scale & 0x7F80 == 0x7F80 for scale in scales):
        with pytest.raises(InputError, match="NaN or an infinity"):
            settled(source, "auto").read(0, 3)
        return
    kept = settled(source, "auto")
    wide = source.read(0, 3)
    fits = int4.fits_f16((np.array(scales, np.uint32) << 16).view(np.float32)).all()
    assert kept.kind == (floats.Q4_0 if fits else floats.F32)
    assert (bits_of(floats.to_f32(kept.read(0, 3), kept.kind)) == bits_of(wide)).all()
    for i, j in np.ndindex(3, 64):
        number = (int(words[i, j // 8]) >> 4 * (j % 8) & 15) - 8
        scale = np.array([scales[2 * i + j // 32] << 16], np.uint32).view(np.float32)[0]
        assert wide[i, j] == np.float32(number) * scale


@pytest.mark.parametrize("scale_type", ["BF16", "F16", "F32"])
@pytest.mark.parametrize("chunk", [100, 4 << 20])
def test_experts_become_q4_0_and_mean_what_they_meant(
    tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch, scale_type: str, chunk: int
) -> None:
    monkeypatch.setattr(pieces, "CHUNK", chunk)
    folder, meant = write(tmp_path, tokenizer, scale_type=scale_type)
    if scale_type == "F32":  # such a scale is no F16 but by chance
        convert(folder, tmp_path / "m.gguf")
        assert tensor(tmp_path / "m.gguf", "blk.1.ffn_up_exps.weight")[0] == floats.BF16
        return
    done = convert(folder, tmp_path / "m.gguf")
    assert done.types["Q4_0"] == 6
    for name in ("gate", "up", "down"):
        kind, found = tensor(tmp_path / "m.gguf", f"blk.2.ffn_{name}_exps.weight")
        experts = [meant[f"model.layers.2.mlp.experts.{i}.{name}_proj.weight"] for i in range(8)]
        assert kind == floats.Q4_0
        assert (bits_of(found) == bits_of(np.stack(experts))).all()
    assert tensor(tmp_path / "m.gguf", "blk.1.attn_kv_a_mqa.weight")[0] == floats.BF16


def test_libllamas_logits_are_those_of_what_the_bits_mean(tmp_path: Path, tokenizer: Path) -> None:
    folder, meant = write(tmp_path, tokenizer)
    convert(folder, tmp_path / "m.gguf", outtype="f32")
    ids = list(range(40, 100))
    wanted = numpy_mla.forward(CONFIG, meant, ids)
    assert np.abs(wanted).max() > 1
    assert np.abs(lowlevel.logits(tmp_path / "m.gguf", ids) - wanted).max() < 1e-3
    convert(folder, tmp_path / "q4.gguf")
    near = lowlevel.logits(tmp_path / "q4.gguf", ids)  # libllama rounds what it multiplies Q4_0 with
    assert np.abs(near - wanted).max() < 0.1 * np.abs(wanted).max()


def test_a_scale_that_f16_does_not_hold_makes_its_tensor_bf16_and_is_told(
    tmp_path: Path, tokenizer: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, meant = write(tmp_path, tokenizer)
    assert convert(folder, tmp_path / "m.gguf").types["Q4_0"] == 6
    assert not caplog.records
    stored, _ = encoded.int4(tiny.weights(CONFIG)[EXPERT], EXPERT, smallest=2.0**-20 * 1.015625)
    rewrite(folder, dict(stored))
    done = convert(folder, tmp_path / "n.gguf")
    assert done.types["Q4_0"] == 5
    assert tensor(tmp_path / "n.gguf", "blk.1.ffn_up_exps.weight")[0] == floats.BF16
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "blk.1.ffn_up_exps.weight: Q4_0 cannot hold all scales exactly" in caplog.text
    other = np.stack([meant[f"model.layers.1.mlp.experts.{i}.up_proj.weight"] for i in range(8)])
    found = tensor(tmp_path / "n.gguf", "blk.1.ffn_up_exps.weight")[1]
    assert (tiny.bf16(found)[:3] == tiny.bf16(other)[:3]).all()


def rewrite(folder: Path, tensors: dict[str, Any]) -> None:
    """Puts tensors in the place of those of the same name, all in one file."""
    old = Checkpoint.open(folder)
    stored: dict[str, Any] = {}
    for name in old.tensors:
        dtype, shape, data = old.tensor(name)
        numpy = {"BF16": "<u2", "F32": "<f4", "F16": "<f2", "I32": "<i4", "I64": "<i8"}[dtype]
        stored[name] = np.frombuffer(bytes(data), numpy).reshape(shape)
    for path in folder.glob("model*"):
        path.unlink()
    tiny.write_shard(folder / "model.safetensors", {**stored, **tensors})


def test_q4_0_asked_for_keeps_the_numbers_and_rounds_such_a_scale(tmp_path: Path, tokenizer: Path) -> None:
    folder, meant = write(tmp_path, tokenizer)
    stored, exact = encoded.int4(tiny.weights(CONFIG)[EXPERT], EXPERT, smallest=2.0**-20 * 1.015625)
    rewrite(folder, dict(stored))
    done = convert(folder, tmp_path / "m.gguf", outtype="q4_0")
    assert set(done.types) == {"F32", "Q4_0", "Q8_0", "F16"}  # rows of 24 are no whole block
    kind, found = tensor(tmp_path / "m.gguf", "blk.1.ffn_up_exps.weight")
    assert kind == floats.Q4_0
    apart = np.argwhere(found[3] != exact)
    assert len(apart) > 0
    assert (apart[:, 0] == 0).all()
    assert (apart[:, 1] < 32).all()
    assert np.abs(found[3] - exact).max() <= 8 * 2.0**-25
    assert (bits_of(found[0]) == bits_of(meant[EXPERT.replace("experts.3", "experts.0")])).all()


def test_a_scale_too_large_for_q4_0_is_refused_and_bf16_takes_it(tmp_path: Path, tokenizer: Path) -> None:
    folder, _ = write(tmp_path, tokenizer)
    stored, _ = encoded.int4(tiny.weights(CONFIG)[EXPERT], EXPERT, smallest=70000.0)
    rewrite(folder, dict(stored))
    with pytest.raises(InputError, match="too large for Q4_0"):
        convert(folder, tmp_path / "m.gguf", outtype="q4_0")
    convert(folder, tmp_path / "m.gguf")
    assert tensor(tmp_path / "m.gguf", "blk.1.ffn_up_exps.weight")[0] == floats.BF16


def test_a_file_that_is_not_here_yet_is_taken_for_exact_and_checked_when_read(
    tmp_path: Path, tokenizer: Path
) -> None:
    folder, _ = write(tmp_path, tokenizer)
    stored, _ = encoded.int4(tiny.weights(CONFIG)[EXPERT], EXPERT, smallest=2.0**-20 * 1.015625)
    rewrite(folder, dict(stored))
    checkpoint = Checkpoint.open(folder)
    (folder / "model.safetensors").rename(folder / "away")
    source = settled(weights(checkpoint)[EXPERT], "auto")
    assert source.kind == floats.Q4_0
    (folder / "away").rename(folder / "model.safetensors")
    with pytest.raises(
        InputError, match=r"weight_scale holds a scale that Q4_0 cannot keep\n.*\nrun it again"
    ):
        source.read(0, 1)


def test_a_packed_output_matrix_keeps_its_bits_too(tmp_path: Path, tokenizer: Path) -> None:
    stored, meant = encoded.quantized(
        tiny.weights(CONFIG), encoded.int4, lambda name: name == "lm_head.weight"
    )
    tiny.write_checkpoint(tmp_path / "m", CONFIG, stored, tokenizer=tokenizer)
    convert(tmp_path / "m", tmp_path / "m.gguf")
    kind, found = tensor(tmp_path / "m.gguf", "output.weight")
    assert (kind, (bits_of(found) == bits_of(meant["lm_head.weight"])).all()) == (floats.Q4_0, True)


def test_a_packed_kv_b_is_widened_before_it_is_split(tmp_path: Path, tokenizer: Path) -> None:
    stored, meant = encoded.quantized(tiny.weights(CONFIG), encoded.int4, lambda name: "kv_b_proj" in name)
    tiny.write_checkpoint(tmp_path / "m", CONFIG, stored, tokenizer=tokenizer)
    convert(tmp_path / "m", tmp_path / "m.gguf", outtype="f32")
    heads = meant["model.layers.0.self_attn.kv_b_proj.weight"].reshape(4, 64, 32)
    assert (tensor(tmp_path / "m.gguf", "blk.0.attn_k_b.weight")[1] == heads[:, :24].swapaxes(1, 2)).all()
    assert (tensor(tmp_path / "m.gguf", "blk.0.attn_v_b.weight")[1] == heads[:, 24:]).all()
    convert(tmp_path / "m", tmp_path / "auto.gguf")
    assert tensor(tmp_path / "auto.gguf", "blk.0.attn_k_b.weight")[0] == floats.BF16


def test_a_job_reads_the_scales_once_more_only_where_auto_needs_them(
    tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = write(tmp_path, tokenizer)
    checkpoint = Checkpoint.open(folder)
    slots = plan.arch.for_config(CONFIG).slots(CONFIG)
    looked: list[str] = []
    monkeypatch.setattr(int4.Int4, "exact", lambda self: looked.append(self.name) or True)
    for outtype in ("f32", "bf16", "q8_0", "q4_0"):
        plan.jobs(checkpoint, slots, outtype)  # type: ignore[arg-type]
    assert not looked
    plan.jobs(checkpoint, slots, "auto")
    assert len(looked) == len(set(looked)) == 2 * 8 * 3


def test_memory_is_that_of_some_chunks_and_not_of_a_layer(tmp_path: Path, tokenizer: Path) -> None:
    config = {**CONFIG, "hidden_size": 1024, "moe_intermediate_size": 2048, "num_hidden_layers": 2}
    config |= {"n_routed_experts": 16}
    stored: dict[str, Any] = {}
    for name, values in tiny.weights(config).items():
        if ".experts." in name:
            rows, width = values.shape
            stored[name + "_packed"] = np.zeros((rows, width // 8), np.int32)
            stored[name + "_scale"] = np.full((rows, width // 32), 0x3C00, np.uint16)
            stored[name + "_shape"] = np.array([rows, width])
        else:
            stored[name] = tiny.bf16(values)
    tiny.write_checkpoint(tmp_path / "m", config, stored, tokenizer=tokenizer)
    del stored
    peaks = {}
    for outtype in ("auto", "bf16"):
        tracemalloc.start()
        convert(tmp_path / "m", tmp_path / f"{outtype}.gguf", outtype=outtype)  # type: ignore[arg-type]
        peaks[outtype] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert max(peaks.values()) < 8 * pieces.CHUNK < 16 * 2048 * 1024 * 2
