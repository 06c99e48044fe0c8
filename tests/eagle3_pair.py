"""A target and its EAGLE-3 head in libllama, in a process of its own: what both compute for some tokens.

python eagle3_pair.py TARGET HEAD OUT.npz ID,ID,… BETA_FAST (-1: the file's own)

OUT holds the target's three states side by side, what the head makes of them, and the head's logits. Exit
codes: 77 this libllama lacks the functions, 78 a model or a context cannot be made, 79 a batch failed.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np


class Embd(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("n_rows", ctypes.c_size_t), ("n_embd", ctypes.c_size_t))


def function(name: str, result: Any, *kinds: Any) -> Any:
    try:
        found = getattr(lib._lib, name)
    except AttributeError:
        sys.exit(77)
    found.restype, found.argtypes = result, list(kinds)
    return found


P, N, U, B = ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32, ctypes.c_bool
want_input = function("_Z30llama_set_embeddings_layer_inpP13llama_contextjb", None, P, U, B)
get_input = function("_Z30llama_get_embeddings_layer_inpP13llama_contextj", P, P, U)
want_state = function("_Z26llama_set_embeddings_nextnP13llama_contextbb", None, P, B, B)
get_state = function("_Z26llama_get_embeddings_nextnP13llama_context", P, P)
layer_ids = function("_Z28llama_model_target_layer_idsPK11llama_model", P, P)
batch_init = function("llama_batch_ext_init", P, P)
add_embd = function("llama_batch_ext_add_embd", N, P, N, Embd)
add_token = function("llama_batch_ext_add_token", N, P, N, N)
set_embd = function("llama_batch_ext_set_embd_token", B, P, N, Embd)
set_output = function("llama_batch_ext_set_output_logits", B, P, N, B)
set_pos = function("llama_batch_ext_set_pos", B, P, N, ctypes.POINTER(N))
process = function("llama_process", N, P, N, P)


def load(path: str) -> Any:
    params = lib.llama_model_default_params()
    params.n_gpu_layers = 0
    return lib.llama_model_load_from_file(path.encode(), params) or sys.exit(78)


def context(model: Any, other: Any = None, beta_fast: float = -1.0) -> Any:
    params = lib.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 256
    params.n_threads = params.n_threads_batch = 1
    params.type_k = params.type_v = 0
    params.flash_attn_type = 0
    params.ctx_other = other
    params.yarn_beta_fast = beta_fast
    return lib.llama_init_from_model(model, params) or sys.exit(78)


def rows(pointer: int, n: int, width: int) -> Any:
    return np.ctypeslib.as_array(ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float)), (n, width)).copy()


def embd(row: Any) -> Embd:
    return Embd(row.ctypes.data, 1, row.size)


def run(target: str, head: str, out: str, ids: list[int], beta_fast: float) -> None:
    big, small = load(target), load(head)
    n, width, own = len(ids), lib.llama_model_n_embd(big), lib.llama_model_n_embd(small)
    ctx = context(big)
    draft = context(small, ctx, beta_fast)
    layers = ctypes.cast(layer_ids(small), ctypes.POINTER(N))[:3]
    for layer in layers:
        want_input(ctx, layer, True)
    tokens = (lib.llama_token * n)(*ids)
    if lib.llama_decode(ctx, lib.llama_batch_get_one(tokens, n)):
        sys.exit(79)
    features = np.concatenate([rows(get_input(ctx, layer), n, width) for layer in layers], axis=1)
    want_state(draft, True, False)
    batch = batch_init(draft)
    for i in range(n):
        at = add_embd(batch, 0, embd(features[i]))
        set_pos(batch, at, N(i))
    if process(draft, 0, batch):
        sys.exit(79)
    states = rows(get_state(draft), n, own)
    batch = batch_init(draft)
    for i in range(n - 1):  # the token after a position with that position's state
        at = add_token(batch, 0, ids[i + 1])
        set_pos(batch, at, N(i))
        set_embd(batch, at, embd(states[i]))
        set_output(batch, at, True)
    if process(draft, 1, batch):
        sys.exit(79)
    n_vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(small))
    logits = [
        np.ctypeslib.as_array(lib.llama_get_logits_ith(draft, i), (n_vocab,)).copy() for i in range(n - 1)
    ]
    np.savez(out, ids=ids, layers=layers, features=features, states=states, logits=np.array(logits))


if __name__ == "__main__":
    run(
        sys.argv[1],
        sys.argv[2],
        sys.argv[3],
        [int(part) for part in sys.argv[4].split(",")],
        float(sys.argv[5]),
    )
