"""Vocab: the same from a GGUF and from the folder it is written to; digests; byte letters."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_files import F32, I32, Typed, gguf_bytes, vocab_keys, write_gguf
from tokenizer_files import folder_vocab, tokenizer_json

from gguftools.errors import FormatError, Unsupported
from gguftools.header import read_header
from gguftools.vocab import Vocab, byte_letters, pre_tokenizers
from gguftools.vocab.tokenizer_json import write_tokenizer

TEXTS = [
    "Hello world, it's 2024!",
    " x  y\n\n\tz",
    "naïve café 漢字 Привет 🙂",
    "def f(a):\r\n    return a+1",
    "''''s",
]


def export(vocab: Vocab, folder: Path, **config: Any) -> Path:
    """The folder that write_tokenizer and its caller make."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**write_tokenizer(vocab, folder), **config}), "utf-8")
    return folder


def test_smollm2_comes_back_equal_from_its_exported_folder(smollm2: Path, tmp_path: Path) -> None:
    unnamed = Vocab.from_gguf(smollm2)
    assert unnamed.special == {"bos": 1, "eos": 2, "unk": 0, "pad": 2}
    vocab = replace(unnamed, special={"bos": 1, "eos": 2, "eot": 2, "unk": 0, "pad": 2})  # <|im_end|>
    again = Vocab.from_checkpoint(export(vocab, tmp_path / "hf", model_type="llama"))
    assert again == vocab
    assert again.digest_ordinary == vocab.digest_ordinary
    assert again.templates["default"] == vocab.templates["default"]
    assert (vocab.n_tokens, len(vocab.merges), vocab.pre) == (49152, 48900, "smollm")
    assert Vocab.from_checkpoint(export(unnamed, tmp_path / "hf", model_type="llama")) == vocab
    third = Vocab.from_gguf(write_gguf(tmp_path / "v.gguf", vocab_keys(vocab)))
    assert third == vocab


def test_kimi_comes_back_equal_from_its_exported_folder(kimi_folder: Path, tmp_path: Path) -> None:
    vocab = Vocab.from_checkpoint(kimi_folder)
    folder = export(vocab, tmp_path / "hf")
    assert (folder / "tiktoken.model").read_bytes() == (kimi_folder / "tiktoken.model").read_bytes()
    assert Vocab.from_checkpoint(folder) == vocab


def test_named_templates_survive_a_gguf_and_a_folder(tmp_path: Path) -> None:
    settings = {"chat_template": [{"name": "default", "template": "D"}, {"name": "rag", "template": "R"}]}
    vocab = folder_vocab(tokenizer_json(post_processor=None), tokenizer_config=settings)
    keys = [key for key, _, _ in vocab.gguf_keys()]
    assert keys[-3:] == ["tokenizer.chat_templates", "tokenizer.chat_template.rag", "tokenizer.chat_template"]
    assert Vocab.from_gguf(write_gguf(tmp_path / "v.gguf", vocab_keys(vocab))) == vocab
    assert Vocab.from_checkpoint(export(vocab, tmp_path / "hf")) == vocab


@pytest.mark.parametrize("pre", sorted(pre_tokenizers.KNOWN))
def test_each_known_pre_tokenizer_is_written_and_read_back(pre: str, tmp_path: Path) -> None:
    written = pre_tokenizers.to_json(pre)
    assert written is not None
    pre_tokenizer, _, ignore_merges = written
    assert pre_tokenizers.name_of(json.loads(json.dumps(pre_tokenizer)), ignore_merges) == pre
    doc = tokenizer_json(pre_tokenizer=pre_tokenizer, post_processor=None)
    doc["model"]["ignore_merges"] = ignore_merges
    config = {"add_bos_token": True, "bos_token": "<|bos|>", "add_eos_token": False}
    vocab = folder_vocab(doc, tokenizer_config=config, config={"vocab_size": 300})
    assert Vocab.from_checkpoint(export(vocab, tmp_path / "hf")) == vocab


