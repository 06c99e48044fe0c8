"""Gemma 3, and the text part of its checkpoints with vision: norms gain one, most layers have a window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, Unsupported
from ..gguf_write import Key
from ..header import Header
from ..header.ggml_types import ValueType
from .dense import MAX_LAYERS, Extras, count, dense_keys, dense_slots, shape_of
from .nested import text_part
from .rope import MEND, OTHER, number
from .slot import Slot

NAME = "gemma3"
CLASSES = ("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration")
_PERIOD = 6  # llama.cpp's: of six layers the last sees everything
_LAYERS_OF_27B = 62  # by their number llama.cpp knows the 27B, which scales its queries by another rule
# What config.json may leave out: transformers' Gemma3TextConfig.
_DEFAULTS: dict[str, Any] = {
    "vocab_size": 262208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "rope_local_base_freq": 10000.0,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "tie_word_embeddings": True,
}
_NORMS = {
    "ffn_norm": "pre_feedforward_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


@dataclass(frozen=True, slots=True)
class NormPlusOne:
    """Gemma multiplies what it has normalized by 1 + weight; llama.cpp by the weight of the GGUF."""

    unit: int = 1
    exact: bool = False

    def shape_of_source(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def __call__(self, rows: NDArray[Any]) -> NDArray[Any]:
        moved: NDArray[Any] = rows + np.float32(1)
        return moved


def keys(config: Mapping[str, Any]) -> list[Key]:
    text = _text(config)
    _refuse(text)
    found = dense_keys(NAME, _dense(text))
    more: list[tuple[str, Any, int]] = []
    slides = _slides(text)
    if any(slides):
        local = _local(text)
        more.append(("attention.sliding_window", count(text, "sliding_window"), ValueType.U32))
        more.append(("rope.freq_base_swa", number(local, "rope_theta"), ValueType.F32))
        if slides != [(i + 1) % _PERIOD != 0 for i in range(len(slides))]:
            more.append(("attention.sliding_window_pattern", np.array(slides), ValueType.BOOL))
    if text.get("final_logit_softcapping"):
        cap = number(text, "final_logit_softcapping")
        more.append(("final_logit_softcapping", cap, ValueType.F32))
    return found + [(f"{NAME}.{name}", value, kind) for name, value, kind in more]


def slots(config: Mapping[str, Any]) -> list[Slot]:
    found = []
    for slot in dense_slots(_dense(_text(config)), Extras(qk_norm=True)):
        if slot.gguf.endswith("ffn_norm.weight"):
            found += [_norm(slot, gguf, hf) for gguf, hf in _NORMS.items()]
        elif slot.gguf.endswith("norm.weight"):
            found.append(replace(slot, change=NormPlusOne()))
        else:
            found.append(slot)
    return found


def config(header: Header) -> dict[str, Any]:
    raise Unsupported(
        f"{header.path} has the architecture {NAME}",
        "export is for the families whose weights stay as they are",
        "use the checkpoint that the GGUF was made from",
    )


def _norm(slot: Slot, gguf: str, hf: str) -> Slot:
    """One of the norms around the feed-forward part, in the place of the dense families' only one."""
    return replace(
        slot,
        gguf=slot.gguf.replace("ffn_norm", gguf),
        hf=slot.names[0].replace("post_attention_layernorm", hf),
        change=NormPlusOne(),
    )


def left_out(config: Mapping[str, Any]) -> Mapping[str, str]:  # noqa: ARG001 - the same for all
    parts = ("vision_tower", "multi_modal_projector")
    names = [f"{whole}{part}." for part in parts for whole in ("", "model.")]
    return dict.fromkeys(names, "the vision tower and its projector")


def plain_name(name: str) -> str:
    """`name` without the part that says whose it is: transformers has had it on both sides of "model."."""
    for old, new in (("language_model.", ""), ("model.language_model.", "model.")):
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name


def _text(config: Mapping[str, Any]) -> dict[str, Any]:
    """The text part with what config.json leaves out. Raises InputError."""
    part = text_part(config)
    said = {name: value for name, value in part.items() if value is not None or name == "sliding_window"}
    return {**_DEFAULTS, **said}


