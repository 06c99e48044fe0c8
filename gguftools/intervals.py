"""Bootstrap intervals: how far a measure moves when its units (texts, prompts, positions) are drawn anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DRAWS = 2000
Weights = NDArray[np.float64]  # [draws, n]: how often each unit is in


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} … {self.high:.3f})"


def bootstrap(n: int, measure: Callable[[Weights], NDArray[np.float64]], seed: int = 0) -> Estimate:
    """The measure of n units, and between which values 95 % of DRAWS resamples have it (Efron 1979).

    measure: [draws, n] weights -> [draws]. What is compared within one measure is paired. NaN without units.
    """
    if not n:
        return Estimate(np.nan, np.nan, np.nan)
    drawn = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), DRAWS).astype(float)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = float(measure(np.ones((1, n)))[0])
        low, high = np.nanquantile(measure(drawn), [0.025, 0.975])
    return Estimate(value, float(low), float(high))


def ratio(above: NDArray[np.generic], below: NDArray[np.generic] | None = None) -> Estimate:
    """Σ above / Σ below over units; a mean where `below` is not given."""
    top, under = np.asarray(above, float), np.ones(len(above)) if below is None else np.asarray(below, float)
    return bootstrap(len(top), lambda w: (w @ top) / (w @ under))


def geometric_mean(values: NDArray[np.generic]) -> Estimate:
    """The geometric mean of positive ratios, one a unit."""
    logs = np.log(np.asarray(values, float))
    return bootstrap(len(logs), lambda w: np.exp((w @ logs) / w.sum(1)))
