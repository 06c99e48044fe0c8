"""What a decision about two models puts where, as llama.cpp places it, and whether it fits.

llama.cpp puts the last layers and the output on the GPUs, in their order; the embedding stays in main memory.
A layer's cache is where the layer is. Where weights of layers are in main memory, prompts are computed on the
first GPU all the same: it has room for a copy of the largest such tensor (ggml-backend.cpp, op_offload).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...session.engine import N_DRAFT_MAX
from .memory import COPIES, SERVER, alone, beside, cache_bytes, compute, state_bytes
from .results import Place
from .rooms import Room, Rooms
from .shape import Shape

_SHARES = 16  # in how many steps several GPUs are filled alike


@dataclass(frozen=True, slots=True)
class Models:
    """What is to be placed. draft_window: the draft's context, at most; drafts: whether anything drafts."""

    target: Shape
    draft: Shape | None
    types: tuple[str, str]
    draft_types: tuple[str, str]
    draft_window: int
    drafts: bool


@dataclass(frozen=True, slots=True)
class Choice:
    """A decision. gpu_layers counts the output; draft_gpu: a GPU's number, None for main memory."""

    n_ctx: int
    gpu_layers: int
    n_cpu_moe: int
    draft_gpu: int | None
    draft_n_ctx: int


@dataclass(slots=True)
class Load:
    """Bytes in one place, and how many layers."""

    weights: int = 0
    cache: int = 0
    compute: int = 0
    draft: int = 0
    layers: int = 0

    @property
    def total(self) -> int:
        return self.weights + self.cache + self.compute + self.draft


def fits(models: Models, choice: Choice, rooms: Rooms) -> bool:
    """Whether every place holds its part."""
    if in_main(models, choice, rooms.gpus).total > rooms.main.usable:
        return False
    return on_gpus(models, choice, rooms.gpus) is not None


def places(models: Models, choice: Choice, rooms: Rooms) -> tuple[Place, ...]:
    """GPUs first, then main memory. ValueError where a GPU cannot hold its part; main memory may be short."""
    loads = on_gpus(models, choice, rooms.gpus)
    if loads is None:
        raise ValueError("no room on the GPUs")
    if sum(load.layers > 0 for load in loads) > 1:  # filled alike: the smallest share that is enough
        shares = (on_gpus(models, choice, rooms.gpus, i / _SHARES) for i in range(1, _SHARES))
        loads = next((found for found in shares if found is not None), loads)
    pairs = zip((*rooms.gpus, rooms.main), (*loads, in_main(models, choice, rooms.gpus)), strict=True)
    return tuple(_place(room, load) for room, load in pairs)


def _place(room: Room, load: Load) -> Place:
    parts = (load.weights, load.cache, load.compute, load.draft, load.layers)
    return Place(room.name, room.memory, room.reserve, *parts)


def on_gpus(
    models: Models, choice: Choice, gpus: Sequence[Room], share: float = 1.0
) -> tuple[Load, ...] | None:
    """What each GPU holds, filled up to `share` of its room before the next; None: they cannot hold it."""
    loads = _filled(models, choice, gpus, share, 1)
    if loads and copies(models, choice, loads[0].layers) > 1:
        return _filled(models, choice, gpus, share, 2)
    return loads


def copies(models: Models, choice: Choice, on_first: int) -> int:
    """How many copied tensors the first GPU holds at once, having `on_first` layers.

    Two where a later GPU has layers with experts in main memory: their results then go to and fro.
    """
    after = first_layer(models, choice) + on_first
    return 1 + any(layer.experts for layer in models.target.layers[after : choice.n_cpu_moe])


def _filled(
    models: Models, choice: Choice, gpus: Sequence[Room], share: float, copied: int
) -> tuple[Load, ...] | None:
    """copied: how many tensors the first GPU has room to copy."""
    loads = _before_layers(models, choice, gpus, copied)
    if any(load.total > room.usable for load, room in zip(loads, gpus, strict=True)):
        return None
    limits = [
        load.total + int((room.usable - load.total) * share) for load, room in zip(loads, gpus, strict=True)
    ]
    plain, with_output = (
        compute(models.target, choice.n_ctx, rows, _batches(models, choice, gpus)) for rows in (0, SERVER)
    )
    g = 0
    parts = _parts(models, choice)
    for i, (weights, cache) in enumerate(parts):
        output = with_output - plain if i == len(parts) - 1 else 0
        while g < len(gpus):
            load = loads[g]
            begins = 0 if load.compute else plain
            if load.total + weights + cache + output + begins <= limits[g]:
                load.weights += weights
                load.cache += cache
                load.compute += output + begins
                load.layers += 1
                break
            g += 1
        else:
            return None
    return tuple(loads)


