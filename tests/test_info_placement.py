"""Where models can live: what every plan keeps to, whatever the model and the memory."""

from __future__ import annotations

from functools import cache

import pytest
import shapes
from hypothesis import given, settings
from hypothesis import strategies as st

from gguftools.session.model import DRAFT_N_CTX
from gguftools.verbs.info import arrange, placement, planning
from gguftools.verbs.info.arrange import Choice, Models
from gguftools.verbs.info.placement import Found
from gguftools.verbs.info.rooms import GPU_RESERVE, Room, Rooms, rooms
from gguftools.verbs.info.shape import Shape, shape_of

GIB = 1 << 30
F16 = ("f16", "f16")
LEVELS = ("gpu", "experts", "layers", "cpu")

SIZES = st.integers(0, 120).map(lambda n: n * GIB)
MODELS = st.sampled_from(sorted(shapes.ALL))
DRAFTS = st.sampled_from([None, "smollm2", "qwen3-30b-a3b"])
CONTEXTS = st.sampled_from([None, None, 512, 5000, 32_768, 131_072])
SEARCH = settings(max_examples=120, deadline=None)


@cache
def shape(name: str) -> Shape:
    return shape_of(shapes.ALL[name]().header())


def models(target: str, draft: str | None = None) -> Models:
    return Models(shape(target), shape(draft) if draft else None, F16, F16, 4096, draft is not None)


def space(vram: list[int], ram: int) -> Rooms:
    return rooms(vram, ram)


def find(
    target: str, vram: list[int], ram: int, draft: str | None = None, n_ctx: int | None = None
) -> Found | None:
    return placement.find(models(target, draft), space(vram, ram), n_ctx)


def rank(found: Found, n_ctx: int | None) -> tuple[float, ...]:
    """Smaller is better: the order in which decisions are preferred."""
    choice = found.choice
    short = 0 if n_ctx else [choice.n_ctx >= low for low in (*placement.FEW_CTX[:-1], 0)].index(True)
    moved = choice.n_cpu_moe if found.level == "experts" else 0
    last = {
        "gpu": -choice.n_ctx,
        "experts": -choice.n_ctx,
        "layers": -choice.gpu_layers,
        "cpu": -choice.n_ctx,
    }
    return (short, choice.draft_gpu is None, LEVELS.index(found.level), last[found.level], moved)


@SEARCH
@given(MODELS, st.lists(st.floats(0, 1.5), max_size=3), st.integers(2, 1200), DRAFTS, CONTEXTS)
def test_a_plan_never_exceeds_what_there_is(
    target: str, vram: list[float], ram: int, draft: str | None, n_ctx: int | None
) -> None:
    size = min(shape(target).nbytes, 60 * GIB)  # what is near the model's own size is where it matters
    there = space([int(share * size / len(vram)) + GPU_RESERVE for share in vram], ram * GIB)
    found = placement.find(models(target, draft), there, n_ctx)
    if found is None:
        return
    places = arrange.places(models(target, draft), found.choice, there)
    assert [place.name for place in places] == [room.name for room in (*there.gpus, there.main)]
    for place in places:
        assert 0 <= place.used <= max(0, place.memory - place.reserve), place
        assert place.free >= 0
    layers = len(shape(target).layers)
    assert sum(place.layers for place in places) == layers + (found.choice.gpu_layers > 0)
    assert n_ctx is None or found.choice.n_ctx == n_ctx
    assert 0 <= found.choice.n_cpu_moe <= layers


@SEARCH
@given(MODELS, SIZES, SIZES, st.integers(2, 1200), st.integers(0, 600), DRAFTS, CONTEXTS)
def test_more_memory_never_makes_a_plan_worse(
    target: str, vram: int, more: int, ram: int, more_ram: int, draft: str | None, n_ctx: int | None
) -> None:
    few = find(target, [vram], ram * GIB, draft, n_ctx)
    many = find(target, [vram + more], (ram + more_ram) * GIB, draft, n_ctx)
    if few is not None:
        assert many is not None
        if vram:  # a first GPU is another matter: the draft goes there before anything else
            assert rank(many, n_ctx) <= rank(few, n_ctx)


@settings(max_examples=60, deadline=None)
@given(MODELS, st.lists(SIZES, min_size=2, max_size=3), st.data(), st.integers(2, 1200), CONTEXTS)
def test_nor_does_a_larger_one_of_several_gpus(
    target: str, vram: list[int], data: st.DataObject, ram: int, n_ctx: int | None
) -> None:
    i = data.draw(st.integers(0, len(vram) - 1))
    larger = [n + (20 * GIB if j == i and n else 0) for j, n in enumerate(vram)]
    few, many = (find(target, sizes, ram * GIB, None, n_ctx) for sizes in (vram, larger))
    if few is not None:
        assert many is not None
        assert LEVELS.index(many.level) <= LEVELS.index(few.level)


@settings(max_examples=40, deadline=None)
@given(MODELS, st.lists(SIZES, max_size=3), st.integers(2, 1200), DRAFTS, CONTEXTS)
def test_equal_inputs_give_equal_plans(
    target: str, vram: list[int], ram: int, draft: str | None, n_ctx: int | None
) -> None:
    assert find(target, vram, ram * GIB, draft, n_ctx) == find(target, vram, ram * GIB, draft, n_ctx)


