"""A row of logits as libllama's samplers take it, and its common chain."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from llama_api import Chain, low
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def parts(
    temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0, dist: int | None = None
) -> list[Any]:
    """libllama's samplers in its own order."""
    out = [
        low.llama_sampler_init_top_k(top_k),
        low.llama_sampler_init_top_p(top_p, 1),
        low.llama_sampler_init_min_p(min_p, 1),
        low.llama_sampler_init_temp(temperature),
    ]
    return out if dist is None else [*out, low.llama_sampler_init_dist(dist)]


class Candidates:
    """A row as libllama's samplers take it."""

    def __init__(self, row: Floats) -> None:
        fields = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
        self.data = np.zeros(len(row), fields)
        self.data["id"], self.data["logit"] = np.arange(len(row)), row
        self.array = low.llama_token_data_array(
            self.data.ctypes.data_as(ctypes.POINTER(low.llama_token_data)), len(row), -1, False
        )

        self.pointer = ctypes.byref(self.array)

    def apply(self, chain: Chain) -> dict[int, float]:
        """Logit by id of those that are left."""
        low.llama_sampler_apply(chain.handle, self.pointer)
        left = self.data[: self.array.size]
        return {int(i): float(x) for i, x in zip(left["id"], left["logit"], strict=True) if x > -np.inf}


def libllama(
    row: Floats, penalties: tuple[Any, ...] = (), tokens: list[int] | None = None, **values: Any
) -> dict[int, float]:
    first = [low.llama_sampler_init_penalties(len(row), *penalties)] if penalties else []
    chain = Chain(*first, *parts(**values))
    with chain:
        for token in tokens or []:
            low.llama_sampler_accept(chain.handle, token)
        return Candidates(row).apply(chain)


def distinct_row(seed: int, n: int, scale: float) -> Floats:
    """No two logits equal: libllama's sort is not stable."""
    row = np.random.default_rng(seed).normal(0, scale, n).astype(np.float32)
    while len(np.unique(row)) < n:
        row = np.random.default_rng(seed := seed + 1).uniform(-9, 9, n).astype(np.float32)
    return row
