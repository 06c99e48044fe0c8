"""A plan in words: why it is as it is, and what limits it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...session.fit import MAX_CTX
from .arrange import Models, copies, copy_bytes
from .placement import Found, find
from .results import Place
from .rooms import Rooms, gib
from .shape import Shape


def too_big(target: Shape, draft: Shape) -> str:
    share = draft.active / max(1, target.active)
    return (
        f"A token of the draft reads {gib(draft.active)}, {share:.0%} of the target's {gib(target.active)}: "
        "above a quarter a draft hardly pays. gguftools bench measures it; "
        "gguftools check TARGET DRAFT... compares others."
    )


def why(models: Models, found: Found, rooms: Rooms, places: Sequence[Place]) -> tuple[str, ...]:
    """One line per decision."""
    draft, target = _draft(models, found, rooms, places), _target(models, found)
    return (*draft, *target, *_copies(models, found, rooms, places))


def _draft(models: Models, found: Found, rooms: Rooms, places: Sequence[Place]) -> Iterator[str]:
    if models.draft is None:
        return
    gpu = found.choice.draft_gpu
    if gpu is None:
        where = "no GPU holds it" if rooms.gpus else "there is no GPU"
        yield f"The draft is in main memory ({gib(places[-1].draft)}): {where}."
        return
    size = gib(places[gpu].draft)
    yield f"The draft is wholly on {rooms.gpus[gpu].name} ({size}): each drafted token reads all of it."
    other = find(replace(models, draft=None), rooms, found.choice.n_ctx)
    if other is None:
        return
    n_layers = len(models.target.layers)
    layers = min(other.choice.gpu_layers, n_layers + 1) - found.choice.gpu_layers
    experts = found.choice.n_cpu_moe - other.choice.n_cpu_moe
    if layers > 0:
        yield f"Without it {layers} more layers of the target would be on a GPU."
    elif experts > 0 and not layers:
        yield f"Without it the experts of {experts} more layers would be on a GPU."


def _target(models: Models, found: Found) -> Iterator[str]:
    n, choice = len(models.target.layers), found.choice
    if found.level == "gpu":
        yield "All of the target is on GPUs, its cache too."
    elif found.level == "experts":
        used, of = models.target.widths.experts_used, models.target.widths.experts
        yield (
            "Attention, dense layers, shared experts, the output and the cache are on GPUs: every token "
            f"reads them. Of the {of} experts of a layer it reads {used}, so they are what may stay in main "
            f"memory: {_of_layers(choice.n_cpu_moe, n)}."
        )
    elif found.level == "layers":
        yield (
            f"The last {choice.gpu_layers - 1} of {n} layers and the output are on GPUs, each with its "
            "cache; the layers before them are in main memory and are computed by the CPU."
        )
        if choice.n_cpu_moe:
            yield f"Of experts, {_of_layers(choice.n_cpu_moe, n)} are in main memory."
    else:
        yield "All of the target is in main memory."


def _of_layers(count: int, n: int) -> str:
    return "those of all layers" if count >= n else f"those of the layers 0 to {count - 1}"


def _copies(models: Models, found: Found, rooms: Rooms, places: Sequence[Place]) -> Iterator[str]:
    count = copies(models, found.choice, places[0].layers)
    nbytes = count * copy_bytes(models, found.choice)
    if nbytes > 256 << 20:
        what = "a copy of one tensor" if count == 1 else "copies of two tensors"
        yield (
            f"{gib(nbytes)} on {rooms.gpus[0].name} are for {what} at a time, by which prompts are computed "
            "there; llama-server --no-op-offload does without, with slower prompts."
        )


def limits(
    models: Models,
    found: Found,
    rooms: Rooms,
    places: Sequence[Place],
    room: int,
    missing: int,
    asked: int | None,
) -> Iterator[str]:
    """What would have to be larger for a better plan."""
    choice = found.choice
    if missing:
        yield from _missing(models, found, rooms, missing)
        return
    if found.level == "experts":
        yield from _next_experts(models, found, places)
    elif found.level == "layers":
        layer = max(models.target.layers, key=lambda layer: layer.nbytes - layer.experts)
        kept = layer.cache.nbytes(choice.n_ctx, models.types)
        yield f"A further layer needs {gib(layer.nbytes - layer.experts + kept)}; {_free(places)}."
    elif found.level == "cpu" and rooms.gpus:
        yield "The GPUs have no room for a layer of the target."
    trained = models.target.n_ctx_train
    if room > choice.n_ctx:
        yield f"With all else as it is, a context of {room:,} tokens fits."
    elif asked is None and choice.n_ctx < min(MAX_CTX, trained or MAX_CTX):
        yield f"The context is what the memory has room for; the model was trained on {trained:,} tokens."
    elif choice.n_ctx > trained > 0:
        yield f"The model was trained on {trained:,} tokens: past them its answers get worse."


def _next_experts(models: Models, found: Found, places: Sequence[Place]) -> Iterator[str]:
    held = [layer.experts for layer in models.target.layers[: found.choice.n_cpu_moe] if layer.experts]
    if held:
        yield f"The experts of one more layer need {gib(held[-1])}; {_free(places)}."


def _free(places: Sequence[Place]) -> str:
    free = [f"{gib(place.free)} on {place.name}" for place in places[:-1]]
    return f"{' and '.join(free)} are free"


def _missing(models: Models, found: Found, rooms: Rooms, missing: int) -> Iterator[str]:
    n_ctx = found.choice.n_ctx
    where = "main memory (or of GPUs)" if rooms.gpus else "main memory"
    yield f"Nothing fits: even with {n_ctx:,} tokens of context {gib(missing)} of {where} are missing."
    size = models.target.nbytes - missing
    if size > models.target.nbytes // 8:
        yield f"A file of this model of at most {gib(size)} would fit (a smaller quantization)."
    yield "llama.cpp would read what is missing from disk again and again: many times slower."