@SEARCH
@given(MODELS, st.lists(SIZES, max_size=2), st.integers(1, 700), DRAFTS)
def test_what_is_missing_is_enough_when_it_is_there(
    target: str, vram: list[int], ram: int, draft: str | None
) -> None:
    ours, there = models(target, draft), space(vram, ram * GIB)
    if placement.find(ours, there, None) is not None:
        return
    _, missing = placement.least(ours, there, None)
    assert missing > 0
    assert placement.find(ours, space(vram, ram * GIB + missing), None) is not None


@SEARCH
@given(MODELS, SIZES, st.integers(2, 1200))
def test_of_experts_no_more_than_needed_are_in_main_memory(target: str, vram: int, ram: int) -> None:
    there = space([vram], ram * GIB)
    found = placement.find(models(target), there, None)
    if found is None or not found.choice.n_cpu_moe:
        return
    choice = found.choice
    fewer = Choice(choice.n_ctx, choice.gpu_layers, choice.n_cpu_moe - 1, None, choice.draft_n_ctx)
    assert arrange.on_gpus(models(target), fewer, there.gpus) is None


def test_a_card_of_24_gib_takes_all_of_kimi_but_experts_and_the_draft() -> None:
    found = find("kimi-k2", [24 * GIB], 1024 * GIB, "smollm2")
    assert found is not None
    assert (found.level, found.choice.gpu_layers, found.choice.draft_gpu) == ("experts", 62, 0)
    assert found.choice.n_cpu_moe == 61
    there = space([24 * GIB], 1024 * GIB)
    gpu, main = arrange.places(models("kimi-k2", "smollm2"), found.choice, there)
    copied = max(layer.largest_expert for layer in shape("kimi-k2").layers)
    assert gpu.compute > copied == 384 * 2048 * 7168 * 144 // 256  # prompts: one tensor of experts at a time
    assert main.weights == pytest.approx(sum(layer.experts for layer in shape("kimi-k2").layers), rel=0.01)


def test_what_fits_whole_is_on_the_gpu_whole() -> None:
    for name, vram in (("smollm2", 4), ("qwen3-30b-a3b", 24), ("gemma3-27b", 24), ("llama-70b", 80)):
        found = find(name, [vram * GIB], 64 * GIB)
        assert found is not None
        assert (found.level, found.choice.n_cpu_moe) == ("gpu", 0), name


def test_a_draft_goes_to_the_gpu_before_the_target() -> None:
    found = find("llama-70b", [12 * GIB], 64 * GIB, "smollm2")
    assert found is not None
    assert (found.level, found.choice.draft_gpu) == ("layers", 0)
    too_small = find("llama-70b", [GPU_RESERVE + 1000], 64 * GIB, "smollm2")
    assert too_small is not None
    assert (too_small.level, too_small.choice.draft_gpu) == ("cpu", None)


def test_two_gpus_are_filled_alike_and_hold_what_one_cannot() -> None:
    there = space([24 * GIB, 24 * GIB], 64 * GIB)
    found = placement.find(models("llama-70b"), there, 8192)
    assert found is not None
    assert find("llama-70b", [24 * GIB], 64 * GIB, None, 8192).level == "layers"  # type: ignore[union-attr]
    first, second, _ = arrange.places(models("llama-70b"), found.choice, there)
    assert found.level == "gpu"
    assert abs(first.used - second.used) < 3 * GIB
    assert first.layers + second.layers == 81


def test_experts_of_a_later_gpu_s_layers_cost_the_first_one_two_copies() -> None:
    kimi = shape("kimi-k2")
    choice = Choice(8192, 62, 61, None, 4096)
    a_copy = arrange.copy_bytes(models("kimi-k2"), choice)
    few, many = (
        arrange.on_gpus(models("kimi-k2"), choice, space([gib * GIB, 48 * GIB], 1 << 50).gpus)
        for gib in (9, 40)
    )
    assert few is not None
    assert many is not None
    assert many[0].layers == len(kimi.layers) + 1
    assert few[0].compute - many[0].compute > 0.9 * a_copy


def test_without_a_gpu_everything_is_in_main_memory() -> None:
    found = find("qwen3-30b-a3b", [], 64 * GIB, "smollm2")
    assert found is not None
    assert (found.level, found.choice.gpu_layers, found.choice.draft_gpu) == ("cpu", 0, None)


def test_the_draft_s_window_is_that_of_the_session() -> None:
    assert planning.DRAFT_WINDOW == DRAFT_N_CTX


def test_room_for_a_longer_context_is_room() -> None:
    there = Rooms((Room("GPU 0", "CUDA0", 24 * GIB, GPU_RESERVE),), Room("main memory", "", 512 * GIB, 0))
    ours = models("deepseek-v3")
    found = placement.find(ours, there, 4096)
    assert found is not None
    most = placement.room_for_ctx(ours, there, found.choice)
    assert most > 4096
    longer = Choice(most, found.choice.gpu_layers, found.choice.n_cpu_moe, None, 4096)
    assert arrange.fits(ours, longer, there)
    assert not arrange.fits(ours, Choice(most + 256, 62, found.choice.n_cpu_moe, None, 4096), there)


@given(st.integers(0, 300), st.integers(0, 300), st.integers(0, 300))
def test_bisection_finds_the_edge(a: int, b: int, edge: int) -> None:
    low, high = sorted((a, b))
    if low <= edge:
        assert placement.largest(lambda n: n <= edge, low, high) == min(edge, high)
    if high >= edge:
        assert placement.smallest(lambda n: n >= edge, low, high) == max(edge, low)
