"""Gemma's vocabulary: SentencePiece with names and padding, the same from either of its files."""

from __future__ import annotations

import json
from pathlib import Path

import lowlevel
import parity_files
import pytest
import tiny
from gemma3_forward import GEMMA3, weights

from gguftools.verbs.convert import convert
from gguftools.vocab import Vocab


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    parity_files.write_gemma(folder)
    return folder


def test_the_embeddings_rows_that_no_token_has_are_padding(tmp_path: Path, tokenizer: Path) -> None:
    tiny.write_checkpoint(tmp_path / "m", GEMMA3, weights(GEMMA3), tokenizer=tokenizer)
    convert(tmp_path / "m", tmp_path / "m.gguf")
    vocab = Vocab.from_gguf(tmp_path / "m.gguf")
    assert vocab.n_tokens == 288
    assert [vocab.texts[i] for i in (275, 276, 277, 287)] == [
        b"e",
        b"<image_soft_token>",
        b"[PAD277]",
        b"[PAD287]",
    ]
    assert vocab.types[[275, 276, 277]].tolist() == [1, 3, 5]
    assert vocab.scores is not None
    assert vocab.scores[[272, 276, 277]].tolist() == [-3.0, -1000.0, -10000.0]
    assert vocab.special == {"bos": 2, "eos": 1, "eot": 8, "unk": 3, "pad": 0}
    assert (vocab.model, vocab.pre, vocab.add_bos, vocab.add_space_prefix) == (
        "llama",
        "default",
        True,
        False,
    )


@pytest.mark.parametrize("kept", ["tokenizer.json", "tokenizer.model"])
def test_either_file_of_the_tokenizer_gives_the_same_vocabulary(
    tmp_path: Path, tokenizer: Path, kept: str
) -> None:
    both = {path.name: path.read_bytes() for path in tokenizer.iterdir()}
    both["config.json"] = json.dumps(GEMMA3).encode()
    gone = {"tokenizer.json": "tokenizer.model", "tokenizer.model": "tokenizer.json"}[kept]
    alone = {name: data for name, data in both.items() if name != gone}
    assert Vocab.from_checkpoint(alone) == Vocab.from_checkpoint(both)


def test_gemma_gets_no_space_before_a_text_whatever_its_files_say(tokenizer: Path) -> None:
    files = {path.name: path.read_bytes() for path in tokenizer.iterdir()}
    files["tokenizer.model"] = parity_files.spm_model(parity_files.GEMMA, space=True)
    for kind, prefix in (("gemma3_text", False), ("gemma3", False), ("llama", None)):
        files["config.json"] = json.dumps({"model_type": kind, "vocab_size": 288}).encode()
        assert Vocab.from_checkpoint(files).add_space_prefix is prefix


def test_a_config_with_vision_that_names_no_size_has_transformers_own(tokenizer: Path) -> None:
    files = {path.name: path.read_bytes() for path in tokenizer.iterdir()}
    files["config.json"] = json.dumps({"model_type": "gemma3", "text_config": {}}).encode()
    vocab = Vocab.from_checkpoint(files)
    assert vocab.n_tokens == 262208
    assert vocab.texts[262207] == b"[PAD262207]"


def test_libllama_tokenizes_as_gemma_does(tmp_path: Path, tokenizer: Path) -> None:
    """Spaces are ▁, a text begins without one, unknown letters fall back to bytes, names are whole."""
    tiny.write_checkpoint(tmp_path / "m", GEMMA3, weights(GEMMA3), tokenizer=tokenizer)
    convert(tmp_path / "m", tmp_path / "m.gguf")
    names = Vocab.from_gguf(tmp_path / "m.gguf").texts.tolist()
    with lowlevel.model(tmp_path / "m.gguf", vocab_only=True) as loaded:
        found = lowlevel.tokenize(loaded, "the the\n\na<end_of_turn>", parse_special=True)
    text = ["t", "he", "▁the", "\n\n", "<0x61>", "<end_of_turn>"]
    assert [names[i].decode() for i in found] == text
