"""A job's bytes in the GGUF, piece by piece of its sources."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arch.slot import Slot, to_gguf
from ...checkpoint import floats
from ...checkpoint.weights import Weights
from .plan import Job

CHUNK = 1 << 19  # bytes of source read at a time: what stays in a core's cache, and malloc gives again


def of(job: Job, tell: Callable[[float], None]) -> Iterator[NDArray[Any]]:
    """A tensor's bytes in the GGUF, CHUNK by CHUNK of its sources; whole units where rows are changed."""
    slot, goal = job.slot, job.out.type
    if slot.made is not None:
        yield np.asarray(slot.made, floats.STORED[goal])
        return
    for i, source in enumerate(job.sources):
        for rows, part in _rows(source, slot):
            piece, kind = _changed(rows, source, slot)
            if goal in floats.WHOLE:
                yield piece.astype(floats.STORED[goal])
            else:
                yield floats.recode(piece, kind, goal, source.name)
            tell((i + part) / len(job.sources))


def _rows(source: Weights, slot: Slot) -> Iterator[tuple[NDArray[Any], float]]:
    """Whole units of a source's rows, with the part of it that is read then."""
    n_rows = source.shape[0]
    stride = floats.row_bytes(math.prod(source.shape[1:]), source.kind)
    step = max(CHUNK // (slot.unit * stride), 1) * slot.unit
    for at in range(0, n_rows, step):
        n = min(step, n_rows - at)
        yield source.read(at, n), (at + n) / n_rows


def _changed(rows: NDArray[Any], source: Weights, slot: Slot) -> tuple[NDArray[Any], int]:
    """Rows as the GGUF has them, and their ggml type."""
    kind = source.kind
    if slot.head_dim:
        rows = to_gguf(rows, slot.head_dim)
    if slot.change is not None:
        if not slot.change.exact or kind not in floats.STORED:
            rows, kind = floats.to_f32(rows, kind), floats.F32
        rows = slot.change(rows)
    return rows, kind
