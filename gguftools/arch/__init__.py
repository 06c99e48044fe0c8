"""Architectures: a module each with NAME, CLASSES, keys, slots and config; here the right one is found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ..errors import Unsupported
from ..gguf_write import Key
from ..header import Header
from . import deepseek2, eagle3, gemma3, llama, qwen2, qwen3, qwen3moe
from .nested import text_part
from .slot import Slot

__all__ = [
    "EXPORTED",
    "SUPPORTED",
    "Architecture",
    "class_name",
    "for_config",
    "for_header",
    "left_out",
    "plain_names",
    "text_part",
]


class Architecture(Protocol):
    """What a module of this folder offers."""

    @property
    def NAME(self) -> str: ...  # noqa: N802 - a module's constant
    @property
    def CLASSES(self) -> tuple[str, ...]: ...  # noqa: N802
    def keys(self, config: Mapping[str, Any]) -> list[Key]:
        """The GGUF keys that config.json decides. Raises InputError, Unsupported."""

    def slots(self, config: Mapping[str, Any]) -> list[Slot]:
        """Every tensor that the model must have, in the order of the GGUF."""

    # Optional: left_out(config) -> Mapping[str, str] and plain_name(name) -> str, see below.

    def config(self, header: Header) -> dict[str, Any]:
        """config.json of a GGUF, without the token ids. Raises InputError, Unsupported."""


SUPPORTED: tuple[Architecture, ...] = (llama, qwen2, qwen3, qwen3moe, gemma3, deepseek2, eagle3)
EXPORTED: tuple[Architecture, ...] = (llama, qwen2, qwen3)  # also the way back; a transplant's donors

# llama.cpp's names for what can be converted as a vocabulary alone.
_VOCAB_ONLY = {"KimiLinearForCausalLM": "kimi-linear"}

# What is not there for a class that people have beside those that can be converted.
_MISSING = {
    "KimiLinearForCausalLM": "delta attention (llama.cpp's kimi-linear) is not known here",
    "KimiK3ForConditionalGeneration": "delta attention and MXFP4 (llama.cpp's kimi-k3) are not known here",
    "DeepseekV2ForCausalLM": "DeepSeek-V2's choice of experts (llama.cpp's deepseek2) is not known here",
    "DeepseekV32ForCausalLM": "sparse attention's indexer (llama.cpp's deepseek32) is not known here",
    "GptOssForCausalLM": "attention sinks and MXFP4 (llama.cpp's gpt-oss) are not known here",
}


def for_config(config: Mapping[str, Any]) -> Architecture:
    """The architecture of a checkpoint. Raises Unsupported with the list of those that can be converted."""
    named = class_name(config)
    for arch in SUPPORTED:
        if named in arch.CLASSES:
            return arch
    known = ", ".join(name for arch in SUPPORTED for name in arch.CLASSES)
    lacks = _MISSING.get(named, "its tensor names and keys are not known here")
    raise Unsupported(
        f"{named or 'a checkpoint without architectures in config.json'} cannot be converted",
        f"{lacks}; supported are {known}",
        "llama.cpp's convert_hf_to_gguf.py knows more; --vocab-only takes any architecture",
    )


def for_header(header: Header) -> Architecture:
    """The architecture of a GGUF. Raises Unsupported with the list of those that can be exported."""
    for arch in EXPORTED:
        if header.architecture == arch.NAME:
            return arch
    known = ", ".join(arch.NAME for arch in EXPORTED)
    raise Unsupported(
        f"{header.path} has the architecture {header.architecture}",
        f"exported are {known}",
        "export is for the dense families; others keep their GGUF",
    )


def left_out(config: Mapping[str, Any]) -> Mapping[str, str]:
    """Beginnings of tensor names → what these tensors are, of those that are not converted on purpose."""
    find = getattr(for_config(config), "left_out", None)
    return find(config) if find else {}


def plain_names(config: Mapping[str, Any]) -> Callable[[str], str]:
    """What turns a tensor's name in the checkpoint into that of the slots, where one class has several."""
    found: Callable[[str], str] = getattr(for_config(config), "plain_name", str)
    return found


def vocab_only_name(config: Mapping[str, Any], fallback: str) -> str:
    """general.architecture of a file without tensors; `fallback` for a class that is not known here."""
    named = class_name(config)
    known = {name: arch.NAME for arch in SUPPORTED for name in arch.CLASSES} | _VOCAB_ONLY
    return known.get(named, fallback)


def class_name(config: Mapping[str, Any]) -> str:
    """The first of config.json's architectures, or ""."""
    names = config.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else ""
