"""What `info` returns. Sizes are in bytes; to_json() gives the fields under their names (docs/info.md)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

Plain = str | int | float | bool


@dataclass(frozen=True, slots=True)
class File:
    """One shard."""

    name: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class Key:
    """A key of the header. Of an array `value` is None, `count` its length, `first` its first elements."""

    name: str
    type: str  # as "u32" or "str"; of an array its elements'
    value: Plain | None
    count: int | None = None
    first: tuple[Plain, ...] = ()


@dataclass(frozen=True, slots=True)
class Tensors:
    """Some tensors, counted together: those of one type or of one group."""

    name: str
    count: int
    elements: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """`family` is None where nothing is known of it; `identical`: its ordinary tokens are the family's."""

    model: str
    pre: str
    n_tokens: int
    n_merges: int
    special: dict[str, int]
    digest_ordinary: str
    digest_tokens: str
    digest_merges: str
    family: str | None
    identical: bool
    words: str


@dataclass(frozen=True, slots=True)
class Template:
    """A chat template: the family whose format it writes; fault: why it cannot be rendered ("": it can)."""

    name: str
    characters: int
    family: str | None
    fault: str


@dataclass(frozen=True, slots=True)
class Memory:
    """What a model takes in one place, without a GPU, at `n_ctx` tokens.

    weights: of the tensors that are loaded. cache: keys and values of the context as gguftools makes it;
    cache_window: where layers with a sliding window keep no more than it, as llama-server does by default.
    state: what recurrent layers keep, whatever the context. compute: an estimate for gguftools;
    compute_server: for llama-server, which has room for the logits of a whole batch.
    """

    n_ctx: int
    cache_type_k: str
    cache_type_v: str
    weights: int
    cache: int
    cache_window: int
    state: int
    compute: int
    compute_server: int
    total: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """One GPU or the main memory, and what a plan puts there. `reserve` is left to the driver or system."""

    name: str
    memory: int
    reserve: int
    weights: int
    cache: int
    compute: int
    draft: int
    layers: int  # of the target; on GPUs the output counts as one more, as llama.cpp counts

    @property
    def used(self) -> int:
        return self.weights + self.cache + self.compute + self.draft

    @property
    def free(self) -> int:
        return self.memory - self.reserve - self.used


@dataclass(frozen=True, slots=True)
class Command:
    """A command line for one program; `note` says what is particular about it."""

    program: str
    line: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """Where the models can live together. Where nothing fits, `fits` is False, `missing` says by how much.

    level: "gpu" (all of the target), "experts" (experts in main memory), "layers" (whole layers in main
    memory), "cpu" (all of it). gpu_layers as llama.cpp counts: the last layers and the output.
    n_cpu_moe: the experts of the first N layers are in main memory. draft_place: a place's name.
    n_ctx_room: the context that would fit with everything else as it is.
    """

    fits: bool
    level: str
    n_ctx: int
    n_ctx_room: int
    gpu_layers: int
    n_layers: int
    n_cpu_moe: int
    tensor_split: tuple[int, ...]
    draft: str | None
    draft_place: str | None
    draft_n_ctx: int
    draft_verdict: str | None
    places: tuple[Place, ...]
    missing: int
    why: tuple[str, ...]
    limits: tuple[str, ...]
    commands: tuple[Command, ...]


@dataclass(frozen=True, slots=True)
class Info:
    """A GGUF as its header tells it. `memory` is None where it is no model that runs, `unknown` says why."""

    name: str
    path: Path
    architecture: str
    title: str
    version: int
    files: tuple[File, ...]
    nbytes: int
    n_elements: int
    bits_per_weight: float
    keys: tuple[Key, ...]
    types: tuple[Tensors, ...]
    groups: tuple[Tensors, ...]
    vocabulary: Vocabulary | None
    templates: tuple[Template, ...]
    memory: Memory | None
    unknown: str
    plan: Plan | None

    def to_json(self) -> dict[str, Any]:
        """The fields by name; a place also says what is `used` and `free`."""
        fields = {**asdict(self), "path": str(self.path)}
        if self.plan is not None:
            for place, row in zip(self.plan.places, fields["plan"]["places"], strict=True):
                row |= {"used": place.used, "free": place.free}
        return fields
