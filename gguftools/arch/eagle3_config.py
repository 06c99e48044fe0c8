"""config.json and tensor names of EAGLE-3 heads in the formats of SpecForge, AngelSlim, vLLM, speculators.

docs/eagle3.md lists the sources. Nothing here knows the target but by its number of layers.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import InputError, Unsupported
from .eagle3 import BETA_FAST, CLASSES
from .rope import MEND, number

LAYER_IDS = ("auto", "inputs", "outputs")
N_STATES = 3  # llama.cpp refuses another number

_IDS = "eagle_aux_hidden_state_layer_ids"
_SCALES = ("mscale", "mscale_all_dim")
_FLAGS = ("norm_before_residual", "norm_before_fc", "norm_output", "fc_norm", "use_aux_hidden_state")
_OTHER_ENGINE = "run it with vLLM or SGLang"

log = logging.getLogger("gguftools.verbs.convert")


def is_head(config: Mapping[str, Any]) -> bool:
    """By its class; SafeAILab's own heads call themselves LlamaForCausalLM and have a draft_vocab_size."""
    names = config.get("architectures")
    named = names[0] if isinstance(names, list) and names else ""
    return named in CLASSES or (named == "LlamaForCausalLM" and "draft_vocab_size" in config)


def flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """config.json of any of the formats as SpecForge writes it, flags on top. Raises InputError."""
    inner, eagle = (_object(config, name) for name in ("transformer_layer_config", "eagle_config"))
    out = {**config, **inner, "architectures": [CLASSES[0]]}
    for name in _FLAGS:
        value = config.get(name, eagle.get(name))
        if value is not None and not isinstance(value, bool):
            raise InputError(f"config.json: {name} is {value!r}", "it must be true or false", MEND)
        out[name] = value
    rope = out.get("rope_parameters") or out.get("rope_scaling")
    if isinstance(rope, Mapping) and "yarn" in (rope.get("rope_type"), rope.get("type")):
        out[BETA_FAST] = number(rope, "beta_fast") if rope.get("beta_fast") else 32.0
        rope = _one_factor(rope)
    out["rope_scaling"] = rope
    out.pop("rope_parameters", None)
    return out


