"""A draft-shaped Qwen2 with the real Kimi vocabulary: converted, loaded and tokenized by libllama."""

from __future__ import annotations

import json
import time
import unicodedata
from pathlib import Path

import lowlevel
import numpy as np
import numpy_forward
import pytest
import tiny

from gguftools.verbs.convert import convert
from gguftools.verbs.export import export
from gguftools.vocab import Vocab

KIMI_QWEN2 = {**tiny.QWEN2, "vocab_size": 163840, "num_hidden_layers": 1, "tie_word_embeddings": True}


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory, kimi_folder: Path) -> Path:
    """The GGUF of a random Qwen2 with Kimi's tokenizer from another folder."""
    folder = tmp_path_factory.mktemp("draft")
    tiny.write_checkpoint(folder / "hf", KIMI_QWEN2, tiny.weights(KIMI_QWEN2))
    convert(folder / "hf", folder / "m.gguf", outtype="f32", tokenizer=kimi_folder)
    return folder / "m.gguf"


def test_libllama_loads_it_and_reports_163840_tokens(draft: Path) -> None:
    with lowlevel.model(draft) as loaded:
        assert lowlevel.n_tokens(loaded) == 163840


def test_its_logits_are_those_of_the_forward_pass(draft: Path) -> None:
    ids = [163587, 2482, 163601, 22931, 163586, 163588, 69702, 163601]
    wanted = numpy_forward.forward(KIMI_QWEN2, tiny.weights(KIMI_QWEN2), ids)
    assert np.abs(lowlevel.logits(draft, ids) - wanted).max() < 1e-3


def test_the_vocabulary_is_the_checkpoints(draft: Path, kimi_folder: Path) -> None:
    assert Vocab.from_gguf(draft) == Vocab.from_checkpoint(kimi_folder)


# Where libllama's kimi-k2 splitter deviates from Moonshot's pattern so that the ids differ: words with
# combining marks. Prompts in these scripts need tiktoken (Vocab.encode).
DEVIATIONS = {
    "Hindi": "हिन्दी में परीक्षण",
    "Bengali": "এবং প্রথম",
    "Tamil": "தமிழ் மொழியில்",
    "Malayalam": "മലയാളത്തിൽ",
    "Thai": "ภาษาไทยที่เป็น",
    "Burmese": "မြန်မာနိုင်ငံ",
    "Punjabi": "ਪੰਜਾਬੀ ਵਿੱਚ",
    "Arabic with vowel signs": "شكراً",
    "Yoruba, decomposed accents": "ọ́ ẹ́",
}
# It splits these in another way too, but no token reaches over the split: the ids are the same.
HARMLESS = ["人々の時々", "二〇二六年", "漢\U00030000字\U0002ebf0", "I ❤\ufe0f you", "cafe\u0301", "שָׁלוֹם"]


def test_libllama_tokenizes_the_goldens_as_tiktoken_but_for_the_listed(
    draft: Path, shared_data: Path
) -> None:
    cases = json.loads((shared_data / "kimi" / "golden.json").read_text("utf-8"))["cases"]
    with lowlevel.model(draft, vocab_only=True) as loaded:
        wrong = {c["text"] for c in cases if lowlevel.tokenize(loaded, c["text"]) != c["ids_ordinary"]}
    assert len(cases) > 50
    assert wrong == {"हिन्दी में परीक्षण"} <= set(DEVIATIONS.values())


def test_each_listed_deviation_is_one_and_decodes_to_the_same_text(draft: Path) -> None:
    vocab = Vocab.from_gguf(draft)
    with lowlevel.model(draft, vocab_only=True) as loaded:
        for text in DEVIATIONS.values():
            theirs = lowlevel.tokenize(loaded, text)
            assert theirs != vocab.encode(text), text
            assert vocab.decode(theirs) == vocab.decode(vocab.encode(text)) == text.encode()
        for text in HARMLESS:
            assert lowlevel.tokenize(loaded, text) == vocab.encode(text), text


def test_of_all_tokens_libllama_takes_only_some_with_combining_marks_apart(draft: Path) -> None:
    vocab = Vocab.from_gguf(draft)
    apart = []
    with lowlevel.model(draft, vocab_only=True) as loaded:
        for i, token in enumerate(vocab.tokens[:163584]):
            text = token.decode("utf-8", "ignore")
            if text.encode() == token and lowlevel.tokenize(loaded, text) not in ([i], vocab.encode(text)):
                apart.append(text)
    assert 0 < len(apart) < 300
    assert all(any(unicodedata.category(letter).startswith("M") for letter in text) for text in apart)


def test_libllama_parses_the_special_tokens_of_a_chat(draft: Path) -> None:
    text = "<|im_user|>user<|im_middle|>hello<|im_end|><|im_assistant|>assistant<|im_middle|>"
    with lowlevel.model(draft, vocab_only=True) as loaded:
        found = lowlevel.tokenize(loaded, text, parse_special=True)
    assert found == [163587, 2482, 163601, 22931, 163586, 163588, 69702, 163601]


def test_the_vocabulary_alone_takes_at_most_three_seconds(tmp_path: Path, kimi_folder: Path) -> None:
    start = time.perf_counter()
    done = convert(kimi_folder, tmp_path / "v.gguf", vocab_only=True)
    assert time.perf_counter() - start < 3
    assert (done.n_tokens, done.architecture) == (163840, "deepseek2")
    assert Vocab.from_gguf(tmp_path / "v.gguf") == Vocab.from_checkpoint(kimi_folder)
    with lowlevel.model(tmp_path / "v.gguf", vocab_only=True) as loaded:
        assert lowlevel.n_tokens(loaded) == 163840


def test_export_brings_tiktoken_model_back_byte_for_byte(
    tmp_path: Path, draft: Path, kimi_folder: Path
) -> None:
    export(draft, tmp_path / "back")
    assert (tmp_path / "back" / "tiktoken.model").read_bytes() == (
        kimi_folder / "tiktoken.model"
    ).read_bytes()
    assert Vocab.from_checkpoint(tmp_path / "back") == Vocab.from_gguf(draft)
    convert(tmp_path / "back", tmp_path / "again.gguf")
    assert Vocab.from_gguf(tmp_path / "again.gguf") == Vocab.from_gguf(draft)