def first_layer(models: Models, choice: Choice) -> int:
    """The first layer on a GPU."""
    return min(len(models.target.layers), max(0, len(models.target.layers) + 1 - choice.gpu_layers))


def _parts(models: Models, choice: Choice) -> list[tuple[int, int]]:
    """(weights, cache) of each of the target's layers on GPUs, and of the output."""
    if not choice.gpu_layers:
        return []
    target, start = models.target, first_layer(models, choice)
    found = []
    for i, layer in enumerate(target.layers[start:], start):
        experts = layer.experts if i < choice.n_cpu_moe else 0
        found.append((layer.nbytes - experts, _kept(models, i, choice.n_ctx)))
    return [*found, (target.output + target.shared, 0)]


def _kept(models: Models, i: int, n_ctx: int) -> int:
    """What layer i keeps of the text."""
    cache = models.target.layers[i].cache
    rows = 1 + N_DRAFT_MAX if models.drafts and models.target.rollback else 1
    return cache.nbytes(n_ctx, models.types) + rows * cache.state


def _before_layers(models: Models, choice: Choice, gpus: Sequence[Room], copied: int) -> list[Load]:
    """What GPUs hold before any layer: the draft, and on the first the room to copy weights in."""
    loads = [Load() for _ in gpus]
    nbytes = copied * copy_bytes(models, choice)
    if gpus and nbytes:
        loads[0].compute = nbytes + compute(models.target, choice.n_ctx, 0)
    if models.draft is not None and choice.draft_gpu is not None:
        draft = models.draft
        weights = draft.nbytes - draft.embeddings + draft.shared
        computing = compute(draft, choice.draft_n_ctx, SERVER)
        loads[choice.draft_gpu].draft = weights + _draft_kept(models, choice) + computing
    return loads


def copy_bytes(models: Models, choice: Choice) -> int:
    """The largest tensor that may have to be copied to a GPU; 0 where no layer's are in main memory."""
    if not choice.gpu_layers:
        return 0
    layers = models.target.layers
    experts = max((layer.largest_expert for layer in layers), default=0)
    if first_layer(models, choice):
        return max(experts, max((layer.largest for layer in layers), default=0))
    return experts if any(layer.experts for layer in layers[: choice.n_cpu_moe]) else 0


def _batches(models: Models, choice: Choice, gpus: Sequence[Room]) -> int:
    """How many batches are worked on at once: several where several GPUs hold everything."""
    everything = not choice.n_cpu_moe and choice.gpu_layers > len(models.target.layers)
    return COPIES if len(gpus) > 1 and everything else 1


def _draft_kept(models: Models, choice: Choice) -> int:
    if models.draft is None:
        return 0
    kept = cache_bytes(models.draft, choice.draft_n_ctx, models.draft_types)
    return kept + state_bytes(models.draft, drafts=True)


def in_main(models: Models, choice: Choice, gpus: Sequence[Room]) -> Load:
    """What is in main memory."""
    target, start = models.target, first_layer(models, choice)
    if not choice.gpu_layers:
        start = len(target.layers)
    weights = target.embeddings + sum(layer.nbytes for layer in target.layers[:start])
    weights += sum(layer.experts for layer in target.layers[start : choice.n_cpu_moe])
    cache = sum(_kept(models, i, choice.n_ctx) for i in range(start))
    if choice.gpu_layers:
        computing = beside(target, choice.n_ctx, _batches(models, choice, gpus))
        computing += compute(target, choice.n_ctx, 0) if copy_bytes(models, choice) else 0
    else:
        weights += target.output
        computing = alone(target, choice.n_ctx, SERVER)
    return Load(weights, cache, computing, _draft_in_main(models, choice), start)


def _draft_in_main(models: Models, choice: Choice) -> int:
    draft, n_ctx = models.draft, choice.draft_n_ctx
    if draft is None:
        return 0
    if choice.draft_gpu is not None:
        return draft.embeddings + beside(draft, n_ctx)
    return draft.nbytes + _draft_kept(models, choice) + alone(draft, n_ctx, SERVER)
