"""The keys of a draft: what it is, the donor's architecture with what changes, the target's tokenizer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import InputError, Unsupported
from ...gguf_write import Key
from ...header import Header
from ...header.ggml_types import ValueType
from ...header.shards import local
from ..check.side import Side
from ..convert.general import size_label
from .donor import Donor

PREFIX = "gguftools.transplant."
_KEPT = ("license", "languages", "tags", "base_model.", "file_type", "quantization_version")
MAX_CONTEXT = (1 << 31) - 1


def target_name(target: Side) -> str:
    """What people call it: the GGUF's own name, or that of the folder or repo."""
    name = target.header.get_str("general.name", "") if target.header else ""
    path = local(target.name)
    if not name and path.exists():
        path = path.resolve()
        name = path.name if path.is_dir() or target.header else path.parent.name
    name = name or target.name.split(":")[0].split("/")[-1]
    return name.encode("utf-8", "replace").decode()


def own_keys(donor: Donor, target: Side, options: Mapping[str, Any], digests: Mapping[str, str]) -> list[Key]:
    """gguftools.transplant.*: donor, target, options as JSON, digest.*."""
    texts = {
        "donor": donor.name,
        "target": target_name(target),
        "options": json.dumps(options, sort_keys=True),
        **{f"digest.{name}": digest for name, digest in digests.items()},
    }
    return [(PREFIX + name, text, int(ValueType.STR)) for name, text in texts.items()]


def general_keys(donor: Donor, target: Side, arch: str, n_weights: int) -> list[Key]:
    """general.*: a name of its own, the donor's licence, and the donor as the base model where none is named.

    The donor's sampling is left out: a draft is sampled as its target is.
    """
    header = donor.header
    keys: list[Key] = [
        ("general.architecture", arch, ValueType.STR),
        ("general.type", "model", ValueType.STR),
        ("general.name", f"{target_name(target)} vocabulary on {donor.name}", ValueType.STR),
        ("general.size_label", size_label(n_weights), ValueType.STR),
    ]
    kept = tuple(f"general.{name}" for name in _KEPT)
    keys += [(key, value, header.types[key]) for key, value in header.keys.items() if key.startswith(kept)]
    if not any(key.startswith("general.base_model.") for key in header.keys):
        keys += [
            ("general.base_model.count", 1, ValueType.U32),
            ("general.base_model.0.name", donor.name, ValueType.STR),
        ]
        if by := header.get_str("general.organization", ""):
            keys.append(("general.base_model.0.organization", by, ValueType.STR))
    return keys


def arch_keys(
    donor: Donor, arch: str, n_tokens: int, layers: Sequence[int], context: int | None
) -> list[Key]:
    """The donor's own keys, as those of `arch`: for another vocabulary, some layers, another context length.

    Raises InputError, Unsupported.
    """
    header, prefix = donor.header, f"{donor.arch}."
    found = {
        key: (_of_layers(value, donor.n_layer, layers), header.types[key])
        for key, value in header.keys.items()
        if key.startswith(prefix)
    }
    found[prefix + "vocab_size"] = (n_tokens, ValueType.U32)
    found[prefix + "block_count"] = (len(layers), ValueType.U32)
    if context is not None:
        found |= {prefix + name: what for name, what in _context(donor, context).items()}
    return [(f"{arch}.{key.removeprefix(prefix)}", value, int(kind)) for key, (value, kind) in found.items()]


def tokenizer_keys(target: Side) -> list[Key]:
    """The target's tokenizer in full; of a GGUF also what a Vocab does not hold."""
    keys: list[Key] = [(key, value, int(kind)) for key, value, kind in target.vocab.gguf_keys()]
    if target.header is not None:
        known, types = {key for key, _, _ in keys}, target.header.types
        for key, value in target.header.keys.items():
            if key.startswith("tokenizer.ggml.") and key not in known:
                keys.append((key, value, types[key]))
    return keys


