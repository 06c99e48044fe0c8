"""A model's tensors in their new types, piece by piece and in order, on several threads."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...checkpoint import floats
from ...errors import FormatError, InputError
from ...gguf_write import Announced
from ...header import Header
from ...header.ggml_types import TENSOR_TYPES
from ...header.tensors import TensorInfo
from ...libllama import quantize as llama
from .imatrix import Imatrix

CHUNK = 1 << 19  # numbers that one thread widens and quantizes at a time

Piece = tuple[int, NDArray[Any]]  # which job, and the next bytes of its tensor


@dataclass(frozen=True, slots=True)
class Job:
    """A tensor of the source and what is announced of it; `wished`: see mix.Fate."""

    info: TensorInfo
    out: Announced
    wished: int

    @property
    def changes(self) -> bool:
        return self.info.type != self.out.type

    @property
    def matrices(self) -> int:
        """Experts: each has importances of its own."""
        return math.prod(self.info.shape[2:])


def stream(header: Header, jobs: Sequence[Job], imatrix: Imatrix | None, threads: int) -> Iterator[Piece]:
    """The bytes of every job in order. At most two pieces for each thread are in memory.

    Raises InputError (NaNs, numbers too large, importances of another model), FormatError (the file ends).
    """
    pool = ThreadPoolExecutor(threads, "gguftools-quantize")
    waiting: deque[tuple[int, Future[NDArray[Any]]]] = deque()
    try:
        for number, job in zip(count(), jobs):
            for raw, weights in _pieces(header, job, imatrix):
                if len(waiting) >= 2 * threads:
                    yield _next(waiting)
                waiting.append((number, pool.submit(_work, job, raw, weights)))
        while waiting:
            yield _next(waiting)
    finally:
        pool.shutdown(cancel_futures=True)


def _next(waiting: deque[tuple[int, Future[NDArray[Any]]]]) -> Piece:
    number, future = waiting.popleft()
    return number, future.result()


def _pieces(
    header: Header, job: Job, imatrix: Imatrix | None
) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.float32] | None]]:
    """Rows of a tensor as bytes, none of them of two matrices, with the importances of their columns."""
    if not job.info.nbytes:
        yield np.empty(0, np.uint8), None
        return
    shape = job.info.shape or (1,)
    width, rows = shape[0], math.prod(shape[1:2])
    weights = _weights(job, width, imatrix)
    step = max(CHUNK // max(width, 1), 1)
    nbytes = floats.row_bytes(width, job.info.type)
    path = header.files[job.info.shard]
    with path.open("rb") as file:
        file.seek(job.info.offset)
        for matrix in range(job.matrices):
            for at in range(0, rows, step):
                wanted = min(step, rows - at) * nbytes
                raw = np.fromfile(file, np.uint8, wanted)
                if raw.size != wanted:
                    raise FormatError(path, job.info.offset, f"the data of {job.info.name} ends too early")
                yield raw, None if weights is None else weights[matrix]


def _weights(job: Job, width: int, imatrix: Imatrix | None) -> NDArray[np.float32] | None:
    """[matrices, width]. Raises InputError where ggml would end the process for want of them."""
    if not job.changes:
        return None
    name, found = job.info.name, None
    if imatrix is not None:
        try:
            found = imatrix.of(name, width, job.matrices)
        except InputError:
            if not name.endswith("token_embd.weight"):  # rows are looked up there, so llama.cpp lets it pass
                raise
    if found is None and llama.needs_weights(job.out.type):
        raise InputError(
            f"{name} cannot be written as {TENSOR_TYPES[job.out.type].name}",
            "the importance matrix has nothing of it",
            "give this tensor another type with --tensor-type, --embedding-type or --output-type",
        )
    return found


def _work(job: Job, raw: NDArray[np.uint8], weights: NDArray[np.float32] | None) -> NDArray[Any]:
    name, source, goal = job.info.name, job.info.type, job.out.type
    if source in floats.PLAIN:
        floats.check_finite(raw.view(floats.PLAIN[source]), source, name)
    elif TENSOR_TYPES[source].block > 1 and not llama.is_sound(raw, source):
        raise InputError(
            f"{name} holds a NaN or an infinity", "the model is damaged", "get a good copy of it"
        )
    if source == goal:
        return raw
    if source in floats.PLAIN and goal in floats.PLAIN:
        return floats.recode(raw.view(floats.PLAIN[source]), source, goal, name)
    wide = llama.widen(raw, source, name)
    if goal in floats.PLAIN:
        return floats.recode(wide, floats.F32, goal, name)
    return llama.quantize_rows(wide.reshape(-1, job.info.shape[0]), goal, weights, name)
