"""Packed int4: each way in which a checkpoint can be broken or of another make is one clear message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import encoded
import numpy as np
import pytest
import tiny
import tiny_mla

from gguftools.errors import GGUFToolsError, InputError, Unsupported
from gguftools.verbs.convert import convert

CONFIG = {**tiny_mla.DEEPSEEK, "moe_intermediate_size": 64, "quantization_config": encoded.INT4}
EXPERT = "model.layers.1.mlp.experts.3.up_proj.weight"


def scheme(**change: Any) -> dict[str, Any]:
    weights = {**encoded.INT4["config_groups"]["group_0"]["weights"], **change}
    return {**encoded.INT4, "config_groups": {"group_0": {"weights": weights}}}


def with_(name: str, change: Any) -> Any:
    return lambda t: t.update({EXPERT + name: change(t.get(EXPERT + name))})


FAULTS: dict[str, tuple[Any, dict[str, Any], type[GGUFToolsError], str]] = {
    "no scale": (lambda t: t.pop(EXPERT + "_scale"), {}, InputError, "has no .*weight_scale"),
    "no shape": (lambda t: t.pop(EXPERT + "_shape"), {}, InputError, "has no .*weight_shape"),
    "a scale alone": (lambda t: t.pop(EXPERT + "_packed"), {}, InputError, "lacks .*up_proj.weight"),
    "packed and unpacked": (with_("", lambda _: np.zeros((64, 64), "f4")), {}, InputError, "both"),
    "zero points": (with_("_zero_point", lambda _: np.zeros((8, 2), "i4")), {}, Unsupported, "zero_point"),
    "an order of its own": (with_("_g_idx", lambda _: np.zeros(64, "i4")), {}, Unsupported, "g_idx"),
    "scales of another shape": (with_("_scale", lambda s: s[:, :1]), {}, InputError, r"\[64, 1\] where"),
    "another shape said": (with_("_shape", lambda s: s + 1), {}, InputError, r"\[65, 65\] where \[64, 64\]"),
    "a shape of three": (with_("_shape", lambda s: np.zeros(3, "i8")), {}, InputError, r"\[3\] where \[2\]"),
    "packed as floats": (with_("_packed", lambda p: p.view("f4")), {}, Unsupported, "weight_packed is F32"),
    "packed in one row": (with_("_packed", lambda p: p.reshape(-1)), {}, Unsupported, r"shape \[512\]"),
    "no whole groups": (with_("_packed", lambda p: p[:, :5]), {}, Unsupported, r"shape \[64, 5\]"),
    "no rows": (with_("_packed", lambda p: p[:0]), {}, Unsupported, r"shape \[0, 8\]"),
    "scales that are whole": (with_("_scale", lambda s: s.astype("i4")), {}, Unsupported, "scale is I32"),
    "an infinite scale": (with_("_scale", lambda s: s | 0x7F80), {}, InputError, "scale holds a NaN"),
    "another size": (
        lambda t: t.update(encoded.int4(np.ones((32, 64), "f4"), EXPERT)[0]),
        {},
        InputError,
        r"has the shape \[32, 64\]",
    ),
    "group size 128": (lambda t: None, scheme(group_size=128), Unsupported, "group_size 128"),
    "no symmetry": (lambda t: None, scheme(symmetric=False), Unsupported, "symmetric False"),
    "8 bits": (lambda t: None, scheme(num_bits=8), Unsupported, "num_bits 8"),
    "floats": (lambda t: None, scheme(type="float"), Unsupported, "type float"),
    "a scale for each row": (lambda t: None, scheme(strategy="channel"), Unsupported, "strategy channel"),
    "sorted groups": (lambda t: None, scheme(actorder="group"), Unsupported, "actorder group"),
    "MXFP4": (lambda t: None, {**encoded.INT4, "format": "mxfp4-pack-quantized"}, Unsupported, "mxfp4-pack"),
    "no settings": (lambda t: None, {**encoded.INT4, "config_groups": None}, Unsupported, "0 groups"),
    "two settings": (
        lambda t: None,
        {**encoded.INT4, "config_groups": {"a": {}, "b": {}}},
        Unsupported,
        "2 groups",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_clear_message_before_the_first_byte(
    tmp_path: Path, tokenizer: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, quantization, error, why = FAULTS[fault]
    stored, _ = encoded.quantized(tiny.weights(CONFIG), encoded.int4)
    change(stored)
    config = {**CONFIG, "quantization_config": quantization or encoded.INT4}
    folder = tiny.write_checkpoint(tmp_path / "m", config, stored, tokenizer=tokenizer)
    monkeypatch.setattr("gguftools.goal.new_file", None)
    with pytest.raises(error, match=why) as caught:
        convert(folder, tmp_path / "m.gguf")
    assert caught.value.what
    assert caught.value.why
    assert caught.value.hint
