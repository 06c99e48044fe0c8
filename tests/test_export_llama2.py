"""export: Llama-2's kind of vocabulary becomes a tokenizer.model; keys no config.json can say are refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import lowlevel
import numpy as np
import pytest
import tiny
from gguf_files import Tensor, vocab_keys, write_gguf
from tokenizer_files import spm_model

from gguftools.errors import FormatError, GGUFToolsError, InputError, Unsupported
from gguftools.header import read_header
from gguftools.header.strings import StringArray
from gguftools.verbs.convert import convert
from gguftools.verbs.export import export
from gguftools.vocab import Vocab, sentencepiece

SETTINGS = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "add_bos_token": True,
    "chat_template": "{{ messages }}",
    "added_tokens_decoder": {
        "269": {"content": "<|user|>", "special": True},
        "270": {"content": "<tool>", "special": False},
    },
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The GGUF of a tiny Llama with sentencepiece's vocabulary, two tokens added later, and padding."""
    folder = tmp_path_factory.mktemp("llama2")
    (folder / "tokenizer").mkdir()
    (folder / "tokenizer" / "tokenizer.model").write_bytes(spm_model())
    (folder / "tokenizer" / "tokenizer_config.json").write_text(json.dumps(SETTINGS))
    weights = tiny.weights(tiny.LLAMA)
    checkpoint = tiny.write_checkpoint(folder / "hf", tiny.LLAMA, weights, tokenizer=folder / "tokenizer")
    return convert(checkpoint, folder / "m.gguf").path


def test_a_llama_2_vocabulary_comes_back_equal_and_libllama_reads_it_alike(
    source: Path, tmp_path: Path
) -> None:
    folder = export(source, tmp_path / "hf").path
    assert (folder / "tokenizer.model").is_file()
    assert not (folder / "tokenizer.json").exists()
    again = convert(folder, tmp_path / "again.gguf").path
    vocab = Vocab.from_gguf(source)
    assert Vocab.from_gguf(again) == vocab == Vocab.from_checkpoint(folder)
    assert vocab.special == {"bos": 1, "eos": 2, "unk": 0}
    assert vocab.types[[0, 1, 3, 259, 268, 269, 270]].tolist() == [2, 3, 6, 1, 5, 3, 4]
    for text in ("the het é", "  the\n", "<|user|> the <tool>"):
        ids = []
        for path in (source, again):
            with lowlevel.model(path, vocab_only=True) as loaded:
                ids.append(lowlevel.tokenize(loaded, text, parse_special=True))
        assert ids[0] == ids[1] != []


@pytest.mark.parametrize("space", [True, False, None])
def test_whether_a_space_is_put_before_a_text_survives(
    source: Path, tmp_path: Path, space: bool | None
) -> None:
    vocab = replace(Vocab.from_gguf(source), add_space_prefix=space)
    files = {"tokenizer.model": sentencepiece.model_bytes(vocab)}
    files["config.json"] = json.dumps({"vocab_size": vocab.n_tokens}).encode()
    found = Vocab.from_checkpoint(files)
    assert found.add_space_prefix is (False if space is False else None)  # libllama puts one where none says
    assert found.texts == vocab.texts


@pytest.mark.parametrize(
    "change",
    [
        {"types": np.ones(288, np.int32)},
        {"texts": StringArray.pack([b"<unk>", b"", *(b"%d" % i for i in range(286))])},
        {"texts": StringArray.pack([b"<unk>", b"x", b"x", *(b"%d" % i for i in range(285))])},
    ],
)
def test_what_sentencepiece_would_refuse_is_not_written(source: Path, change: dict[str, Any]) -> None:
    with pytest.raises(FormatError, match="UNKNOWN piece"):
        sentencepiece.model_bytes(replace(Vocab.from_gguf(source), **change))


@pytest.mark.parametrize(
    ("key", "value", "error", "why"),
    [
        ("llama.rope.dimension_count", 16, Unsupported, "rotates 16 of the 32"),
        ("llama.attention.layer_norm_rms_epsilon", float("nan"), InputError, "config.json cannot say"),
        ("llama.rope.scaling.type", "yarn", InputError, "yarn's factor"),
    ],
)
def test_keys_that_config_json_cannot_say_are_refused(
    source: Path, tmp_path: Path, key: str, value: Any, error: type[GGUFToolsError], why: str
) -> None:
    header = read_header(source)
    keys = {name: v for name, v in header.keys.items() if name.startswith(("llama.", "general."))}
    keys |= vocab_keys(Vocab.from_header(header)) | {"llama.rope.scaling.factor": 0.5, key: value}
    data = source.read_bytes()
    tensors = [
        Tensor(info.name, info.shape, info.type, data[info.offset : info.offset + info.nbytes])
        for info in header.tensors
    ]
    broken = write_gguf(tmp_path / "broken.gguf", keys, tensors)
    with pytest.raises(error, match=why):
        export(broken, tmp_path / "hf")
    assert not (tmp_path / "hf").exists()
