"""Alignment of Kimi-K2's, Qwen2.5's and SmolLM2's vocabularies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from alignments import check_laws

from gguftools.verbs.transplant.align import Kind, align
from gguftools.verbs.transplant.spelling import speller, token_bytes
from gguftools.vocab import Vocab


def test_58_3_percent_of_kimis_tokens_are_one_token_of_qwen(kimi: Vocab, qwen: Vocab) -> None:
    found = align(kimi, qwen, {})
    assert found.counts() == {
        "exact": 95_367,
        "pieces": 68_217,
        "special": 16,
        "reserved": 240,
        "unreachable": 0,
    }
    assert found.draftable.sum() == 163_584
    check_laws(found, kimi, qwen)
    no_text = [i for i, data in enumerate(token_bytes(kimi)) if "\ufffd" in data.decode("utf-8", "replace")]
    assert len(no_text) == 1_179
    assert (found.kind[no_text] == Kind.EXACT).sum() == 802
    assert (found.kind[no_text] == Kind.PIECES).sum() == 377


def test_23_9_percent_of_kimis_tokens_are_one_token_of_smollm2(kimi: Vocab, smol: Vocab) -> None:
    found = align(kimi, smol, {})
    assert found.counts() == {
        "exact": 39_165,
        "pieces": 124_398,
        "special": 16,
        "reserved": 240,
        "unreachable": 21,
    }
    check_laws(found, kimi, smol)
    # SmolLM2 lacks 21 bytes: six control characters, and such as are in no UTF-8 or in hardly any.
    lost = {token_bytes(kimi)[i] for i in np.flatnonzero(found.kind == Kind.UNREACHABLE).tolist()}
    bytes_ = [4, 6, 0x13, 0x14, 0x16, 0x1D, 0xC0, 0xC1, 0xF1, 0xF2, *range(0xF5, 0x100)]
    assert lost == {bytes([byte]) for byte in bytes_}


def test_qwen_and_smollm2_align_both_ways(qwen: Vocab, smol: Vocab) -> None:
    there, back = align(qwen, smol, {}), align(smol, qwen, {})
    assert there.counts()["exact"] == back.counts()["exact"] == 39_234
    check_laws(there, qwen, smol)
    check_laws(back, smol, qwen)
    assert back.counts()["unreachable"] == 0


def test_words_are_spelled_as_libllama_spells_them(kimi: Vocab, smol: Vocab, smollm2: Path) -> None:
    """Where the pre-tokenizer splits nothing: words of one script, with or without a space before."""
    llama_cpp = pytest.importorskip("llama_cpp")
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = True
    model = llama_cpp.llama_model_load_from_file(str(smollm2).encode(), params)
    words = [
        data for data in token_bytes(kimi)[:163_584:7] if data.strip(b" ").isalpha() and data.count(b" ") < 2
    ]
    assert len(words) > 5_000
    spelling, ids = speller(smol), (llama_cpp.llama_token * 64)()
    try:
        vocab = llama_cpp.llama_model_get_vocab(model)
        for word in words:
            n = llama_cpp.llama_tokenize(vocab, word, len(word), ids, 64, False, False)
            theirs = list(ids[:n])
            ours = spelling.spell(word)
            assert ours == theirs or len(ours or ()) == 1, word
    finally:
        llama_cpp.llama_model_free(model)
