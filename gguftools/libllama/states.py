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


class Reader:
    """Reads texts with a model, each from an empty memory, and gives the states after the last norm.

    One context of `n_ctx` positions; a resource to close.
    """

    def __init__(self, weights: Weights, n_ctx: int, threads: int) -> None:
        self._context = Context(weights, ContextParams(n_ctx, threads, embeddings=True))
        self.n_embd: int = library().llama_model_n_embd(weights.handle)
        self.n_ctx = n_ctx

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
            self._decode(part, keep + at, states[at : at + len(part)])
            if progress is not None and progress(at + len(part)) is False:
                raise LoadAborted("reading the text was stopped", "progress returned False")
        return states

    def _decode(self, part: Input, position: int, out: NDArray[np.float32]) -> None:
        lib, count = library(), len(part)
        rows = isinstance(part, np.ndarray) and part.ndim == 2
        batch = lib.llama_batch_init(count, self.n_embd if rows else 0, 1)
        try:
            batch.n_tokens = count
            data = np.ascontiguousarray(part, np.float32 if rows else np.int32)
            ctypes.memmove(batch.embd if rows else batch.token, data.ctypes.data, data.nbytes)
            for i in range(count):
                batch.pos[i] = position + i
                batch.n_seq_id[i] = 1
                batch.seq_id[i][0] = 0
                batch.logits[i] = 1
            with complaints() as heard:
                if (code := lib.llama_decode(self._context.handle, batch)) != 0:
                    raise LoadError("the model could not read the text", "; ".join(heard) or f"code {code}")
            found = lib.llama_get_embeddings(self._context.handle)
            out[:] = np.ctypeslib.as_array(found, (count, self.n_embd))
        finally:
            lib.llama_batch_free(batch)
