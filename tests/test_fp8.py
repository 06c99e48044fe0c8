"""FP8 in blocks: the numbers are the checkpoint's, and each way to be broken is one clear message."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import encoded
import lowlevel
import numpy as np
import numpy_mla
import pytest
import tiny
import tiny_mla
from numpy.typing import NDArray

from gguftools.checkpoint import Checkpoint, floats
from gguftools.checkpoint.fp8 import E4M3
from gguftools.checkpoint.weights import weights
from gguftools.errors import GGUFToolsError, InputError, Unsupported
from gguftools.verbs.convert import convert, pieces

CONFIG = {
    **tiny_mla.DEEPSEEK,
    "hidden_size": 160,
    "intermediate_size": 192,
    "quantization_config": encoded.FP8,
}
LINEAR = ("_proj.weight", "_with_mqa.weight")


def write(folder: Path, tokenizer: Path) -> tuple[Path, dict[str, NDArray[np.float32]]]:
    """A checkpoint as Kimi-K2's: all linear layers in FP8, blocks cut off at the edges."""
    stored, meant = encoded.quantized(tiny.weights(CONFIG), encoded.fp8, lambda name: name.endswith(LINEAR))
    return tiny.write_checkpoint(folder / "m", CONFIG, stored, shards=3, tokenizer=tokenizer), meant


def test_the_256_bytes_mean_what_the_format_says() -> None:
    assert np.array_equal(E4M3, encoded.NUMBERS.astype(np.float32), equal_nan=True)
    assert (E4M3[0x7E], E4M3[0x01], E4M3[0x08], E4M3[0xB8]) == (448.0, 2.0**-9, 2.0**-6, -1.0)


@pytest.mark.parametrize("chunk", [1000, 4 << 20])
def test_every_number_is_byte_times_scale_of_its_block(
    tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(pieces, "CHUNK", chunk)
    folder, meant = write(tmp_path, tokenizer)
    found = weights(Checkpoint.open(folder))
    assert found.keys() == meant.keys()
    for name, values in meant.items():
        source = found[name]
        assert source.shape == values.shape
        for at in range(0, len(values), 50):
            rows = source.read(at, min(50, len(values) - at))
            assert (floats.to_f32(rows, source.kind) == values[at : at + 50]).all()


def test_libllamas_logits_are_those_of_what_the_bytes_mean(tmp_path: Path, tokenizer: Path) -> None:
    folder, meant = write(tmp_path, tokenizer)
    convert(folder, tmp_path / "m.gguf", outtype="f32")
    ids = list(range(40, 100))
    wanted = numpy_mla.forward(CONFIG, meant, ids)
    assert np.abs(wanted).max() > 1
    assert np.abs(lowlevel.logits(tmp_path / "m.gguf", ids) - wanted).max() < 1e-3


def test_auto_is_bf16_as_the_makers_script_rounds(tmp_path: Path, tokenizer: Path) -> None:
    folder, meant = write(tmp_path, tokenizer)
    done = convert(folder, tmp_path / "m.gguf")
    assert set(done.types) == {"F32", "BF16"}
    plain = {name: tiny.bf16(values) for name, values in meant.items()}
    config = {name: value for name, value in CONFIG.items() if name != "quantization_config"}
    tiny.write_checkpoint(tmp_path / "plain/m", config, plain, tokenizer=tokenizer)
    convert(tmp_path / "plain/m", tmp_path / "plain.gguf")
    assert (tmp_path / "m.gguf").read_bytes() == (tmp_path / "plain.gguf").read_bytes()


NAME = "model.layers.1.mlp.experts.3.down_proj.weight"


def without(name: str) -> Any:
    return lambda t: t.pop(name)


def changed(name: str, change: Any) -> Any:
    return lambda t: t.update({name: change(t[name])})


FAULTS: dict[str, tuple[Any, dict[str, Any], type[GGUFToolsError], str]] = {
    "no scale": (without(NAME + "_scale_inv"), {}, InputError, "has no weight_scale_inv"),
    "a scale without a weight": (without(NAME), {}, InputError, "lacks .*down_proj.weight"),
    "scales of another shape": (
        changed(NAME + "_scale_inv", lambda s: s[:, :0]),
        {},
        InputError,
        r"shape \[2, 0\]\n.* has \[2, 1\] blocks",
    ),
    "scales of a strange type": (
        changed(NAME + "_scale_inv", lambda s: s.astype("i8")),
        {},
        Unsupported,
        "is I64",
    ),
    "a weight of another shape": (
        changed(NAME, lambda w: w[:, :16]),
        {},
        InputError,
        r"has the shape \[160, 16\]",
    ),
    "a NaN": (changed(NAME, lambda w: w | 127), {}, InputError, "down_proj.weight holds a NaN"),
    "an infinite scale": (
        changed(NAME + "_scale_inv", lambda s: s + np.inf),
        {},
        InputError,
        "scale_inv holds a NaN or an infinity",
    ),
    "one scale for all": (lambda t: None, {"weight_block_size": None}, Unsupported, "weight_block_size None"),
    "other blocks": (lambda t: None, {"weight_block_size": [64, 64]}, Unsupported, r"\[64, 64\]"),
    "the other FP8": (lambda t: None, {"fmt": "e5m2"}, Unsupported, "e5m2"),
    "another method": (lambda t: None, {"quant_method": "gptq"}, Unsupported, r"quantized \(gptq\)"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_clear_message_and_leaves_nothing_behind(
    tmp_path: Path, tokenizer: Path, fault: str
) -> None:
    change, config, error, why = FAULTS[fault]
    stored, _ = encoded.quantized(tiny.weights(CONFIG), encoded.fp8, lambda name: name.endswith(LINEAR))
    change(stored)
    config = {**CONFIG, "quantization_config": {**encoded.FP8, **config}}
    tiny.write_checkpoint(tmp_path / "m", config, stored, tokenizer=tokenizer)
    with pytest.raises(error, match=why) as caught:
        convert(tmp_path / "m", tmp_path / "m.gguf")
    assert caught.value.what
    assert caught.value.why
    assert caught.value.hint
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_memory_is_that_of_some_chunks_and_not_of_a_layer(tmp_path: Path, tokenizer: Path) -> None:
    config = {**CONFIG, "hidden_size": 1024, "moe_intermediate_size": 1024, "num_hidden_layers": 2}
    config |= {"n_routed_experts": 16, "vocab_size": 288}
    stored = {}
    for name, values in tiny.weights(config).items():
        if name.endswith(LINEAR):
            blocks = [-(-extent // 128) for extent in values.shape]
            stored[name] = np.full(values.shape, 0x38, np.uint8)
            stored[name + "_scale_inv"] = np.ones(blocks, np.float32)
        else:
            stored[name] = tiny.bf16(values)
    tiny.write_checkpoint(tmp_path / "m", config, stored, tokenizer=tokenizer)
    merged = 16 * 1024 * 1024 * 2
    del stored
    tracemalloc.start()
    convert(tmp_path / "m", tmp_path / "m.gguf")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * pieces.CHUNK
    assert merged > peak
