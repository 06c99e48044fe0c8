"""The types of the extension: what csrc offers to Python."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any

from numpy.typing import NDArray
from typing_extensions import Buffer

# ---- engine: the verify loop (csrc/engine.h) ----

API: tuple[tuple[str, str], ...]
STRUCTS: Mapping[str, Mapping[str, int]]  # struct → {"sizeof": bytes, field: offset}: a field is named "size"
CODES: Mapping[int, tuple[str, str]]  # code → (name, meaning)

class Rewind(IntEnum):
    ANY = 0
    BOUNDED = 1
    CHECKPOINT = 2
    NONE = 3

class EngineError(RuntimeError):
    code: int
    def __init__(self, code: int) -> None: ...

class NativeCancelled(Exception): ...

class Callback:
    def __init__(self, function: Callable[..., Any]) -> None: ...
    def __call__(self, *arguments: Any) -> Any: ...

def raise_kept() -> None: ...
def set_api(addresses: Sequence[int]) -> None: ...
def has_api() -> bool: ...

class Engine:
    def __init__(
        self,
        target: int,
        draft: int = 0,
        *,
        n_vocab: int,
        n_ctx: int,
        n_batch: int,
        n_ubatch: int,
        draft_n_vocab: int = 0,
        draft_n_ctx: int = 0,
        draft_n_batch: int = 0,
        draft_n_ubatch: int = 0,
        n_draft_max: int = 16,
        eog: bytes,
        to_draft: Buffer | None = None,
        to_target: Buffer | None = None,
        rewind: int = 0,
        rewind_bound: int = 0,
        draft_rewind: int = 0,
        draft_rewind_bound: int = 0,
    ) -> None: ...
    def begin(
        self,
        tokens: Sequence[int],
        *,
        sampler: int = 0,
        grammar: int = 0,
        preselect: int = 0,
        n_penalty: int = 0,
    ) -> int: ...
    def prefill(self) -> tuple[int, int]: ...
    def step(self, n_draft: int, p_min: float, max_tokens: int) -> list[tuple[int, bool]]: ...
    def truncate(self, n: int) -> None: ...
    def cancel(self) -> None: ...
    def clear_cancel(self) -> None: ...
    def set_draft(self, on: bool) -> None: ...
    @property
    def history(self) -> list[int]: ...
    @property
    def n_history(self) -> int: ...
    @property
    def cached(self) -> tuple[int, int]: ...
    @property
    def counters(self) -> dict[str, int]: ...
    @property
    def draft_failed(self) -> int: ...
    def close(self) -> None: ...

# ---- scan: GGUF headers (csrc/scan.h) ----
Range = tuple[int, int]

class ScanError(Exception):
    code: int
    at: int
    needed: int
    number: int

def scan_header(
    data: Buffer,
) -> tuple[
    int, list[tuple[Range, int, bool, int, Range]], list[tuple[Range, tuple[int, ...], int, int]], int
]: ...
def string_starts(data: Buffer, starts: NDArray[Any]) -> None: ...
def find_merges(
    data: Buffer, starts: NDArray[Any], table: NDArray[Any], split: NDArray[Any]
) -> tuple[int, int]: ...

# ---- end of scan ----

# ---- select: rows of logits (csrc/select.h, noise.h, row.h, chain.h) ----

def argmax(logits: Buffer) -> tuple[int, float]: ...
def log_softmax(logits: Buffer, ids: Iterable[int]) -> list[float]: ...
def top_log_softmax(logits: Buffer, k: int) -> list[tuple[int, float]]: ...
def noise(seed: int, position: int, ids: Iterable[int]) -> list[tuple[float, float]]: ...
def noise_ids(seed: int, position: int, bits: Iterable[int]) -> list[int]: ...

class Counts:
    def __init__(self, n_vocab: int, last_n: int) -> None: ...
    def begin(self, ids: Iterable[int]) -> None: ...
    def push(self, token: int) -> None: ...
    def pop(self) -> None: ...
    def penalize(
        self,
        logits: Buffer,
        repeat: float = 1,
        frequency: float = 0,
        presence: float = 0,
        to_own: Buffer | None = None,
    ) -> None: ...
    def unpenalize(self, logits: Buffer, to_own: Buffer | None = None) -> None: ...

class Row:
    def __init__(
        self,
        n: int,
        *,
        temperature: float = 1,
        top_k: int = 0,
        top_p: float = 1,
        min_p: float = 0,
        to_target: Buffer | None = None,
    ) -> None: ...
    def fill(self, logits: Buffer) -> Row: ...
    @property
    def kept(self) -> list[tuple[int, float]]: ...
    def own(self, memory: Buffer) -> None: ...
    def draw(self, seed: int, position: int, count: int = 1) -> list[int]: ...
    def probability(self, id: int) -> float: ...
    def accepts(self, q: Row, id: int, uniform: float) -> bool: ...
    def residual(self, q: Row, seed: int, position: int) -> int: ...
    def reject(self, q: Row, seed: int, position: int, count: int = 1) -> list[int]: ...
