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
from .unit import Unit

OutType = Literal["f32", "f16", "bf16", "q8_0", "q4_0"]
TYPES = {"f32": floats.F32, "f16": floats.F16, "bf16": floats.BF16, "q8_0": floats.Q8_0, "q4_0": floats.Q4_0}
ROWS = 2048  # made and quantized at a time, by each thread
MAX_THREADS = 4
BITS = 40  # numbers of a row that may be changed to tell it from another
LOW = 512  # rows that low_row is the mean of
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
    has_bias = not fold and not needs_fold(donor)
    return Plan(
        arch,
        _matrix(EMBEDDING, donor.n_embd, n_tokens, kind),
        _matrix(HEAD, donor.n_embd, n_tokens, head),
        Announced(HEAD_BIAS, (n_tokens,), floats.F32, 4 * n_tokens) if has_bias else None,
        tuple(_body(donor, layers)),
    )


def needs_fold(donor: Donor) -> bool:
    """Whether llama.cpp's graph for the draft has no place for a bias beside the head."""
    return donor.arch != "qwen2" and not is_qwen2(donor.header)


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
    unit: Unit | None,
    tell: Tell,
) -> int:
    """Writes the whole GGUF, `head_bytes` first, and returns its ties.

    Those are pairs of ids that may both be drafted and have the same score after every text.
    `unit` carries the bias into the head where there is no bias tensor; rows that become equal by rounding
    are told apart by their lowest bits. Without it such a head has no bias. `low_row` is for ids that must
    not be drafted. Raises InputError where rows are not finite; what `tell` raises.
    """
    file.write(head_bytes)
    progress = _Progress(tell, sum(tensor.nbytes for tensor in draft.announced()))
    bias = rows.bias.astype("<f4") + np.float32(0)  # no -0.0: it would be another byte for the same score
    apart = draft.bias is None and unit is not None
    ties = _Ties(bias, draft.head.type, with_bias=draft.bias is not None, apart=apart)

    low = None if draft.bias else low_row(rows, unit)

    def head(lo: int, hi: int) -> NDArray[np.float32]:
        made = rows.head_rows(lo, hi)
        return made if low is None else folded(made, bias[lo:hi], unit, low)

    gguf_write.write_tensor(file, draft.embedding, _chunks(draft.embedding, rows.input_rows, progress))
    pieces = _chunks(draft.head, head, progress)
    gguf_write.write_tensor(file, draft.head, ties.watch(pieces))
    if draft.bias:
        gguf_write.write_tensor(file, draft.bias, [bias])
    for info, tensor in draft.body:
        gguf_write.write_tensor(file, tensor, progress.watch(_copy(donor, info, draft.arch)))
    return ties.count()


def folded(
    rows: NDArray[np.float32], bias: NDArray[np.float32], unit: Unit | None, low: NDArray[np.float32]
) -> NDArray[np.float32]:
    """[n, n_embd]: head rows that hold the bias too, see Unit.fold; `low` for NEVER."""
    out = rows.copy() if unit is None else unit.fold(rows, bias)
    out[bias < NEVER / 2] = low
    return out


def low_row(rows: NewRows, unit: Unit | None) -> NDArray[np.float32]:
    """[n_embd]: the mean of head rows that may be drafted, so that after no text its score is the best.

    A large negative multiple of the Unit would be the best one after a text whose u · h is below 0. By
    Jensen's inequality k such rows have together at most k / n of the probability of the n in the mean.
    """
    ids = np.flatnonzero(rows.bias > NEVER / 2)
    if not len(ids):
        return np.zeros_like(rows.head_rows(0, 1)[0])
    some = ids[np.linspace(0, len(ids) - 1, min(len(ids), LOW)).astype(np.int64)]
    made = np.concatenate([rows.head_rows(i, i + 1) for i in some.tolist()])
    mean: NDArray[np.float32] = (made if unit is None else unit.fold(made, rows.bias[some])).mean(0)
    return mean


def _chunks(
    tensor: Announced, make: Callable[[int, int], NDArray[np.float32]], progress: _Progress
) -> Iterator[NDArray[np.generic]]:
    """A matrix in its type, [ROWS, …] at a time and in order, made by a few threads."""

    def chunk(lo: int) -> NDArray[np.generic]:
        made = np.ascontiguousarray(make(lo, min(lo + ROWS, tensor.shape[1])), np.float32)
        floats.check_finite(made, floats.F32, tensor.name)
        return np.array(floats.recode(made, floats.F32, tensor.type, tensor.name), order="C")

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
    """Counts ids with the same bytes of the head (and the same bias beside it) as they are written.

    `apart`: a row that is there already changes in the lowest bits of its first numbers: the k-th one by k,
    written in binary.
    """

    bias: NDArray[np.float32]
    type: int
    with_bias: bool
    apart: bool
    seen: Counter[bytes] = field(default_factory=Counter)
    changed: Counter[bytes] = field(default_factory=Counter)  # by the row before the change

    def watch(self, pieces: Iterator[NDArray[np.generic]]) -> Iterator[NDArray[np.generic]]:
        at = 0
        for piece in pieces:
            data: Any = piece.view(np.uint8)
            for i, row in enumerate(data, at):
                if self.bias[i] > NEVER / 2:
                    self.seen[self._key(i, row)] += 1
            at += len(piece)
            yield piece

    def _key(self, i: int, row: NDArray[np.uint8]) -> bytes:
        beside = self.bias[i].tobytes() if self.with_bias else b""
        key = blake2b(row.data, digest_size=16, key=beside).digest()
        if not self.apart or key not in self.seen:
            return key
        places, before = _lowest(row.size, self.type)[:BITS], key
        plain = row[places]
        while key in self.seen and self.changed[before] < (1 << len(places)) - 1:
            self.changed[before] += 1
            row[places] = plain ^ (self.changed[before] >> np.arange(len(places)) & 1).astype(np.uint8)
            key = blake2b(row.data, digest_size=16).digest()
        return key

    def count(self) -> int:
        """Pairs: k ids alike are k (k - 1) / 2."""
        return sum(n * (n - 1) // 2 for n in self.seen.values())


def _lowest(n_bytes: int, kind: int) -> NDArray[np.int64]:
    """Where in a row the byte with the lowest bit of each number is; a Q8_0 block begins with its scale."""
    if kind == floats.Q8_0:
        places = np.arange(n_bytes)
        return places[places % 34 >= 2]
    return np.arange(0, n_bytes, floats.row_bytes(1, kind))