def _dense(text: Mapping[str, Any]) -> dict[str, Any]:
    """The same in the words of the dense families: silu, no window, the global rotation."""
    activation = text.get("hidden_act") or text["hidden_activation"]
    if activation != _DEFAULTS["hidden_activation"]:
        raise Unsupported(
            f"config.json: the activation {activation} is not supported",
            f"llama.cpp runs {NAME} with {_DEFAULTS['hidden_activation']}",
            OTHER,
        )
    hidden = ("layer_types", "sliding_window", "use_sliding_window", "rope_parameters", "rope_scaling")
    plain = {name: value for name, value in text.items() if name not in hidden}
    return {**plain, "hidden_act": "silu", "rope_scaling": _rope(text, "full_attention")}


def _rope(text: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """rope_parameters of one kind of layer; older files have one rope_scaling, for full attention alone."""
    given = text.get("rope_parameters") or text.get("rope_scaling") or {}
    if not isinstance(given, Mapping):
        raise InputError(f"config.json: rope_scaling is {given!r}", "it must be an object", MEND)
    if any(name in given for name in ("full_attention", "sliding_attention")):
        given = given.get(kind) or {}
    elif kind != "full_attention":
        given = {}
    if not isinstance(given, Mapping):
        raise InputError(
            f"config.json: rope_parameters of {kind} are {given!r}", "they must be an object", MEND
        )
    return dict(given)


def _local(text: Mapping[str, Any]) -> dict[str, Any]:
    """The rotation of the layers with a window. Raises Unsupported where it is scaled."""
    local = _rope(text, "sliding_attention")
    if (kind := local.get("rope_type") or "default") != "default":
        raise Unsupported(
            f"config.json: rope scaling {kind} of sliding attention is not supported",
            "llama.cpp scales the rotation of full attention alone",
            OTHER,
        )
    return {"rope_theta": local.get("rope_theta") or text["rope_local_base_freq"]}


def _slides(text: Mapping[str, Any]) -> list[bool]:
    """For each layer whether it sees a window only. Raises InputError."""
    n_layer, kinds = count(text, "num_hidden_layers", most=MAX_LAYERS), text.get("layer_types")
    if kinds is None:
        old = text.get("_sliding_window_pattern")  # a name of transformers' own later files
        period = count(text, "sliding_window_pattern", _PERIOD if old is None else old)
        return [(i + 1) % period != 0 for i in range(n_layer)]
    known = ("full_attention", "sliding_attention")
    if not isinstance(kinds, list) or len(kinds) != n_layer or any(kind not in known for kind in kinds):
        raise InputError(
            f"config.json: layer_types is {kinds!r}"[:200],
            f"it must name one of {', '.join(known)} for each of {n_layer} layers",
            MEND,
        )
    return [kind == "sliding_attention" for kind in kinds]


def _refuse(text: Mapping[str, Any]) -> None:
    """Raises Unsupported for what llama.cpp's graph does not do."""
    shape = shape_of(_dense(text))
    scale = shape.n_embd // shape.n_head if shape.n_layer == _LAYERS_OF_27B else shape.head_dim
    if (asked := number(text, "query_pre_attn_scalar")) != scale:
        raise Unsupported(
            f"config.json: query_pre_attn_scalar {asked:g} is not supported",
            f"llama.cpp takes {scale} for a {NAME} of {shape.n_layer} layers",
            OTHER,
        )
    for name in ("attn_logit_softcapping", "use_bidirectional_attention", "attention_bias"):
        if text.get(name):
            raise Unsupported(
                f"config.json: {name} is not supported", f"llama.cpp's {NAME} has no such thing", OTHER
            )
    kind = _dense(text)["rope_scaling"].get("rope_type", "default")
    if kind not in ("default", "linear"):
        raise Unsupported(
            f"config.json: rope scaling {kind} is not supported",
            f"llama.cpp has for {NAME}: default, linear",
            OTHER,
        )
