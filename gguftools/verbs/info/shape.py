"""Shape: the numbers of a model that its place in memory depends on, read from the header, layer by layer."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ...errors import FormatError, Unsupported
from ...header import Header, TensorInfo
from ...libllama.devices import EXPERTS
from .caches import ROLLBACK, Cache, is_latent, notes, of_layers, widths
from .header import group_of, layer_of, main_layers
from .numbers import Numbers

MAX_LAYERS = 512  # llama.cpp's own limit
_DRAFT_HEADS = ("eagle3", "dflash")  # have no embedding of their own where it is the target's


@dataclass(frozen=True, slots=True)
class Layer:
    """Weights in bytes: all of the layer, of them its routed experts; the largest tensor of either kind."""

    nbytes: int
    experts: int
    largest: int
    largest_expert: int
    cache: Cache


@dataclass(frozen=True, slots=True)
class Widths:
    """What the size of a computation depends on, in elements; the largest of all layers."""

    n_embd: int
    n_vocab: int
    n_ff: int  # of dense layers
    n_ff_expert: int
    experts: int
    experts_used: int
    heads: int
    heads_kv: int
    key: int
    value: int  # of a latent cache too: what attention gives per head before it is expanded
    latent: bool


@dataclass(frozen=True, slots=True)
class Shape:
    """One model. `layers` has the next-token heads too, empty: llama.cpp counts them and loads none."""

    architecture: str
    n_ctx_train: int
    widths: Widths
    layers: tuple[Layer, ...]
    embeddings: int  # bytes; they stay in main memory
    output: int
    shared: int  # bytes of the embedding where it serves as the output's weights: a second copy on a GPU
    rollback: bool  # recurrent layers keep earlier states for drafts that are rejected
    notes: tuple[str, ...]

    @property
    def is_moe(self) -> bool:
        return any(layer.experts for layer in self.layers)

    @property
    def nbytes(self) -> int:
        """Of all weights that are loaded, without a second copy."""
        return self.embeddings + self.output + sum(layer.nbytes for layer in self.layers)

    @property
    def active(self) -> int:
        """Bytes of weights that one token reads."""
        used, of = self.widths.experts_used, max(1, self.widths.experts)
        experts = sum(layer.experts for layer in self.layers)
        rest = sum(layer.nbytes for layer in self.layers) - experts
        return self.output + self.shared + rest + experts * min(used, of) // of


def shape_of(header: Header) -> Shape:
    """Raises Unsupported for what is no language model, FormatError for numbers that cannot be."""
    numbers = Numbers(header)
    if not any(layer_of(info.name) is not None for info in header.tensors):
        raise Unsupported(f"{header.path}: no layers", "it is no language model, or its vocabulary alone")
    n_layers = numbers.one("block_count")
    if not 0 < n_layers <= MAX_LAYERS:
        raise FormatError(header.path, None, f"it has {n_layers:,} layers: llama.cpp takes 1 to {MAX_LAYERS}")
    n_main = min(main_layers(header), n_layers)
    rows = of_layers(numbers, n_layers)
    weights: list[list[TensorInfo]] = [[] for _ in range(n_layers)]
    outside: dict[str, list[TensorInfo]] = {"embeddings": [], "output": [], "other": []}
    for info in header.tensors:
        i, group = layer_of(info.name), group_of(info.name, n_main)
        if i is None:
            outside["embeddings" if group == "embeddings" else "output"].append(info)
        elif i < n_main:
            weights[i].append(info)
    layers = (_layer(mine, rows[i] if i < n_main else Cache()) for i, mine in enumerate(weights))
    embeddings = _nbytes(outside["embeddings"])
    tied = numbers.architecture not in _DRAFT_HEADS and not _has(outside["output"], "output.weight")
    return Shape(
        numbers.architecture,
        numbers.one("context_length", high=1 << 31),
        _widths(numbers, header, n_layers),
        tuple(layers),
        embeddings,
        _nbytes(outside["output"]),
        sum(info.nbytes for info in outside["embeddings"] if info.name == "token_embd.weight") if tied else 0,
        numbers.architecture in ROLLBACK,
        notes(numbers),
    )


def _has(tensors: Iterable[TensorInfo], name: str) -> bool:
    return any(info.name == name for info in tensors)


def _nbytes(tensors: Iterable[TensorInfo]) -> int:
    return sum(info.nbytes for info in tensors)


def _layer(tensors: list[TensorInfo], cache: Cache) -> Layer:
    experts = [info.nbytes for info in tensors if re.search(EXPERTS, info.name)]
    rest = [info.nbytes for info in tensors if not re.search(EXPERTS, info.name)]
    return Layer(sum(experts) + sum(rest), sum(experts), max(rest, default=0), max(experts, default=0), cache)


def _widths(numbers: Numbers, header: Header, n_layers: int) -> Widths:
    heads = max(numbers.each("attention.head_count", n_layers))
    key, value = widths(numbers, heads)
    latent = is_latent(numbers)
    if latent:
        value = numbers.one("attention.value_length", numbers.one("attention.kv_lora_rank"))
    rows = (t.shape[1] for t in header.tensors if t.name in _VOCABULARY_WIDE and len(t.shape) == 2)
    return Widths(
        numbers.one("embedding_length"),
        max(rows, default=0),
        max(numbers.each("feed_forward_length", n_layers)),
        max(numbers.each("expert_feed_forward_length", n_layers)),
        numbers.one("expert_count"),
        max(numbers.each("expert_used_count", n_layers)),
        heads,
        max(numbers.each("attention.head_count_kv", n_layers, default=heads)),
        key,
        value,
        latent,
    )


_VOCABULARY_WIDE = ("token_embd.weight", "output.weight")
