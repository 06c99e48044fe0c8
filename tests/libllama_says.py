"""What libllama itself says about a vocab-only file, for tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from gguftools.libllama import compat

llama_cpp = pytest.importorskip("llama_cpp")
TYPES = {0: "NONE", 1: "SPM", 2: "BPE", 3: "WPM", 4: "UGM", 5: "RWKV", 6: "PLAMO2", 7: "TEST"}


@dataclass(frozen=True)
class Said:
    """What the functions that llama.cpp's rules call return for one file."""

    type: str
    add_bos: bool
    bos: int
    add_eos: bool
    eos: int
    n_tokens: int
    texts: tuple[bytes, ...]


def ask(path: Path) -> Said | None:
    """None where libllama refuses the file."""
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = True
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
    if not model:
        return None
    vocab = llama_cpp.llama_model_get_vocab(model)
    n = llama_cpp.llama_vocab_n_tokens(vocab)
    said = Said(
        TYPES[llama_cpp.llama_vocab_type(vocab)],
        llama_cpp.llama_vocab_get_add_bos(vocab),
        llama_cpp.llama_vocab_bos(vocab),
        llama_cpp.llama_vocab_get_add_eos(vocab),
        llama_cpp.llama_vocab_eos(vocab),
        n,
        tuple(llama_cpp.llama_vocab_get_text(vocab, i) for i in range(n)),
    )
    llama_cpp.llama_model_free(model)
    return said


def eog(path: Path) -> frozenset[int]:
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = True
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
    vocab = llama_cpp.llama_model_get_vocab(model)
    n = llama_cpp.llama_vocab_n_tokens(vocab)
    ids = frozenset(i for i in range(n) if llama_cpp.llama_vocab_is_eog(vocab, i))
    llama_cpp.llama_model_free(model)
    return ids


def quiet() -> None:
    """libllama's log goes to logging from now on."""
    compat.library()


CHILD = """
import sys, llama_cpp
params = llama_cpp.llama_model_default_params()
params.vocab_only = True
model = llama_cpp.llama_model_load_from_file(sys.argv[1].encode(), params)
tokens = (llama_cpp.llama_token * 8)()
vocab = llama_cpp.llama_model_get_vocab(model)
llama_cpp.llama_tokenize(vocab, b"t", 1, tokens, 8, True, False)
"""
