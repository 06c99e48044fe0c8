"""Special tokens, end of generation and added tokens: as libllama itself says."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gguf_files import I32, Typed, vocab_keys, write_gguf
from tokenizer_files import LETTERS

from gguftools.vocab import Vocab, special

KINDS = ("bos", "eos", "sep", "pad")  # the special ids that libllama has functions for


def libllama_facts(path: Path) -> tuple[frozenset[int], tuple[bool, bool], dict[str, int]]:
    """(ids that end generation, what is added, special ids) as libllama itself says."""
    llama_cpp = pytest.importorskip("llama_cpp")
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = True
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
    assert model, path
    try:
        vocab = llama_cpp.llama_model_get_vocab(model)
        n = llama_cpp.llama_vocab_n_tokens(vocab)
        eog = frozenset(i for i in range(n) if llama_cpp.llama_vocab_is_eog(vocab, i))
        adds = (llama_cpp.llama_vocab_get_add_bos(vocab), llama_cpp.llama_vocab_get_add_eos(vocab))
        ids = {kind: getattr(llama_cpp, f"llama_vocab_{kind}")(vocab) for kind in KINDS}
        return eog, adds, {kind: i for kind, i in ids.items() if i >= 0}
    finally:
        llama_cpp.llama_model_free(model)


def odd_vocabularies() -> Iterator[dict[str, Any]]:
    """Vocabularies with random special tokens, ids in and out of range, flags and models."""
    rng = random.Random(8)
    texts = [
        *special.EOG_TEXTS,
        *(text for group in special.FIM_TEXTS.values() for text in group),
        "<x>",
        "<y>",
    ]
    for no in range(40):
        # One text per kind of fill-in-the-middle token: with several, libllama takes any.
        chosen = [*rng.sample(texts[: len(special.EOG_TEXTS)], rng.randrange(12)), "<x>", "<|plamo:eos|>"]
        chosen += [rng.choice(group) for group in special.FIM_TEXTS.values() if rng.random() < 0.5]
        tokens = [*LETTERS, *rng.sample(chosen, len(chosen))]
        types = [1] * 256 + [rng.choice((1, 3, 3, 4)) for _ in chosen]
        keys: dict[str, Any] = {
            "general.architecture": "llama",
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": rng.choice(["gpt-2", "llama-bpe", "qwen2", "glm4", "kimi-k2", "tekken"]),
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": Typed(I32, types),
            "tokenizer.ggml.merges": ["a b"],
        }
        for kind in rng.sample(sorted(special.KEYS), 4):
            keys["tokenizer.ggml." + special.KEYS[kind]] = rng.choice([*range(256, len(tokens)), 5000])
        if no % 3 == 0:
            keys["tokenizer.ggml.add_bos_token"] = rng.random() < 0.5
        yield keys


def test_special_tokens_are_those_that_libllama_finds(smollm2: Path, tmp_path: Path) -> None:
    paths = [smollm2]
    for i, keys in enumerate(odd_vocabularies()):
        paths.append(write_gguf(tmp_path / f"{i}.gguf", keys))
    for path in paths:
        eog, adds, ids = libllama_facts(path)
        vocab = Vocab.from_gguf(path)
        assert vocab.eog() == eog, path
        assert special.adds(vocab) == adds
        assert {kind: i for kind, i in special.resolved(vocab).items() if kind in KINDS} == ids


def test_libllama_finds_kimis_special_tokens_too(kimi_folder: Path, tmp_path: Path) -> None:
    vocab = Vocab.from_checkpoint(kimi_folder)
    eog, adds, ids = libllama_facts(write_gguf(tmp_path / "kimi.gguf", vocab_keys(vocab)))
    assert (vocab.eog(), special.adds(vocab)) == (eog, adds)
    assert ids == {"bos": 163584, "eos": 163586, "pad": 163839}
