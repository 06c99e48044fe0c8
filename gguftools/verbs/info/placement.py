"""The search for a place: the first decision that fits, of all in the order of preference.

1. The draft wholly on a GPU, else in main memory.
2. All of the target on GPUs; else, of a mixture of experts, all but experts, and as many of these as fit;
   else as many layers as fit; else none.
3. The longest context up to what gguftools makes by itself; below FEW_CTX only where nothing else fits.

Each step's need grows with what is asked, so bisection finds the best, more memory never makes it worse, and
equal inputs give equal plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from ...session.fit import MAX_CTX, STEP
from .arrange import Choice, Models, fits, in_main, on_gpus
from .rooms import Room, Rooms

Level = Literal["gpu", "experts", "layers", "cpu"]
FEW_CTX = (8192, 2048, 512)

_ENDLESS = 1 << 62


@dataclass(frozen=True, slots=True)
class Found:
    """A decision, and which step of the order of preference it is."""

    level: Level
    choice: Choice


@dataclass(frozen=True, slots=True)
class _Search:
    models: Models
    rooms: Rooms
    low: int
    high: int

    def choice(self, n_ctx: int, layers: int, moe: int, gpu: int | None) -> Choice:
        return Choice(n_ctx, layers, moe, gpu, min(n_ctx, self.models.draft_window))

    def fits(self, *decision: int | None) -> bool:
        return fits(self.models, self.choice(*decision), self.rooms)  # type: ignore[arg-type]

    @property
    def n_layers(self) -> int:
        return len(self.models.target.layers)

    def experts(self, n_ctx: int, layers: int, gpu: int | None) -> int | None:
        """The fewest layers whose experts must be in main memory for the GPUs to hold the rest."""

        def held(moe: int) -> bool:
            return on_gpus(self.models, self.choice(n_ctx, layers, moe, gpu), self.rooms.gpus) is not None

        most = self.n_layers if self.models.target.is_moe else 0
        if held(0):
            return 0
        if len(self.rooms.gpus) > 1:  # where layers end up decides about copies, too: no bisection
            return next((moe for moe in range(1, most + 1) if held(moe)), None)
        return smallest(held, 1, most) if most and held(most) else None

    def decided(self, n_ctx: int, layers: int, gpu: int | None) -> Choice | None:
        """With as few experts in main memory as GPUs allow, if main memory holds its part."""
        moe = self.experts(n_ctx, layers, gpu)
        if moe is None or not self.fits(n_ctx, layers, moe, gpu):
            return None
        return self.choice(n_ctx, layers, moe, gpu)


def find(models: Models, rooms: Rooms, n_ctx: int | None) -> Found | None:
    """The best that fits, or None. n_ctx None: as long as is good."""
    trained = models.target.n_ctx_train or MAX_CTX
    high = n_ctx or min(MAX_CTX, trained)
    lows = sorted({min(low, high) for low in FEW_CTX}, reverse=True) if n_ctx is None else [n_ctx]
    for low in lows:
        found = _first(_Search(models, rooms, low, high))
        if found is not None:
            return found
    return None


def _first(search: _Search) -> Found | None:
    steps: list[tuple[Level, Callable[[_Search, int | None], Choice | None]]] = [
        ("gpu", _all),
        ("experts", _all_but_experts),
        ("layers", _layers),
        ("cpu", _none),
    ]
    for gpus in _draft_places(search):
        for level, step in steps:
            found = next((choice for gpu in gpus if (choice := step(search, gpu))), None)
            if found is not None:
                return Found(level, found)
    return None


def _draft_places(search: _Search) -> Iterator[list[int | None]]:
    """The GPUs for the draft, the last first: the first one has copies of weights to hold. Then none."""
    numbers: list[int | None] = list(reversed(range(len(search.rooms.gpus))))
    if search.models.draft is not None and numbers:
        yield numbers
    yield [None]


def _all(search: _Search, gpu: int | None) -> Choice | None:
    if not search.rooms.gpus:
        return None
    layers = search.n_layers + 1
    n_ctx = largest_ctx(lambda n: search.fits(n, layers, 0, gpu), search.low, search.high)
    return None if n_ctx is None else search.choice(n_ctx, layers, 0, gpu)


def _all_but_experts(search: _Search, gpu: int | None) -> Choice | None:
    if not search.rooms.gpus or not search.models.target.is_moe:
        return None
    layers = search.n_layers + 1
    n_ctx = largest_ctx(lambda n: bool(search.decided(n, layers, gpu)), search.low, search.high)
    return None if n_ctx is None else search.decided(n_ctx, layers, gpu)


def _layers(search: _Search, gpu: int | None) -> Choice | None:
    if not search.rooms.gpus:
        return None

    def held(layers: int) -> bool:
        return search.experts(search.low, layers, gpu) is not None

    if not held(1):
        return None
    layers = largest(held, 1, search.n_layers)
    n_ctx = largest_ctx(lambda n: bool(search.decided(n, layers, gpu)), search.low, search.high)
    return None if n_ctx is None else search.decided(n_ctx, layers, gpu)


def _none(search: _Search, gpu: int | None) -> Choice | None:
    n_ctx = largest_ctx(lambda n: search.fits(n, 0, 0, gpu), search.low, search.high)
    return None if n_ctx is None else search.choice(n_ctx, 0, 0, gpu)


def largest_ctx(good: Callable[[int], bool], low: int, high: int) -> int | None:
    """The largest context that is good: `high`, or a multiple of STEP, or `low`; None where `low` is not."""
    if good(high):
        return high
    if low >= high or not good(low):
        return None
    steps = largest(lambda i: good(max(low, i * STEP)), low // STEP, high // STEP)
    return max(low, min(high, steps * STEP))


def largest(good: Callable[[int], bool], low: int, high: int) -> int:
    """The largest number from low to high that is good, `low` being so, and all below a good one."""
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if good(middle) else (low, middle - 1)
    return low


def smallest(good: Callable[[int], bool], low: int, high: int) -> int:
    """The smallest number from low to high that is good, `high` being so, and all above a good one."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if good(middle) else (middle + 1, high)
    return low


