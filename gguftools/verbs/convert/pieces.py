"""A job's bytes in the GGUF, piece by piece of its source."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arch.slot import to_gguf
from ...checkpoint import floats, safetensors
from .plan import Job

CHUNK = 4 << 20  # bytes of source read at a time: a small part of any tensor that matters


def of(job: Job, tell: Callable[[float], None]) -> Iterator[NDArray[Any]]:
    """A tensor's bytes in the GGUF, CHUNK by CHUNK of its source; whole heads where rows are regrouped."""
    slot, rows = job.slot, job.slot.shape[0]
    width = math.prod(slot.shape[1:])
    if slot.made is not None or job.entry is None:
        yield np.asarray(slot.made, np.float32)
        return
    dtype = floats.PLAIN[job.source]
    unit = slot.head_dim or 1
    step = max(CHUNK // (unit * width * dtype.itemsize), 1) * unit
    for at in range(0, rows, step):
        n = min(step, rows - at)
        raw = safetensors.read_bytes(job.entry, at * width * dtype.itemsize, n * width * dtype.itemsize)
        piece = raw.view(dtype).reshape(n, *slot.shape[1:])
        floats.check_finite(piece, job.source, slot.hf)
        if slot.head_dim:
            piece = to_gguf(piece, slot.head_dim)
        yield floats.recode(piece, job.source, job.out.type, slot.hf)
        tell((at + n) / rows)
