"""What csrc's selection computes, a second time and plainly: NumPy, float64, one step after another."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def clean(row: NDArray[np.float32]) -> NDArray[np.float32]:
    """NaN counts as minus infinity."""
    return np.where(np.isnan(row), np.float32(-np.inf), row)


def ranked(row: NDArray[np.float32]) -> NDArray[np.int64]:
    """Ids by logit, of equal ones the lower first."""
    return np.lexsort((np.arange(len(row)), -clean(row)))


def log_softmax(row: NDArray[np.float32]) -> Floats:
    x = clean(row).astype(float)
    with np.errstate(divide="ignore"):
        return np.asarray(x - x.max() - np.log(np.exp(x - x.max()).sum()))


def penalized(
    row: NDArray[np.float32], window: list[int], repeat: float, frequency: float, presence: float
) -> NDArray[np.float32]:
    out = row.copy()
    for token in set(window):
        x = out[token] * np.float32(repeat) if out[token] <= 0 else out[token] / np.float32(repeat)
        out[token] = x - (np.float32(window.count(token)) * np.float32(frequency) + np.float32(presence))
    return out


def kept(row: NDArray[np.float32], top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> list[int]:
    """The ids that truncation leaves, likeliest first."""
    order = ranked(row)
    if 0 < top_k < len(row):
        order = order[:top_k]
    order = order[np.isfinite(row[order])]
    weights = np.exp(row[order].astype(float) - float(row[order[0]]))
    if top_p < 1:
        order = order[: int(np.searchsorted(np.cumsum(weights) / weights.sum(), np.float32(top_p))) + 1]
    if min_p > 0:
        order = order[row[order] >= row[order[0]] + np.log(np.float32(min_p))]
    return order.tolist()


def probabilities(row: NDArray[np.float32], temperature: float, ids: list[int] | None = None) -> Floats:
    """Of every id, after truncation to `ids`."""
    x = clean(row).astype(float) / temperature
    out = np.exp(x - x.max())
    if ids is not None:
        out *= np.isin(np.arange(len(row)), ids)
    return np.asarray(out / out.sum())


# ---- noise ----

M32, M64 = (1 << 32) - 1, (1 << 64) - 1


def mix64(x: int) -> int:
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & M64
    x = (x ^ x >> 27) * 0x94D049BB133111EB & M64
    return x ^ x >> 31


def half(x: int) -> int:
    x = x * 0x9E3779B1 & M32
    return x ^ x >> 15


def mix32(x: int) -> int:
    x = (x ^ x >> 16) * 0x7FEB352D & M32
    x = (x ^ x >> 15) * 0x846CA68B & M32
    return x ^ x >> 16


def uniform(seed: int, position: int, token: int) -> float:
    key = mix64((mix64((seed + 0x9E3779B97F4A7C15) & M64) + position * 0xD1342543DE82EF95) & M64)
    before, between = key & M32, key >> 32
    bits = mix32(half((token & M32) ^ before) ^ between)
    more = mix32(half(bits ^ between) ^ before) >> 12
    return ((bits << 20 | more) + 0.5) / 2**52


# ---- statistics ----


def chi_square_limit(dof: int, z: float = 4.0) -> float:
    """Wilson and Hilferty's approximation of the quantile at z standard deviations."""
    return float(dof * (1 - 2 / (9 * dof) + z * (2 / (9 * dof)) ** 0.5) ** 3)


def fits(counts: Floats, expected: Floats) -> bool:
    """Whether counts may be draws of the expected ones; cells below 5 are thrown together."""
    if counts[expected == 0].any():
        return False
    big = expected >= 5
    cells = [(counts[big], expected[big])]
    rest = expected[~big].sum()
    if rest >= 1:
        cells.append((counts[~big].sum(keepdims=True), np.array([rest])))
    seen, wanted = (np.concatenate(part) for part in zip(*cells, strict=True))
    return len(seen) < 2 or float(((seen - wanted) ** 2 / wanted).sum()) < chi_square_limit(len(seen) - 1)
