"""Which numbers each option takes: one table for the arguments of Python and those of the command line."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from ..errors import InputError

MAX_SEED = 0xFFFFFFFE  # the number above it means "random" to llama.cpp


class Limit(NamedTuple):
    """whole: no fractions. low, high: the smallest and the largest value, both included."""

    whole: bool
    low: float
    high: float

    def __str__(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        if math.isinf(self.high):
            return kind if math.isinf(self.low) else f"{kind} from {self.low}"
        return f"{kind} from {self.low:,} to {self.high:,}"

    def holds(self, value: object) -> bool:
        """Whether `value` is such a number; a bool and "not a number" are none."""
        kinds = int if self.whole else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds):
            return False
        return self.low <= value <= self.high and math.isfinite(value)


LIMITS: Mapping[str, Limit] = {
    "n_ctx": Limit(True, 1, (1 << 31) - 1),
    "draft_n_ctx": Limit(True, 1, (1 << 31) - 1),
    "threads": Limit(True, 1, 512),  # ggml's own limit: more end the process
    "max_tokens": Limit(True, 0, math.inf),
    "temperature": Limit(False, 0, 100),
    "top_k": Limit(True, 0, 1 << 30),
    "top_p": Limit(False, 0, 1),
    "min_p": Limit(False, 0, 1),
    "repeat_penalty": Limit(False, 0.01, 100),
    "frequency_penalty": Limit(False, -math.inf, math.inf),
    "presence_penalty": Limit(False, -math.inf, math.inf),
    "repeat_last_n": Limit(True, -1, 1 << 30),
    "seed": Limit(True, 0, MAX_SEED),
    "draft_tokens": Limit(True, 0, 16),
    "draft_p_min": Limit(False, 0, 1),
    "logprobs": Limit(True, 0, 20),
}


def check(name: str, value: object) -> None:
    """Raises InputError where `value` is none of the numbers that the option `name` takes."""
    limit = LIMITS[name]
    if not limit.holds(value):
        raise InputError(f"{name} is {value!r}", f"it takes {limit}")