def room_for_ctx(models: Models, rooms: Rooms, choice: Choice) -> int:
    """The longest context that fits with the same placement, up to what the model was trained on."""

    def good(n_ctx: int) -> bool:
        return fits(models, replace(choice, n_ctx=n_ctx), rooms)

    return largest_ctx(good, choice.n_ctx, max(choice.n_ctx, models.target.n_ctx_train)) or choice.n_ctx


def same_ctx(models: Models, rooms: Rooms, choice: Choice) -> int:
    """The longest context that fits where the draft's is as long, as in llama-server; 0 where none does."""

    def good(n_ctx: int) -> bool:
        return fits(models, replace(choice, n_ctx=n_ctx, draft_n_ctx=n_ctx), rooms)

    return largest_ctx(good, min(512, choice.n_ctx), choice.n_ctx) or 0


def least(models: Models, rooms: Rooms, n_ctx: int | None) -> tuple[Found, int]:
    """Where nothing fits: the decision with the GPUs as full as can be, and the main memory it lacks."""
    endless = Rooms(rooms.gpus, Room("main memory", "", _ENDLESS, 0))
    smallest_ctx = n_ctx or min(FEW_CTX[-1], models.target.n_ctx_train or MAX_CTX)
    found = find(models, endless, smallest_ctx)
    if found is None:  # not even an empty GPU: the models are in main memory alone
        found = Found("cpu", Choice(smallest_ctx, 0, 0, None, min(smallest_ctx, models.draft_window)))
    needed = in_main(models, found.choice, rooms.gpus).total + rooms.main.reserve
    return found, max(0, needed - rooms.main.memory)