def _object(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = config.get(name) or {}
    if not isinstance(value, Mapping):
        raise InputError(f"config.json: {name} is {value!r}", "it must be an object", MEND)
    return value


def _one_factor(rope: Mapping[str, Any]) -> dict[str, Any]:
    """YaRN's mscale pair, which Kimi's heads have, as the one factor that it means; no beta_fast.

    Formula: m(mscale) / m(mscale_all_dim), m(x) = 1 + 0.1 x ln(factor), in SpecForge and transformers.
    """
    rest = {name: value for name, value in rope.items() if name not in ("beta_fast", *_SCALES)}
    if rope.get("attention_factor") is not None or not any(rope.get(name) for name in _SCALES):
        return rest
    depth = 0.1 * math.log(max(number(rope, "factor"), 1.0))
    above, below = (1 + depth * (number(rope, name) if rope.get(name) else 0.0) for name in _SCALES)
    return {**rest, "attention_factor": above / below}


def canonical(name: str) -> str:
    """A tensor's name as vLLM's model has it: `layers.0.…` for `midlayer.…` and `model.layers.0.…`."""
    name = name.removeprefix("model.")
    if name.startswith("midlayer."):
        name = "layers.0." + name.removeprefix("midlayer.")
    return "d2t" if name == "draft_id_to_target_id" else name


def refuse(config: Mapping[str, Any], names: Iterable[str]) -> None:
    """Raises Unsupported for what llama.cpp's eagle3 lacks. `config` is flat, `names` are canonical."""
    names = list(names)
    layers = {name.split(".")[1] for name in names if name.startswith("layers.")}
    cases = [
        (
            config.get("num_hidden_layers") not in (None, 1) or layers - {"0"},
            "more than one layer",
            "it has one layer",
        ),
        (any(".self_attn.kv_a_proj" in name for name in names), "MLA attention", "its attention is Llama's"),
        (
            any(name.endswith((".q_norm.weight", ".k_norm.weight")) for name in names),
            "norms of q and k, as Qwen3 layers have",
            "its layer is Llama's",
        ),
        (any(name.endswith(".bias") for name in names), "biases", "its layer has none"),
        (
            bool(config.get("fc_norm")) or any(name.startswith("fc_norm") for name in names),
            "a norm for each of the three states (fc_norm)",
            "it has one norm over all three (norm_before_fc)",
        ),
        (
            bool(config.get("norm_output")),
            "norm_output: it was trained to read its own states after the last norm",
            "it feeds them back before that norm, so all drafted tokens but the first would be worse",
        ),
        (
            config.get("use_aux_hidden_state") is False,
            "use_aux_hidden_state false: it reads one state",
            "it reads three",
        ),
    ]
    for there, what, why in cases:
        if there:
            raise Unsupported(f"the EAGLE-3 head has {what}", f"llama.cpp's eagle3: {why}", _OTHER_ENGINE)


def target_layers(config: Mapping[str, Any], layer_ids: str, n_layer: int) -> tuple[int, ...]:
    """The states that the head reads, as llama.cpp counts: i is the input of layer i.

    `layer_ids`: one of LAYER_IDS, or three numbers that are taken as they are. `n_layer`: the target's, 0
    where it is unknown. Raises InputError.
    """
    ids, nested = _written(config)
    if layer_ids not in LAYER_IDS:
        found = _numbers(layer_ids)
        if list(found) != sorted(set(found)):
            raise InputError(
                f"--layer-ids {layer_ids} does not ascend",
                "the head's first matrix reads its states from the lowest layer to the highest",
                "give three numbers in order",
            )
    elif ids is None:
        found = _default(n_layer)
    else:
        outputs = layer_ids == "outputs" or (layer_ids == "auto" and nested and ids[0] == 1)
        found = tuple(i + outputs for i in ids)
        if layer_ids == "auto" and ids[0] == 1:
            log.warning(
                "the head's layer ids %s are taken as layers' %s, so llama.cpp reads %s: "
                "--layer-ids %s takes them the other way",
                _listed(ids),
                "outputs" if outputs else "inputs",
                _listed(found),
                "inputs" if outputs else "outputs",
            )
    if n_layer and max(found) > n_layer:
        raise InputError(
            f"the head reads layers {_listed(found)}",
            f"the target has {n_layer}",
            "give the target that the head was trained for, or other --layer-ids",
        )
    return found


def _written(config: Mapping[str, Any]) -> tuple[tuple[int, ...] | None, bool]:
    """The ids in config.json, and whether they stand in eagle_config, as SpecForge and SGLang have them."""
    eagle = _object(config, "eagle_config")
    for value, nested in (
        (config.get(_IDS), False),
        (eagle.get(_IDS), True),
        (eagle.get("layer_ids"), False),
    ):
        if value:
            good = isinstance(value, list) and all(type(i) is int and 0 <= i < 1 << 31 for i in value)
            if not good:
                raise InputError(f"config.json: {_IDS} is {value!r}", "it must be a list of layers", MEND)
            if len(value) != N_STATES:
                raise Unsupported(
                    f"the EAGLE-3 head reads {len(value)} states",
                    "llama.cpp's eagle3 reads three",
                    _OTHER_ENGINE,
                )
            return tuple(value), nested
    return None, False


def _default(n_layer: int) -> tuple[int, ...]:
    """EAGLE-3's own choice, in all trainers. Raises InputError where the target's depth is not known."""
    if not n_layer:
        raise InputError(
            "the layers that the head reads are not known",
            "its config.json does not name them, and the target does not say how many layers it has",
            "give the target's GGUF, or three numbers: --layer-ids 2,18,33",
        )
    found = (2, n_layer // 2, n_layer - 3)
    if min(found) < 0 or max(found) > n_layer:
        raise InputError(
            f"the target has {n_layer} layers",
            "an EAGLE-3 head whose config.json names no layers reads the third, the middle one and the last "
            "but two",
            "give three numbers: --layer-ids 0,1,2",
        )
    return found


def _numbers(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d{1,4}(,\d{1,4}){2}", text):
        raise InputError(
            f"--layer-ids {text!r} is unknown",
            f"it is one of {', '.join(LAYER_IDS)}, or three numbers such as 2,18,33",
            "give one of these",
        )
    return tuple(int(part) for part in text.split(","))


def _listed(ids: Iterable[int]) -> str:
    return ", ".join(str(i) for i in ids)
