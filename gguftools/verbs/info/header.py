"""Keys and tensor table of a header, summarised."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

from ...header import Header, StringArray, TensorInfo
from ...header.ggml_types import TENSOR_TYPES, ValueType
from ...libllama.devices import EXPERTS
from .results import Key, Plain, Tensors

SHOWN = 4  # elements of an array

_BLOCK = re.compile(r"blk\.(\d+)\.(.+)")
# The first that fits, of a tensor inside a block; the order is that of the table.
_IN_BLOCK = (
    ("shared experts", re.compile(r"ffn_\w*shexp")),
    ("routers", re.compile(r"ffn_gate_inp|exp_probs_b|ffn_exp_probs")),
    ("dense ffn", re.compile(r"ffn_|post_ffw|layer_out")),
    ("attention", re.compile(r"attn_|post_attention|indexer")),
    ("recurrent", re.compile(r"ssm_|shortconv|time_mix|channel_mix|mixer")),
)
_OUTSIDE = (
    ("embeddings", re.compile(r"token_embd|position_embd|token_types|per_layer_token_embd")),
    ("output", re.compile(r"output")),
)
GROUPS = (
    *("embeddings", "attention", "recurrent", "dense ffn", "experts", "shared experts", "routers", "output"),
    *("next-token heads", "other"),
)


def group_of(name: str, n_layers: int) -> str:
    """The group of a tensor. n_layers: of those that write text; what follows guesses further tokens."""
    match = _BLOCK.fullmatch(name)
    if match is None:
        return next((group for group, pattern in _OUTSIDE if pattern.match(name)), "other")
    if len(match[1]) > 6 or int(match[1]) >= n_layers:
        return "next-token heads"
    if re.search(EXPERTS, name):
        return "experts"
    return next((group for group, pattern in _IN_BLOCK if pattern.match(match[2])), "other")


def layer_of(name: str) -> int | None:
    """The block that a tensor belongs to."""
    match = _BLOCK.fullmatch(name)
    return int(match[1]) if match and len(match[1]) <= 6 else None


def main_layers(header: Header) -> int:
    """Blocks without those that guess further tokens (MTP), which llama.cpp loads only when asked to."""
    arch = header.get_plain("general.architecture")
    blocks, extra = (header.get_plain(f"{arch}.{key}") for key in ("block_count", "nextn_predict_layers"))
    if type(blocks) is not int or blocks < 1:
        return 1 << 20
    return blocks - extra if type(extra) is int and 0 < extra < blocks else blocks


def keys(header: Header) -> tuple[Key, ...]:
    """All keys in the file's order."""
    return tuple(_key(header, name) for name in header.keys)


def _key(header: Header, name: str) -> Key:
    value = header.keys[name]
    kind = ValueType(header.types[name]).name.lower()
    if isinstance(value, StringArray):
        return Key(name, kind, None, len(value), tuple(_text(text) for text in value[:SHOWN]))
    if isinstance(value, str | int | float):
        return Key(name, kind, _plain(value))
    return Key(name, kind, None, len(value), tuple(_plain(each) for each in value[:SHOWN].tolist()))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _plain(value: Any) -> Plain:
    """`value` as JSON can hold it."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    plain: Plain = value
    return plain


def by_type(tensors: Iterable[TensorInfo]) -> tuple[Tensors, ...]:
    """The most bytes first."""
    rows = _counted((TENSOR_TYPES[info.type].name, info) for info in tensors)
    return tuple(sorted(rows, key=lambda row: (-row.nbytes, row.name)))


def by_group(header: Header) -> tuple[Tensors, ...]:
    """In the order of GROUPS."""
    n_layers = main_layers(header)
    rows = _counted((group_of(info.name, n_layers), info) for info in header.tensors)
    return tuple(sorted(rows, key=lambda row: GROUPS.index(row.name)))


def _counted(named: Iterable[tuple[str, TensorInfo]]) -> list[Tensors]:
    sums: dict[str, list[int]] = {}
    for name, info in named:
        row = sums.setdefault(name, [0, 0, 0])
        for i, more in enumerate((1, math.prod(info.shape), info.nbytes)):
            row[i] += more
    return [Tensors(name, *row) for name, row in sums.items()]
