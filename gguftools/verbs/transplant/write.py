"""Writing a draft: the donor's body byte for byte, two new matrices, made and quantized chunk by chunk."""

from __future__ import annotations

import math
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from ... import gguf_write
from ...checkpoint import floats
from ...gguf_write import Announced
from ...header import TensorInfo, read_tensor
from ...libllama import hardware
from .donor import BLOCK, EMBEDDING, HEAD, HEAD_BIAS, Donor
from .qwen2 import is_possible as is_qwen2
from .qwen2 import turn
from .rows import NEVER, NewRows

OutType = Literal["f32", "f16", "bf16", "q8_0", "q4_0"]
TYPES = {"f32": floats.F32, "f16": floats.F16, "bf16": floats.BF16, "q8_0": floats.Q8_0, "q4_0": floats.Q4_0}
ROWS = 2048  # made and quantized at a time, by each thread
MAX_THREADS = 4
_LAYER = re.compile(r"blk\.(\d+)\.(.+)")

Tell = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """The tensors of the draft: the new matrices, then the donor's other tensors under their new names."""

    arch: str
    embedding: Announced
    head: Announced
    bias: Announced | None  # None: folded into the head
    body: tuple[tuple[TensorInfo, Announced], ...]

    def announced(self) -> list[Announced]:
        """All, in the order of the file."""
        new = [self.embedding, self.head, *([self.bias] if self.bias else [])]
        return [*new, *(tensor for _, tensor in self.body)]

    def n_weights(self) -> int:
        """Numbers in all tensors."""
        return sum(math.prod(tensor.shape) for tensor in self.announced())


def plan(donor: Donor, n_tokens: int, layers: Sequence[int], outtype: OutType, *, fold: bool) -> Plan:
    """What will be written. llama.cpp adds an output.bias for qwen2 alone, so a llama becomes a qwen2 where
    that is the same; `fold`: neither.

    As in convert, the head is Q8_0 with q4_0, since the last step suffers most; rows that are no whole
    blocks are F16.
    """
    kind = TYPES[outtype]
    head = floats.Q8_0 if kind == floats.Q4_0 else kind
    arch = "qwen2" if is_qwen2(donor.header) and not fold else donor.arch
    has_bias = arch == "qwen2" and not fold
    return Plan(
        arch,
        _matrix(EMBEDDING, donor.n_embd, n_tokens, kind),
        _matrix(HEAD, donor.n_embd, n_tokens, head),
        Announced(HEAD_BIAS, (n_tokens,), floats.F32, 4 * n_tokens) if has_bias else None,
        tuple(_body(donor, layers)),
    )


def _matrix(name: str, width: int, n_rows: int, kind: int) -> Announced:
    kind = kind if floats.fits(width, kind) else floats.F16
    return Announced(name, (width, n_rows), kind, n_rows * floats.row_bytes(width, kind))


def _body(donor: Donor, layers: Sequence[int]) -> Iterator[tuple[TensorInfo, Announced]]:
    place = {layer: i for i, layer in enumerate(layers)}
    for info in donor.header.tensors:
        name = info.name
        if match := _LAYER.fullmatch(name):
            if int(match[1]) not in place:
                continue
            name = f"blk.{place[int(match[1])]}.{match[2]}"
        if name not in (EMBEDDING, HEAD, HEAD_BIAS):
            yield info, Announced(name, info.shape, info.type, info.nbytes)


