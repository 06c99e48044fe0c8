"""Models, contexts, tokens and samplers of libllama, as resources to close.

Handles are addresses. Each is freed once: by close(), or when its owner is collected; a context keeps its
weights.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import _native
from ..errors import Closed, GrammarError, InputError, LoadAborted, LoadError, Unsupported
from . import devices
from .compat import complaints, library

LOAD_MODES = ("auto", "none", "mmap", "mlock", "mmap+mlock", "dio")
CACHE_TYPES = {
    "f32": 0,
    "f16": 1,
    "q4_0": 2,
    "q4_1": 3,
    "q5_0": 6,
    "q5_1": 7,
    "q8_0": 8,
    "iq4_nl": 20,
    "bf16": 30,
}
N_BATCH = 512
MAX_THREADS = 512  # ggml's own limit; far above it the process ends
MAX_TEXT = (1 << 31) - 1


class Weights:
    """A loaded model. `foreign`: it belongs to a llama_cpp.Llama of the caller, who frees it."""

    def __init__(self, handle: int, path: Path, foreign: Any = None) -> None:
        lib = library()
        self.path = path
        self.foreign = foreign
        self._handle = handle
        self._process = os.getpid()
        self._free = (
            None if foreign else weakref.finalize(self, free_here, self._process, _free_model, handle)
        )
        self.vocab = lib.llama_model_get_vocab(handle)
        self.n_vocab: int = lib.llama_vocab_n_tokens(self.vocab)
        self.n_ctx_train: int = lib.llama_model_n_ctx_train(handle)
        self.nbytes: int = lib.llama_model_size(handle)
        self.is_recurrent: bool = lib.llama_model_is_recurrent(handle) or lib.llama_model_is_hybrid(handle)
        self.has_encoder: bool = lib.llama_model_has_encoder(handle)

    @property
    def handle(self) -> int:
        """Raises Closed, see check()."""
        self.check()
        return self._handle

    def check(self) -> None:
        """Raises Closed after close(), also that of a caller's Llama, and Unsupported in a forked process."""
        if os.getpid() != self._process:
            raise Unsupported(
                f"{self.path.name} was loaded by another process",
                "llama.cpp's threads do not follow a fork",
                "load the model after the fork, or start processes with multiprocessing's spawn",
            )
        gone = self.foreign is not None and self.foreign._model.model is None
        if gone or (self._free is not None and not self._free.alive):
            raise Closed(f"{self.path.name} was closed")

    def close(self) -> None:
        if self._free is not None:
            self._free()

    def eog(self) -> bytes:
        """[n_vocab] one byte per token: 1 where it ends generation."""
        is_eog, vocab = library().llama_vocab_is_eog, self.vocab
        return bytes([is_eog(vocab, token) for token in range(self.n_vocab)])

    def tokenize(self, text: str, *, add_special: bool = False, parse_special: bool = False) -> list[int]:
        """Ids of a text by libllama's tokenizer. Raises InputError for what it cannot take."""
        self.check()
        data = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace").encode()
        if len(data) > MAX_TEXT:
            raise InputError("the text is too long", f"more than {MAX_TEXT:,} bytes")
        room = len(data) + 16
        tokens = (ctypes.c_int32 * room)()
        call = library().llama_tokenize
        count = call(self.vocab, data, len(data), tokens, room, add_special, parse_special)
        if count < 0:
            raise InputError("libllama cannot tokenize the text", f"it answers {count}")
        return tokens[:count]

    def piece(self, token: int, special: bool = False) -> bytes:
        """The bytes of a token; control tokens are empty unless `special`."""
        self.check()
        call = library().llama_token_to_piece
        room = 256
        while True:
            buffer = ctypes.create_string_buffer(room)
            size = call(self.vocab, token, buffer, room, 0, special)
            if size >= 0:
                return buffer.raw[:size]
            room = -size


def load(
    path: Path,
    place: devices.Placement,
    load_mode: str,
    progress: Callable[[float], bool | None] | None,
    *,
    vocab_only: bool = False,
) -> Weights:
    """Loads a GGUF (the first shard of a split one).

    progress(fraction): False stops it and raises LoadAborted; an exception in it stops the load and is raised
    again. Raises LoadError when libllama refuses the file.
    """
    if load_mode not in LOAD_MODES:
        raise InputError(f"load_mode is {load_mode!r}", f"it takes {', '.join(LOAD_MODES)}")
    lib = library()
    params = lib.llama_model_default_params()
    kept = devices.apply(place, params)
    params.load_mode = lib.llama_load_mode_from_str(load_mode.encode())
    callback = lib.llama_progress_callback(_native.Callback(_reporter(progress, path)))
    params.progress_callback = callback
    params.vocab_only = vocab_only
    with complaints() as heard:
        handle = lib.llama_model_load_from_file(os.fsencode(path), params)
        kept.clear()
        if not handle:
            hint = (
                "fetch the file again: it may be damaged; or update llama-cpp-python: the file may be newer"
            )
            raise LoadError(f"{path} cannot be loaded", "; ".join(heard), hint)
        return Weights(handle, path)


def _reporter(progress: Callable[[float], bool | None] | None, path: Path) -> Callable[[float, object], bool]:
    def report(fraction: float, _data: object) -> bool:
        if progress is not None and progress(fraction) is False:
            raise LoadAborted(f"loading {path.name} was stopped", "progress returned False")
        return True

    return report


