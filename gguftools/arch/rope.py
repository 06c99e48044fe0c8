"""Rotary positions: config.json's rope_theta and rope_scaling as GGUF keys and factors, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, Unsupported
from ..gguf_write import Key
from ..header import Header
from ..header.ggml_types import ValueType

MEND = "mend config.json, or download it again"
OTHER = "choose another checkpoint or GGUF of this model"
FLT_MAX = 3.4028234e38
_ORIGINAL = "original_max_position_embeddings"
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def rope_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """rope_parameters (newer files) or rope_scaling and rope_theta as one dict with `rope_type`.

    Raises Unsupported for a rotation that covers only a part of each head.
    """
    given = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(given, Mapping):
        raise InputError(f"config.json: rope_scaling is {given!r}", "it must be an object", MEND)
    rope = dict(given)
    rope["rope_type"] = str(rope.get("rope_type") or rope.get("type") or "default").lower()
    rope["rope_theta"] = rope.get("rope_theta") or config.get("rope_theta") or 10000.0
    if (rope.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0) != 1.0:
        raise Unsupported(
            "config.json: partial_rotary_factor is not supported", "llama.cpp rotates whole heads here", OTHER
        )
    return rope


def rope_keys(config: Mapping[str, Any], factors: bool) -> list[Key]:
    """Keys without the architecture's prefix. `factors`: llama.cpp's graph reads rope_freqs.weight.

    Raises Unsupported for a scaling that llama.cpp does not have for this architecture.
    """
    rope = rope_of(config)
    kind = rope["rope_type"]
    keys: list[Key] = [("rope.freq_base", number(rope, "rope_theta"), ValueType.F32)]
    if kind == "linear":
        return [
            *keys,
            ("rope.scaling.type", "linear", ValueType.STR),
            ("rope.scaling.factor", number(rope, "factor"), ValueType.F32),
        ]
    if kind == "yarn":
        return keys + _yarn_keys(config, rope)
    if kind == "default" or (kind == "llama3" and factors):
        return keys
    known = "default, linear, yarn" + (", llama3" if factors else "")
    raise Unsupported(
        f"config.json: rope scaling {kind} is not supported",
        f"llama.cpp has for this architecture: {known}",
        OTHER,
    )


def _yarn_keys(config: Mapping[str, Any], rope: Mapping[str, Any]) -> list[Key]:
    """YaRN. llama.cpp multiplies 1 + 0.1 ln(factor), the default, by attn_factor; the betas are fixed."""
    factor = number(rope, "factor")
    if factor < 1:
        raise InputError(f"config.json: yarn's factor is {factor}", "it must be at least 1", MEND)
    if (rope.get("beta_fast") or 32, rope.get("beta_slow") or 1) != (32, 1):
        raise Unsupported(
            "config.json: yarn with beta_fast other than 32 or beta_slow other than 1 is not supported",
            "llama.cpp reads neither for this architecture",
            OTHER,
        )
    if not rope.get("truncate", True) or rope.get("mscale") or rope.get("mscale_all_dim"):
        raise Unsupported(
            "config.json: yarn with truncate, mscale or mscale_all_dim is not supported",
            "llama.cpp reads none of them for this architecture",
            OTHER,
        )
    original = number({**config, **rope}, _ORIGINAL, config.get("max_position_embeddings"))
    keys: list[Key] = [
        ("rope.scaling.type", "yarn", ValueType.STR),
        ("rope.scaling.factor", factor, ValueType.F32),
        ("rope.scaling.original_context_length", int(original), ValueType.U32),
    ]
    if rope.get("attention_factor") is not None:
        own = number(rope, "attention_factor") / (1 + 0.1 * math.log(factor))
        keys.append(("rope.scaling.attn_factor", own, ValueType.F32))
    return keys


def llama3_factors(config: Mapping[str, Any], head_dim: int) -> NDArray[np.float32] | None:
    """rope_freqs.weight for rope_type llama3, else None: divisors of the head_dim/2 frequencies.

    Formula: "Llama 3.1" in transformers' rope utilities: long waves are divided by `factor`, short ones kept,
    between them the two are mixed.
    """
    rope = rope_of(config)
    if rope["rope_type"] != "llama3":
        return None
    factor, low, high = (
        number(rope, "factor"),
        number(rope, "low_freq_factor"),
        number(rope, "high_freq_factor"),
    )
    original = number(rope, "original_max_position_embeddings")
    if high <= low:
        raise InputError(
            f"config.json: high_freq_factor {high} is not above low_freq_factor {low}",
            "between the two the frequencies are mixed",
            MEND,
        )
    exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    waves = 2 * math.pi * np.power(np.float64(number(rope, "rope_theta")), exponents)
    mix = np.clip((original / waves - low) / (high - low), 0.0, 1.0)
    factors: NDArray[np.float64] = 1 / ((1 - mix) / factor + mix)
    return factors.astype(np.float32)


def rope_config(header: Header) -> dict[str, Any]:
    """rope_theta and rope_scaling of a GGUF. Raises Unsupported for what config.json cannot say."""
    arch = header.architecture
    theta = short(header.get_float(f"{arch}.rope.freq_base", 10000.0))
    kind = header.get_str(f"{arch}.rope.scaling.type", "none")
    factor = header.get_float(
        f"{arch}.rope.scaling.factor", header.get_float(f"{arch}.rope.scale_linear", 1.0)
    )
    out: dict[str, Any] = {"rope_theta": theta, "rope_scaling": None}
    if kind == "linear" and factor not in (0.0, 1.0):
        out["rope_scaling"] = {"rope_type": "linear", "factor": short(factor)}
    elif kind == "yarn":
        out["rope_scaling"] = _yarn_config(header, arch, factor)
    elif kind not in ("none", "linear"):
        raise Unsupported(
            f"{header.path}: rope scaling {kind} is not exported", "linear, yarn and llama3 are", OTHER
        )
    return out


def _yarn_config(header: Header, arch: str, factor: float) -> dict[str, Any]:
    if not factor >= 1:
        raise InputError(f"{header.path}: yarn's factor is {factor}", "it must be at least 1", OTHER)
    context = header.get_int(f"{arch}.context_length", 0)
    rope: dict[str, Any] = {
        "rope_type": "yarn",
        "factor": short(factor),
        "original_max_position_embeddings": header.get_int(
            f"{arch}.rope.scaling.original_context_length", context
        ),
    }
    own = header.get_float(f"{arch}.rope.scaling.attn_factor", 1.0)
    if own != 1.0:
        rope["attention_factor"] = short(own * (1 + 0.1 * math.log(factor)))
    return rope


def llama3_config(header: Header, factors: NDArray[np.float32], theta: float) -> dict[str, Any]:
    """rope_scaling behind a rope_freqs.weight. Raises Unsupported where Llama 3's own do not fit."""
    scaling = {"rope_type": "llama3", "factor": short(float(factors.max())), **_LLAMA3}
    again = llama3_factors({"rope_theta": theta, "rope_scaling": scaling}, 2 * factors.size)
    if again is None or not np.allclose(again, factors, rtol=1e-5, atol=0):
        raise Unsupported(
            f"{header.path}: its rope_freqs.weight is not Llama 3's",
            "config.json could not describe it",
            OTHER,
        )
    return scaling


def number(values: Mapping[str, Any], name: str, default: float | None = None) -> float:
    """A number above 0 that a float32 can hold. Raises InputError."""
    value = values.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < FLT_MAX:
        what = "is missing" if value is None else f"is {value!r}"
        raise InputError(f"config.json: {name} {what}", "it must be a number above 0", "check the checkpoint")
    return float(value)


def short(value: float) -> float:
    """The shortest decimal that is the same float32: 1e-05 for 9.999999747378752e-06.

    Raises InputError for what no config.json can say: NaN, an infinity, more than a float32 holds.
    """
    if not abs(value) < FLT_MAX:
        raise InputError(f"the file's keys hold the number {value}", "config.json cannot say it", OTHER)
    return float(str(np.float32(value)))