def write(
    draft: Plan,
    head_bytes: bytes,
    donor: Donor,
    rows: NewRows,
    file: BinaryIO,
    *,
    unit: NDArray[np.float32] | None,
    tell: Tell,
) -> int:
    """Writes the whole GGUF, `head_bytes` first, and returns its ties.

    Those are pairs of ids that may both be drafted and have the same score after every text.
    `unit` [n_embd] has a product of about 1 with every final state: where there is no bias tensor, it
    carries the bias into the head. Without it such a head has a zero row (logit 0) for an id that must not
    be drafted, and no other bias. Raises InputError where rows are not finite; what `tell` raises.
    """
    file.write(head_bytes)
    progress = _Progress(tell, sum(tensor.nbytes for tensor in draft.announced()))
    bias = rows.bias.astype("<f4") + np.float32(0)  # no -0.0: it would be another byte for the same score
    ties = _Ties(bias, with_bias=draft.bias is not None)

    def head(lo: int, hi: int) -> NDArray[np.float32]:
        made = rows.head_rows(lo, hi)
        return made if draft.bias else folded(made, bias[lo:hi], unit)

    gguf_write.write_tensor(file, draft.embedding, _chunks(draft.embedding, rows.input_rows, progress))
    pieces = _chunks(draft.head, head, progress)
    gguf_write.write_tensor(file, draft.head, ties.watch(pieces))
    if draft.bias:
        gguf_write.write_tensor(file, draft.bias, [bias])
    for info, tensor in draft.body:
        gguf_write.write_tensor(file, tensor, progress.watch(_copy(donor, info, draft.arch)))
    return ties.count()


def folded(
    rows: NDArray[np.float32], bias: NDArray[np.float32], unit: NDArray[np.float32] | None
) -> NDArray[np.float32]:
    """[n, n_embd]: head rows whose product with a final state holds the bias too: row + bias · unit."""
    if unit is None:
        out: NDArray[np.float32] = rows * (bias > NEVER / 2)[:, None].astype(np.float32)
        return out
    return rows + np.outer(bias, unit).astype(np.float32)


def _chunks(
    tensor: Announced, make: Callable[[int, int], NDArray[np.float32]], progress: _Progress
) -> Iterator[NDArray[np.generic]]:
    """A matrix in its type, [ROWS, …] at a time and in order, made by a few threads."""

    def chunk(lo: int) -> NDArray[np.generic]:
        made = np.ascontiguousarray(make(lo, min(lo + ROWS, tensor.shape[1])), np.float32)
        floats.check_finite(made, floats.F32, tensor.name)
        return np.ascontiguousarray(floats.recode(made, floats.F32, tensor.type, tensor.name))

    n_threads = min(hardware.physical_cores(), MAX_THREADS)
    waiting: deque[Future[NDArray[np.generic]]] = deque()
    with ThreadPoolExecutor(n_threads) as pool:
        for lo in range(0, tensor.shape[1], ROWS):
            waiting.append(pool.submit(chunk, lo))
            if len(waiting) > n_threads:
                yield progress.passed(waiting.popleft().result())
        while waiting:
            yield progress.passed(waiting.popleft().result())


def _copy(donor: Donor, info: TensorInfo, arch: str) -> Iterator[NDArray[np.generic]]:
    data = np.frombuffer(read_tensor(donor.header, info), np.uint8)
    if arch != donor.arch and (turned := turn(donor.header, info.name)):
        data = turned(data)
    for at in range(0, data.size, BLOCK):
        yield data[at : at + BLOCK]


@dataclass(slots=True)
class _Progress:
    """Turns bytes into the part of the file that is done."""

    tell: Tell
    total: int
    done: int = 0

    def passed(self, piece: NDArray[np.generic]) -> NDArray[np.generic]:
        self.done += piece.nbytes
        self.tell(min(self.done / self.total, 1.0))
        return piece

    def watch(self, pieces: Iterator[NDArray[np.generic]]) -> Iterator[NDArray[np.generic]]:
        return map(self.passed, pieces)


@dataclass(slots=True)
class _Ties:
    """Counts ids with the same bytes of the head (and the same bias beside it) as they are written."""

    bias: NDArray[np.float32]
    with_bias: bool
    seen: Counter[bytes] = field(default_factory=Counter)

    def watch(self, pieces: Iterator[NDArray[np.generic]]) -> Iterator[NDArray[np.generic]]:
        at = 0
        for piece in pieces:
            data: Any = piece.view(np.uint8)
            for i, row in enumerate(data, at):
                if self.bias[i] > NEVER / 2:
                    beside = self.bias[i].tobytes() if self.with_bias else b""
                    self.seen[blake2b(row, digest_size=16, key=beside).digest()] += 1
            at += len(piece)
            yield piece

    def count(self) -> int:
        """Pairs: k ids alike are k (k - 1) / 2."""
        return sum(n * (n - 1) // 2 for n in self.seen.values())