def parse_layers(text: str | None, n_layer: int) -> list[int]:
    """The layers that "0-13,22-23" names, all for None. Raises InputError.

    >>> parse_layers("0-2,5", 6)
    [0, 1, 2, 5]
    """
    if text is None:
        return list(range(n_layer))
    found: list[int] = []
    for part in map(str.strip, text.split(",")):
        match = re.fullmatch(r"(\d+)\s*(?:-\s*(\d+))?", part, re.ASCII)
        if not match:
            why = f"{_short(part)!r} is neither a number nor FIRST-LAST" if part else "a number is missing"
            raise _layers(text, why)
        # Ten digits are more than any donor has, and thousands are more than int() takes.
        first, last = (int(number.lstrip("0")[:10] or 0) for number in (match[1], match[2] or match[1]))
        if max(first, last) >= n_layer:
            raise _layers(text, f"the donor's layers are 0 to {n_layer - 1}")
        if last < first:
            raise _layers(text, f"{first}-{last} ends before it begins")
        found += range(first, last + 1)
    if len(set(found)) < len(found):
        twice = next(layer for layer in found if found.count(layer) > 1)
        raise _layers(text, f"layer {twice} is there twice")
    return found


def _layers(text: str, why: str) -> InputError:
    return InputError(f"layers {_short(text)!r} cannot be kept", why, "give them as 0-13,22-23")


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}…"


def _of_layers(value: Any, n_layer: int, layers: Sequence[int]) -> Any:
    """Arrays with a number for each layer lose those of the layers that go."""
    if isinstance(value, np.ndarray) and len(value) == n_layer:
        return value[list(layers)]
    return value


def _context(donor: Donor, wanted: int) -> dict[str, tuple[Any, int]]:
    """The keys that make llama.cpp use `wanted` positions. No more than the donor has: its length alone.

    More: YaRN, factor wanted / original, which llama.cpp reads from rope.scaling.* (llama-model.cpp,
    load_hparams; its attention factor follows from the factor). Raises InputError, Unsupported.
    """
    header, prefix, own = donor.header, f"{donor.arch}.rope.scaling.", donor.context_length
    if not 0 < wanted <= MAX_CONTEXT:
        raise InputError(f"context is {wanted}", f"it takes a number from 1 to {MAX_CONTEXT:,}")
    kind = header.get_str(prefix + "type", "")
    original = header.get_int(prefix + "original_context_length", own)
    length = {"context_length": (wanted, ValueType.U32)}
    if wanted <= own:
        kept = {"rope.scaling.original_context_length": (original, ValueType.U32)} if kind == "yarn" else {}
        return {**length, **kept}
    _can_stretch(header, donor.arch, kind, donor.shown)
    return {
        **length,
        "rope.scaling.type": ("yarn", ValueType.STR),
        "rope.scaling.factor": (wanted / original, ValueType.F32),
        "rope.scaling.original_context_length": (original, ValueType.U32),
    }


def _can_stretch(header: Header, arch: str, kind: str, name: str) -> None:
    """Raises Unsupported where the donor scales its positions in a way that YaRN does not go on from."""
    scaling = f"{arch}.rope.scaling."
    factor = header.get_float(scaling + "factor", header.get_float(f"{arch}.rope.scale_linear", 0.0))
    own = [key for key in (scaling + "attn_factor", scaling + "yarn_log_multiplier") if key in header.keys]
    if any(info.name == "rope_freqs.weight" for info in header.tensors):
        why = "it stretches its positions itself, by rope_freqs.weight (Llama 3's way)"
    elif kind == "yarn" and own:
        why = f"it has YaRN with {own[0]}, which holds for its own factor alone"
    elif kind not in ("", "none", "linear", "yarn"):
        why = f"it scales its positions by {kind}"
    elif kind in ("", "linear") and factor not in (0.0, 1.0):
        why = f"it scales its positions by {factor:g}"
    else:
        return
    raise Unsupported(
        f"{name} cannot have a longer context", why, "leave out --context, or choose another donor"
    )
