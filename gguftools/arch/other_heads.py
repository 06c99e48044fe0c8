"""Heads of other kinds than EAGLE-3: each is named, with what can use it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from ..errors import Unsupported
from .eagle3_config import is_head

_ENGINES = "llama.cpp has no such architecture", "run it with vLLM or SGLang"
_UPSTREAM = "llama.cpp's convert_hf_to_gguf.py converts it with --target-model-dir"
_EAGLE = (r"E(agle|AGLE)|eagle", "an EAGLE-1 or EAGLE-2 head", *_ENGINES)
_MEDUSA = (r"[Mm]edusa", "a Medusa head", *_ENGINES)
_KINDS: tuple[tuple[str, str, str, str], ...] = (
    (r"P-?[Ee]agle|peagle", "a P-EAGLE head", *_ENGINES),
    (r"Eagle3|eagle3", "an EAGLE-3 head of another layer than Llama's", *_ENGINES),
    _EAGLE,
    (
        r"MTP|NextN|mtp",
        "a multi-token prediction (MTP, nextn) module",
        "llama.cpp reads it from the GGUF of its whole model",
        "convert the whole model with llama.cpp's convert_hf_to_gguf.py",
    ),
    _MEDUSA,
    (r"Hydra", "a Hydra head", *_ENGINES),
    (r"DFlash|DSpark|dflash|dspark", "a DFlash head", "gguftools knows EAGLE-3 heads only", _UPSTREAM),
    (r"MLPSpeculator|mlp_speculator", "an MLP speculator", *_ENGINES),
)


def refuse(config: Mapping[str, Any], names: Collection[str]) -> None:
    """Raises Unsupported for a head that is no EAGLE-3 head as `eagle3` knows it; `names`: its tensors."""
    named = _words(config)
    if is_head(config) and config.get("speculators_model_type") in (None, "eagle3"):
        return
    kind = next((row for row in _KINDS if re.search(row[0], " ".join(named))), None)
    if kind is None and "medusa_num_heads" in config:
        kind = _MEDUSA
    if kind is None and {"fc.weight", "layers.0.mlp.up_proj.weight"} <= set(names):
        kind = _EAGLE  # SafeAILab's call themselves LlamaForCausalLM
    if kind is not None:
        raise Unsupported(f"{named[0] or 'the checkpoint'} is {kind[1]}", *kind[2:])


def _words(config: Mapping[str, Any]) -> list[str]:
    """What the config calls itself: its class, then its kinds."""
    names = config.get("architectures")
    named = [str(names[0])] if isinstance(names, list) and names else [""]
    return named + [str(config[key]) for key in ("speculators_model_type", "model_type") if config.get(key)]