def test_the_written_tokenizer_json_loads_in_the_tokenizers_library(smollm2: Path, tmp_path: Path) -> None:
    library = pytest.importorskip("tokenizers")
    vocab = Vocab.from_gguf(smollm2)
    export(vocab, tmp_path / "hf")
    tokenizer = library.Tokenizer.from_file(str(tmp_path / "hf" / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == vocab.n_tokens
    for text in TEXTS:
        ids = tokenizer.encode(text).ids
        assert vocab.decode(ids) == text.encode()
    assert tokenizer.encode("<|im_end|>x").ids[0] == 2


def test_a_gguf_without_or_with_a_broken_vocabulary_is_refused() -> None:
    with pytest.raises(FormatError, match="no vocabulary"):
        Vocab.from_header(read_header(gguf_bytes()))
    keys = {"tokenizer.ggml.tokens": ["a", "b"], "tokenizer.ggml.token_type": Typed(I32, [1])}
    with pytest.raises(FormatError, match="1 elements for 2 tokens"):
        Vocab.from_header(read_header(gguf_bytes(keys)))
    keys = {"tokenizer.ggml.tokens": ["a", "b"], "tokenizer.ggml.scores": Typed(I32, [1, 2, 3])}
    scores = Vocab.from_header(read_header(gguf_bytes(keys))).scores
    assert scores is not None
    assert (scores.tolist(), scores.dtype) == ([1, 2], np.float32)


def test_vocabularies_differ_when_any_field_does() -> None:
    base = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": ["a", "b"],
        "tokenizer.ggml.bos_token_id": 0,
    }
    vocab = Vocab.from_header(read_header(gguf_bytes(base)))
    assert vocab == Vocab.from_header(read_header(gguf_bytes(base)))
    for change in (
        {"tokenizer.ggml.tokens": ["a", "c"]},
        {"tokenizer.ggml.token_type": Typed(I32, [1, 3])},
        {"tokenizer.ggml.scores": Typed(F32, [0, 0])},
        {"tokenizer.ggml.bos_token_id": 1},
        {"tokenizer.ggml.merges": ["a b"]},
        {"tokenizer.ggml.add_bos_token": True},
        {"tokenizer.chat_template": "x"},
    ):
        other = Vocab.from_header(read_header(gguf_bytes({**base, **change})))
        assert other != vocab, change


def test_the_ordinary_digest_ignores_specials_and_minds_ids() -> None:
    def digest(tokens: list[str], types: list[int]) -> str:
        keys = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": Typed(I32, types)}
        return Vocab.from_header(read_header(gguf_bytes(keys))).digest_ordinary

    assert digest(["a", "b", "<x>"], [1, 1, 3]) == digest(["a", "b", "<y>", "<z>"], [1, 1, 4, 5])
    assert digest(["a", "b", "<x>"], [1, 1, 3]) != digest(["<x>", "a", "b"], [3, 1, 1])
    assert digest(["a", "b"], [1, 1]) != digest(["a", "c"], [1, 1])


def test_other_vocabularies_than_kimis_do_not_encode(smollm2: Path) -> None:
    with pytest.raises(Unsupported, match="only Kimi's") as caught:
        Vocab.from_gguf(smollm2).encode("x")
    assert "libllama" in caught.value.hint


def test_byte_letters_are_gpt2s() -> None:
    assert byte_letters.to_letters(b" a\n\x00\xff") == "ĠaĊĀÿ".encode()
    for data in (b"", bytes(range(256)), "é漢".encode()):
        assert byte_letters.to_bytes(byte_letters.to_letters(data)) == data
    tokens = [b"", b" a", bytes(range(256)), b""]
    assert byte_letters.all_to_bytes(byte_letters.all_to_letters(tokens)) == tokens
    assert byte_letters.to_bytes("漢".encode()) is None
    assert byte_letters.to_bytes(b"\xff") is None
    for wrong in ("漢".encode(), "\uffff".encode(), b" "):
        with pytest.raises(ValueError, match="letters"):
            byte_letters.all_to_bytes([b"a", wrong])
