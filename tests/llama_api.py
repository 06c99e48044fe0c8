"""libllama's functions in the engine's table, for tests below session.py."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from llama_cpp import llama_cpp as low

from gguftools import _native
from gguftools.libllama.compat import library

LIBRARY = low._lib
THREADS = 1  # two would wait for each other whenever the machine is busy


def addresses() -> dict[str, int]:
    """Function name → address, in the table's order."""
    return {name: ctypes.cast(getattr(LIBRARY, name), ctypes.c_void_p).value or 0 for _, name in _native.API}


def install() -> None:
    library()  # its log callback stays the only one
    _native.set_api(list(addresses().values()))


def address(pointer: Any) -> int:
    """A handle of llama_cpp as a number; 0 for NULL."""
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0


class Chain:
    """One of libllama's sampler chains, freed with the block."""

    def __init__(self, *samplers: Any) -> None:
        self.handle = low.llama_sampler_chain_init(low.llama_sampler_chain_default_params())
        for sampler in samplers:
            low.llama_sampler_chain_add(self.handle, sampler)

    def __enter__(self) -> int:
        return address(self.handle)

    def __exit__(self, *_: object) -> None:
        low.llama_sampler_free(self.handle)


def quantize(source: Path, goal: Path, kind: int) -> Path:
    """A requantized copy, by libllama; kind is a llama_ftype."""
    params = low.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize, params.nthread = kind, True, 2
    if low.llama_model_quantize(str(source).encode(), str(goal).encode(), ctypes.byref(params)):
        raise RuntimeError(f"{goal} could not be written")
    return goal


class Loaded:
    """A model with the ways to make contexts and to ask it for logits, through libllama alone."""

    def __init__(self, path: Path) -> None:
        self.model = low.llama_model_load_from_file(str(path).encode(), low.llama_model_default_params())
        assert self.model, path
        self.vocab = low.llama_model_get_vocab(self.model)
        self.n_vocab: int = low.llama_vocab_n_tokens(self.vocab)
        self.eog = bytes(int(low.llama_vocab_is_eog(self.vocab, i)) for i in range(self.n_vocab))

    def context(self, n_ctx: int = 512, n_ubatch: int = 64, n_rs_seq: int = 0, exact: bool = False) -> int:
        """`exact`: attention all in F32, so that only the order of sums differs between batch widths."""
        params = low.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_rs_seq = n_ctx, 512, n_ubatch, n_rs_seq
        params.n_threads = params.n_threads_batch = THREADS
        if exact:
            params.type_k = params.type_v = params.flash_attn_type = 0
        handle = address(low.llama_init_from_model(self.model, params))
        assert handle
        return handle

    def tokens(self, text: str) -> list[int]:
        data = text.encode()
        buffer = (ctypes.c_int32 * (len(data) + 8))()
        return list(
            buffer[: low.llama_tokenize(self.vocab, data, len(data), buffer, len(buffer), True, True)]
        )

    def piece(self, token: int) -> bytes:
        buffer = ctypes.create_string_buffer(256)
        n = low.llama_token_to_piece(self.vocab, token, buffer, 256, 0, False)
        return buffer.raw[:n]

    def rows(self, tokens: Sequence[int], first: int, step: int = 1, exact: bool = False) -> np.ndarray:
        """Logits (len(tokens) - first, n_vocab) of a fresh context, `step` tokens a decode after `first`."""
        context = self.context(len(tokens) + 8, 512, exact=exact)
        rows = []
        start = 0
        while start < len(tokens):
            n = min(512, first - start) if start < first else min(step, len(tokens) - start)
            part = (ctypes.c_int32 * n)(*tokens[start : start + n])
            batch = low.llama_batch_get_one(part, n)
            wanted = (ctypes.c_int8 * n)(*([int(start >= first)] * n))
            batch.logits = ctypes.cast(wanted, ctypes.POINTER(ctypes.c_int8))
            assert low.llama_decode(context, batch) == 0
            if start >= first:
                for i in range(n):
                    rows.append(logits(context, i, self.n_vocab))
            start += n
        low.llama_free(context)
        return np.stack(rows)


def logits(context: int, i: int, n_vocab: int) -> np.ndarray:
    """A copy of the logits of batch row i."""
    return np.ctypeslib.as_array(low.llama_get_logits_ith(context, i), (n_vocab,)).copy()
