"""libllama through llama_cpp's low-level functions: logits, greedy text, tokens, requantization."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from gguftools.libllama import compat


@contextmanager
def model(path: Path, *, vocab_only: bool = False) -> Iterator[Any]:
    """A llama_model pointer, freed at the end."""
    compat.library()  # its log goes to logging
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = vocab_only
    params.n_gpu_layers = 0
    found = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
    assert found, f"libllama cannot load {path}"
    try:
        yield found
    finally:
        llama_cpp.llama_model_free(found)


@contextmanager
def context(loaded: Any, n_ctx: int = 256, **settings: Any) -> Iterator[Any]:
    """A context with an F32 cache and without flash attention, so that nothing is rounded on the way."""
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = n_ctx
    params.n_threads = params.n_threads_batch = 1  # threads of a busy machine spin
    params.type_k = params.type_v = 0
    params.flash_attn_type = 0
    for name, value in settings.items():
        setattr(params, name, value)
    made = llama_cpp.llama_init_from_model(loaded, params)
    assert made
    try:
        yield made
    finally:
        llama_cpp.llama_free(made)


def decode(ctx: Any, ids: list[int], start: int, n_vocab: int) -> NDArray[np.float32]:
    """Logits of every given token, shape (len(ids), n_vocab)."""
    batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for i, token in enumerate(ids):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = (
            token,
            start + i,
            1,
            0,
            1,
        )
    assert llama_cpp.llama_decode(ctx, batch) == 0
    rows = [
        np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(ctx, i), (n_vocab,)).copy()
        for i in range(len(ids))
    ]
    llama_cpp.llama_batch_free(batch)
    return np.array(rows)


def logits(path: Path, ids: list[int], **settings: Any) -> NDArray[np.float32]:
    with model(path) as loaded, context(loaded, **settings) as ctx:
        return decode(ctx, ids, 0, n_tokens(loaded))


def greedy(path: Path, ids: list[int], count: int) -> list[int]:
    """`count` tokens after `ids`, the most probable at each step."""
    with model(path) as loaded, context(loaded) as ctx:
        out: list[int] = []
        step, start = ids, 0
        for _ in range(count):
            row = decode(ctx, step, start, n_tokens(loaded))[-1]
            start += len(step)
            step = [int(row.argmax())]
            out += step
        return out


def n_tokens(loaded: Any) -> int:
    return int(llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(loaded)))


def tokenize(loaded: Any, text: str, *, parse_special: bool = False) -> list[int]:
    """Ids of a text by libllama's own splitter, without added bos."""
    data = text.encode()
    buffer = (ctypes.c_int32 * (len(data) + 8))()
    vocab = llama_cpp.llama_model_get_vocab(loaded)
    count = llama_cpp.llama_tokenize(vocab, data, len(data), buffer, len(buffer), False, parse_special)
    assert count >= 0
    return list(buffer[:count])


def requantize(source: Path, goal: Path, file_type: int = 0) -> None:
    """What libllama itself makes of a file: F32, or another LLAMA_FTYPE with every matrix of that type."""
    compat.library()
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize, params.pure, params.nthread = file_type, True, file_type != 0, 2
    assert llama_cpp.llama_model_quantize(str(source).encode(), str(goal).encode(), ctypes.byref(params)) == 0
