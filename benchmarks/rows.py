"""Microseconds for one row of logits: selection in csrc beside libllama's samplers.

    python benchmarks/rows.py [--n-vocab 163840] [--repeats 61]

Both choose one token from the same row, in turns; medians, and the median of their ratios. libllama's time
has the filling of its array in it, as llama_sampler_sample fills it once per token (here by one copy, which
is faster). Rows: peaked as a language model's mostly are (some forty likely tokens far above the rest), and
flat (normal, deviation 2).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gguftools import _native

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from candidates import Candidates, parts
from llama_api import Chain, low

Floats = NDArray[np.float32]
CHAINS: dict[str, dict[str, Any]] = {
    "all kept": {"temperature": 0.8},
    "top-k 40": {"temperature": 0.8, "top_k": 40},
    "top-k 40, top-p, min-p": {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05},
    "top-p 0.95": {"temperature": 0.8, "top_p": 0.95},
    "min-p 0.05": {"temperature": 0.8, "min_p": 0.05},
}
PENALTIES = (1.1, 0.1, 0.1)
WINDOW = 64


def rows(n: int) -> dict[str, Floats]:
    rng = np.random.default_rng(0)
    flat = rng.normal(0, 2, n).astype(np.float32)
    peaked = rng.normal(0, 2.5, n).astype(np.float32)
    peaked[rng.integers(0, n, 40)] += rng.uniform(8, 20, 40).astype(np.float32)
    return {"peaked": peaked, "flat": flat}


def theirs(row: Floats, samplers: list[Any]) -> tuple[Callable[[], object], Chain]:
    chain, some = Chain(*samplers), Candidates(row)
    full = some.data.copy()

    def choose() -> int:
        some.data[:] = full
        some.array.size, some.array.sorted, some.array.selected = len(row), False, -1
        low.llama_sampler_apply(chain.handle, some.pointer)
        return int(some.array.selected)

    return choose, chain


def chains(row: Floats) -> Iterator[tuple[str, Callable[[], object], list[Any] | None]]:
    """(name, ours, libllama's samplers for the same)."""
    n, position = len(row), count()
    yield "argmax, and its p", partial(_native.argmax, row), [low.llama_sampler_init_greedy()]
    for name, values in CHAINS.items():
        made = _native.Row(n, **values)
        yield name, lambda made=made: made.fill(row).draw(1, next(position)), parts(**values, dist=1)
    tokens = np.random.default_rng(1).integers(0, n, WINDOW).tolist()
    counts, made = _native.Counts(n, WINDOW), _native.Row(n, **CHAINS["top-k 40"])
    counts.begin(tokens)

    def penalised() -> None:
        counts.penalize(row, *PENALTIES)
        made.fill(row).draw(1, next(position))
        counts.unpenalize(row)

    first = low.llama_sampler_init_penalties(n, WINDOW, *PENALTIES)
    for token in tokens:
        low.llama_sampler_accept(first, token)
    yield "penalties, top-k 40", penalised, [first, *parts(**CHAINS["top-k 40"], dist=1)]
    whole = _native.Row(n, temperature=0.8)
    yield "all kept, and its p", lambda: probable(whole.fill(row), next(position)), None
    yield "top 20 log p", partial(_native.top_log_softmax, row, 20), None
    other = _native.Row(n).fill(np.roll(row, 1) * np.float32(0.5) + row * np.float32(0.5))
    yield "residual of all", lambda: whole.fill(row).residual(other, 1, next(position)), None


def probable(row: _native.Row, position: int) -> float:
    return row.probability(row.draw(1, position)[0])


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n-vocab", type=int, default=163_840)
    parser.add_argument("--repeats", type=int, default=61)
    options = parser.parse_args()
    print(f"{'row':<8}{'function':<26}{'ours µs':>9}{'libllama µs':>13}{'ratio':>8}")
    for kind, row in rows(options.n_vocab).items():
        for name, ours, samplers in chains(row):
            if samplers is None:
                print(f"{kind:<8}{name:<26}{median(timed(ours) for _ in range(options.repeats)):>9.0f}")
                continue
            choose, chain = theirs(row, samplers)
            with chain:
                pairs = [(timed(ours), timed(choose)) for _ in range(options.repeats)]
            mine, other = (median(side) for side in zip(*pairs, strict=True))
            ratio = median(b / a for a, b in pairs)
            print(f"{kind:<8}{name:<26}{mine:>9.0f}{other:>13.0f}{ratio:>8.1f}")


if __name__ == "__main__":
    main()
