"""Final hidden states of a model: what its output matrix is multiplied with, at every position of a text."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import LoadAborted, LoadError
from . import Context, ContextParams, Weights
from .compat import complaints, library

Input = Sequence[int] | NDArray[Any]


Part = tuple[int, int, Sequence[int]]  # a text's number, the position that it goes on at, token ids


class Reader:
    """Reads texts with a model, each from an empty memory, and gives the states after the last norm.

    One context of `n_ctx` positions, which `n_seq` texts share: `read` knows text 0 alone. A resource to
    close.
    """

    def __init__(self, weights: Weights, n_ctx: int, threads: int, n_seq: int = 1) -> None:
        self._context = Context(weights, ContextParams(n_ctx, threads, embeddings=True, n_seq_max=n_seq))
        self.n_embd: int = library().llama_model_n_embd(weights.handle)
        self.n_ctx, self.n_seq = n_ctx, n_seq

    def close(self) -> None:
        self._context.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(
        self, what: Input, *, keep: int = 0, progress: Callable[[int], bool | None] | None = None
    ) -> NDArray[np.float32]:
        """[len(what), n_embd] states of token ids [n], or of input rows [n, n_embd] (float32).

        The first `keep` positions of the text read before stay as they are and `what` goes on from there.
        progress(positions read) may return False: LoadAborted. LoadError where libllama cannot read on.
        """
        lib, handle = library(), self._context.handle
        if keep + len(what) > self.n_ctx:
            raise LoadError(f"{keep + len(what)} tokens do not fit", f"the context has {self.n_ctx}")
        lib.llama_memory_seq_rm(lib.llama_get_memory(handle), 0, keep, -1)
        states = np.empty((len(what), self.n_embd), np.float32)
        step = self._context.n_batch
        for at in range(0, len(what), step):
            part = what[at : at + step]
            places = [(0, keep + at + i) for i in range(len(part))]
            self._decode(part, places, states[at : at + len(part)])
            if progress is not None and progress(at + len(part)) is False:
                raise LoadAborted("reading the text was stopped", "progress returned False")
        return states

    def branch(self, keep: int, tails: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """[len(tails), n_embd]: the state after each of several continuations, as ids, of text 0's first
        `keep` positions, which stay as they are. Fewer than `n_seq` are read at once."""
        lib, memory = library(), library().llama_get_memory(self._context.handle)
        lib.llama_memory_seq_rm(memory, 0, keep, -1)
        most = self.n_seq - 1
        found = []
        for at in range(0, len(tails), most):
            some = tails[at : at + most]
            for i in range(len(some)):
                lib.llama_memory_seq_cp(memory, 0, i + 1, 0, keep)
            found.append(self.go_on([(i + 1, keep, tail) for i, tail in enumerate(some)]))
            for i in range(len(some)):
                lib.llama_memory_seq_rm(memory, i + 1, -1, -1)
        return np.concatenate([np.empty((0, self.n_embd), np.float32), *found])

    def go_on(self, parts: Sequence[Part]) -> NDArray[np.float32]:
        """[len(parts), n_embd]: the state after the last id of each part; no two are of one text."""
        lib, handle = library(), self._context.handle
        for text, position, _ in parts:
            lib.llama_memory_seq_rm(lib.llama_get_memory(handle), text, position, -1)
        ids = [i for _, _, tail in parts for i in tail]
        places = [(text, at + i) for text, at, tail in parts for i in range(len(tail))]
        states = np.empty((len(ids), self.n_embd), np.float32)
        for at in range(0, len(ids), self._context.n_batch):
            stop = at + self._context.n_batch
            self._decode(ids[at:stop], places[at:stop], states[at:stop])
        ends = np.cumsum([len(tail) for _, _, tail in parts]) - 1
        last: NDArray[np.float32] = states[ends]
        return last

    def _decode(self, part: Input, places: Sequence[tuple[int, int]], out: NDArray[np.float32]) -> None:
        """Reads ids or rows, each at its place: (text, position)."""
        lib, count = library(), len(part)
        rows = isinstance(part, np.ndarray) and part.ndim == 2
        batch = lib.llama_batch_init(count, self.n_embd if rows else 0, 1)
        try:
            batch.n_tokens = count
            data = np.ascontiguousarray(part, np.float32 if rows else np.int32)
            ctypes.memmove(batch.embd if rows else batch.token, data.ctypes.data, data.nbytes)
            for i, (text, position) in enumerate(places):
                batch.pos[i] = position
                batch.n_seq_id[i] = 1
                batch.seq_id[i][0] = text
                batch.logits[i] = 1
            with complaints() as heard:
                if (code := lib.llama_decode(self._context.handle, batch)) != 0:
                    raise LoadError("the model could not read the text", "; ".join(heard) or f"code {code}")
            found = lib.llama_get_embeddings(self._context.handle)
            out[:] = np.ctypeslib.as_array(found, (count, self.n_embd))
        finally:
            lib.llama_batch_free(batch)