def adopt(llama: Any) -> Weights:
    """The weights of a caller's llama_cpp.Llama; its own context stays untouched."""
    handle = llama._model.model
    if handle is None:
        raise Closed("the Llama object was closed")
    return Weights(handle, Path(llama.model_path), llama)


def is_llama(thing: object) -> bool:
    """Whether this is a llama_cpp.Llama."""
    return any(
        kind.__module__.startswith("llama_cpp") and kind.__name__ == "Llama" for kind in type(thing).__mro__
    )


@dataclass(frozen=True, slots=True)
class ContextParams:
    """What a context is made with. flash_attn None: libllama decides; cache types: keys of CACHE_TYPES."""

    n_ctx: int
    threads: int
    flash_attn: bool | None = None
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    n_outputs: int = 1  # rows of logits that one batch may ask for
    n_rs_seq: int = 0  # rollback positions of a recurrent memory
    yarn_beta_fast: float | None = None
    embeddings: bool = False  # a row of final states for each position, see states.Reader
    n_seq_max: int = 1  # texts that share the n_ctx positions

    def check(self) -> None:
        for name in (self.cache_type_k, self.cache_type_v):
            if name not in CACHE_TYPES:
                raise InputError(f"cache type {name!r} is unknown", f"it takes {', '.join(CACHE_TYPES)}")
        if self.flash_attn is False and self.cache_type_v not in ("f32", "f16", "bf16"):
            raise InputError(
                f"cache_type_v {self.cache_type_v} needs flash attention", "and flash_attn is off"
            )
        if self.n_ctx < 1:
            raise InputError(f"n_ctx is {self.n_ctx}", "it takes a number from 1")
        if not 1 <= self.threads <= MAX_THREADS:
            raise InputError(f"threads is {self.threads}", f"it takes a number from 1 to {MAX_THREADS}")


class Context:
    """A llama_context. n_ctx: the positions that may be used, as asked for (libllama rounds up)."""

    def __init__(self, weights: Weights, wanted: ContextParams) -> None:
        wanted.check()
        lib = library()
        params = lib.llama_context_default_params()
        params.n_ctx = wanted.n_ctx
        params.n_batch = params.n_ubatch = N_BATCH
        params.n_threads = params.n_threads_batch = wanted.threads
        params.n_outputs_max = N_BATCH if wanted.embeddings else wanted.n_outputs
        if wanted.embeddings:
            params.embeddings, params.pooling_type = True, 0
        params.n_seq_max, params.kv_unified = wanted.n_seq_max, wanted.n_seq_max > 1
        params.n_rs_seq = wanted.n_rs_seq
        params.flash_attn_type = -1 if wanted.flash_attn is None else int(wanted.flash_attn)
        params.type_k, params.type_v = CACHE_TYPES[wanted.cache_type_k], CACHE_TYPES[wanted.cache_type_v]
        params.no_perf = True
        if wanted.yarn_beta_fast is not None:
            params.yarn_beta_fast = wanted.yarn_beta_fast
        with complaints() as heard:
            handle = lib.llama_init_from_model(weights.handle, params)
            if not handle:
                what = f"no context of {wanted.n_ctx:,} tokens can be made for {weights.path.name}"
                raise LoadError(what, "; ".join(heard), "try a smaller n_ctx or smaller cache types")
            self.close = weakref.finalize(self, free_here, os.getpid(), _free_context, handle, weights)
        self.handle: int = handle
        self.n_ctx = wanted.n_ctx
        self.n_batch: int = lib.llama_n_batch(handle)
        self.n_ubatch: int = lib.llama_n_ubatch(handle)
        self.n_rs_seq: int = lib.llama_n_rs_seq(handle)
        if lib.llama_get_memory(handle) is None:
            self.close()
            raise Unsupported(
                f"{weights.path.name} writes no text", "its architecture keeps no memory of a text"
            )


def free_here(process: int, free: Callable[..., None], *arguments: Any) -> None:
    """Frees in the process that made it: in a forked one the threads are missing that would have to end."""
    if os.getpid() == process:
        free(*arguments)


def _free_model(handle: int) -> None:
    library().llama_model_free(handle)


def _free_context(handle: int, _weights: Weights) -> None:
    library().llama_free(handle)


class Sampler:
    """A sampler chain and maybe a grammar beside it: addresses, 0 where there is none."""

    def __init__(self, stages: list[Any], grammar: Any = None) -> None:
        lib = library()
        chain = None
        if stages:
            chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
            for stage in stages:
                lib.llama_sampler_chain_add(chain, stage)
        self.handle, self.grammar = _address(chain), _address(grammar)
        self.close = weakref.finalize(self, _free_samplers, chain, grammar)


def _address(pointer: Any) -> int:
    return int(ctypes.cast(pointer, ctypes.c_void_p).value or 0) if pointer else 0


def _free_samplers(*pointers: Any) -> None:
    for pointer in pointers:
        if pointer:
            library().llama_sampler_free(pointer)


def grammar(weights: Weights, source: str) -> Any:
    """A GBNF grammar with the rule `root`, for Sampler. Raises GrammarError."""
    with complaints() as heard:
        found = None
        if source.strip() and "\0" not in source:
            found = library().llama_sampler_init_grammar(weights.vocab, source.encode(), b"root")
        if not found:
            why = "; ".join(heard) or "llama.cpp cannot parse it"
            raise GrammarError("the grammar is not accepted", why, "it is GBNF and needs a rule named root")
    return found
