"""A fake llama.cpp behind the engine's function table: ctypes callbacks, caches as lists, and a log of calls.

Logits are a pure function of all tokens in the cache, so a wrong cache gives wrong text. What would
end the process in the real library (a batch too long, a position out of range …) is noted in `faults`, as is
any exception.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gguftools import _native

P, I32, U32, SIZE, BOOL, I64 = (
    ctypes.c_void_p,
    ctypes.c_int32,
    ctypes.c_uint32,
    ctypes.c_size_t,
    ctypes.c_bool,
    ctypes.c_int64,
)


class Batch(ctypes.Structure):
    _fields_ = (
        ("n_tokens", I32),
        ("token", ctypes.POINTER(I32)),
        ("embd", P),
        ("pos", ctypes.POINTER(I32)),
        ("n_seq_id", ctypes.POINTER(I32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(I32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    )


class TokenData(ctypes.Structure):
    _fields_ = (("id", I32), ("logit", ctypes.c_float), ("p", ctypes.c_float))


class TokenDataArray(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.POINTER(TokenData)),
        ("size", SIZE),
        ("selected", I64),
        ("sorted", BOOL),
    )


Law = Callable[[Sequence[int]], np.ndarray]


class Context:
    """One context. `recurrent` memory cannot be cut but for `snapshots` tokens inside the last batch.

    With a `window` (tokens that attention sees, tokens kept beside) older positions are overwritten.
    A `stateless` one gives no state to save.
    """

    def __init__(
        self, name: str, law: Law, n_vocab: int, n_ctx: int, n_batch: int, n_out: int, *,
        recurrent: bool = False, snapshots: int = 0, window: tuple[int, int] | None = None,
        stateless: bool = False,
    ) -> None:  # fmt: skip
        self.name, self.law, self.n_vocab, self.n_ctx, self.n_batch, self.n_out = (
            name, law, n_vocab, n_ctx, n_batch, n_out,
        )  # fmt: skip
        self.recurrent, self.snapshots, self.window = recurrent, snapshots, window
        self.stateless = stateless
        self.cells: list[int] = []  # the attention layers' tokens
        self.state: list[int] = []  # what the recurrent state has seen
        self.last = 0
        self.lost = 0  # positions below were overwritten by a sliding window
        self.codes: list[int] = []  # answers of the next decodes; then 0
        self.on_decode: Callable[[], None] | None = None
        self.rows: dict[int, np.ndarray] = {}
        self.abort: Any = None

    def pos_max(self) -> int:
        return min(len(self.cells), len(self.state) if self.recurrent else len(self.cells)) - 1


class FakeLlama:
    """The table, its contexts and samplers. `install()` puts it in place; log entries begin with the call."""

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.faults: list[str] = []
        self.contexts: dict[int, Context] = {}
        self.samplers: dict[int, Any] = {}  # apply(ids, logits) -> index or None, accept(token), reset()
        self.clock = 0
        self._callbacks = [self._callback(name) for _, name in _native.API]
        self.addresses = [ctypes.cast(c, P).value or 0 for c in self._callbacks]

    def install(self, real: dict[str, int] | None = None) -> None:
        """Puts the table in place; `real` gives the addresses of functions that are not faked."""
        names = [name for _, name in _native.API]
        _native.set_api([(real or {}).get(name, a) for name, a in zip(names, self.addresses, strict=True)])

    def add(self, context: Context) -> int:
        handle = 0x1000 * (len(self.contexts) + 1)
        self.contexts[handle] = context
        return handle

    def add_sampler(self, sampler: Any) -> int:
        handle = 0x100000 * (len(self.samplers) + 1)
        self.samplers[handle] = sampler
        return handle

    def decodes(self, name: str) -> list[tuple[Any, ...]]:
        """(tokens, first position, rows with logits, code) of each decode on that context."""
        return [entry[2:] for entry in self.log if entry[:2] == ("decode", name)]

    def _callback(self, name: str) -> Any:
        method = getattr(self, name)

        @functools.wraps(method)
        def guarded(*args: Any) -> Any:
            try:
                return method(*args)
            except Exception as error:
                self.faults.append(f"{name}: {error!r}")
                return None if SIGNATURES[name][0] is None else 0

        return ctypes.CFUNCTYPE(*SIGNATURES[name])(guarded)

    def llama_decode(self, handle: int, batch: Batch) -> int:
        c = self.contexts[handle]
        n = batch.n_tokens
        tokens, pos = batch.token[:n], batch.pos[:n]
        wanted = [i for i in range(n) if batch.logits[i]]
        code = c.codes.pop(0) if c.codes else 0
        self.log.append(("decode", c.name, tuple(tokens), pos[0], tuple(wanted), code))
        self._check(c, tokens, pos, len(wanted))
        if c.on_decode:
            c.on_decode()
            if c.abort and ctypes.CFUNCTYPE(BOOL, P)(c.abort[0])(c.abort[1]):
                code = 2
        c.rows = {}
        if code in (1, -1):
            return code
        if code:  # some ubatches stay; a recurrent state is spoiled without a trace
            c.cells += [] if c.recurrent else tokens[: n // 2]
            c.state = [-1] * len(c.cells)
            return code
        for i, token in enumerate(tokens):
            c.cells.append(token)
            c.state.append(token)
            if i in wanted:
                c.rows[i] = np.ascontiguousarray(c.law(c.cells), np.float32)
        if c.window:
            c.lost = max(c.lost, len(c.cells) - sum(c.window))
        c.last = n
        return code

    def _check(self, c: Context, tokens: list[int], pos: list[int], wanted: int) -> None:
        if c.recurrent and c.state != c.cells:
            self.faults.append(f"{c.name}: the recurrent state is not that of the cells")
        if pos != list(range(c.pos_max() + 1, c.pos_max() + 1 + len(tokens))):
            self.faults.append(f"{c.name}: positions {pos} after {c.pos_max()}")
        if pos[-1] >= c.n_ctx or len(tokens) > c.n_batch or wanted > c.n_out:
            self.faults.append(
                f"{c.name}: batch of {len(tokens)} up to position {pos[-1]} with {wanted} rows"
            )
        if not all(0 <= t < c.n_vocab for t in tokens):
            self.faults.append(f"{c.name}: ids {tokens}")

    def llama_synchronize(self, handle: int) -> None:
        return None

    def llama_get_logits_ith(self, handle: int, i: int) -> int | None:
        row = self.contexts[handle].rows.get(i)
        return None if row is None else row.ctypes.data

    def llama_get_memory(self, handle: int) -> int:
        return handle

    def llama_get_model(self, handle: int) -> int:
        return handle

    def llama_model_n_swa(self, handle: int) -> int:
        window = self.contexts[handle].window
        return window[0] + 1 if window else 0  # libllama counts the token itself

    def llama_memory_clear(self, handle: int, data: bool) -> None:
        c = self.contexts[handle]
        self.log.append(("clear", c.name))
        c.cells, c.state, c.lost, c.last = [], [], 0, 0

    def llama_memory_seq_rm(self, handle: int, seq: int, p0: int, p1: int) -> bool:
        c = self.contexts[handle]
        self.log.append(("rm", c.name, p0))
        if c.recurrent and p0 < len(c.state):
            back = len(c.state) - p0
            if back > c.snapshots or c.last == 0:  # a second cut needs a decode before
                return False
            stale = back >= c.last  # the library does not see that older snapshots were overwritten
            c.state, c.last = [-1] * p0 if stale else c.state[:p0], 0
        if c.window and c.lost > max(0, p0 - c.window[0]):
            self.faults.append(f"{c.name}: cut to {p0}, but what it sees starts at {c.lost}")
        c.cells = c.cells[:p0]
        return True

    def llama_memory_seq_pos_min(self, handle: int, seq: int) -> int:
        c = self.contexts[handle]
        return -1 if not c.cells else c.lost

    def llama_memory_seq_pos_max(self, handle: int, seq: int) -> int:
        return self.contexts[handle].pos_max()

    def llama_state_seq_get_size_ext(self, handle: int, seq: int, flags: int) -> int:
        return len(self._state(handle, flags))

    def _state(self, handle: int, flags: int) -> bytes:
        """The recurrent state; without the flag PARTIAL_ONLY the cells before it, with their number."""
        c = self.contexts[handle]
        if c.stateless:
            return b""
        cells = [] if flags else [len(c.cells), *c.cells]
        return struct.pack(f"{len(cells) + len(c.state)}i", *cells, *c.state)

    def llama_state_seq_get_data_ext(self, handle: int, data: int, size: int, seq: int, flags: int) -> int:
        state = self._state(handle, flags)
        self.log.append(("save", self.contexts[handle].name, len(state) // 4))
        ctypes.memmove(data, state, len(state))
        return len(state)

    def llama_state_seq_set_data_ext(self, handle: int, data: int, size: int, seq: int, flags: int) -> int:
        c = self.contexts[handle]
        values = array("i", ctypes.string_at(data, size)).tolist()
        if not flags:
            n = values[0]
            if not 0 <= n < len(values):
                c.cells, c.state, c.lost, c.last = [], [], 0, 0
                return 0
            c.cells, values, c.last = values[1 : n + 1], values[n + 1 :], 0
            c.lost = max(0, n - c.window[0] - 1) if c.window else 0  # what no window shows is not kept
        c.state = values
        self.log.append(("restore", c.name, len(c.state)))
        return size

    def llama_set_abort_callback(self, handle: int, function: int | None, data: int | None) -> None:
        self.contexts[handle].abort = (function, data) if function else None

    def llama_sampler_apply(self, handle: int, pointer: Any) -> None:
        a = pointer.contents
        view = np.ctypeslib.as_array(ctypes.cast(a.data, ctypes.POINTER(I32)), (a.size, 3))
        ids, logits = view[:, 0], view.view(np.float32)[:, 1]
        chosen = self.samplers[handle].apply(ids, logits)
        if chosen is not None:
            a.selected = chosen

    def llama_sampler_accept(self, handle: int, token: int) -> None:
        self.log.append(("accept", handle, token))
        self.samplers[handle].accept(token)

    def llama_sampler_reset(self, handle: int) -> None:
        self.samplers[handle].reset()

    def llama_time_us(self) -> int:
        self.clock += 1
        return self.clock


SIGNATURES: dict[str, tuple[Any, ...]] = {
    "llama_decode": (I32, P, Batch),
    "llama_synchronize": (None, P),
    "llama_get_logits_ith": (P, P, I32),
    "llama_get_memory": (P, P),
    "llama_get_model": (P, P),
    "llama_model_n_swa": (I32, P),
    "llama_memory_clear": (None, P, BOOL),
    "llama_memory_seq_rm": (BOOL, P, I32, I32, I32),
    "llama_memory_seq_pos_min": (I32, P, I32),
    "llama_memory_seq_pos_max": (I32, P, I32),
    "llama_state_seq_get_size_ext": (SIZE, P, I32, U32),
    "llama_state_seq_get_data_ext": (SIZE, P, P, SIZE, I32, U32),
    "llama_state_seq_set_data_ext": (SIZE, P, P, SIZE, I32, U32),
    "llama_set_abort_callback": (None, P, P, P),
    "llama_sampler_apply": (None, P, ctypes.POINTER(TokenDataArray)),
    "llama_sampler_accept": (None, P, I32),
    "llama_sampler_reset": (None, P),
    "llama_time_us": (I64,),
}
