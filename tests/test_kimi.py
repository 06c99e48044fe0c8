"""Kimi's vocabulary: from tiktoken.model, from a GGUF, and its encoding against two other tokenizers."""

from __future__ import annotations

import dataclasses
import json
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from gguf_files import vocab_keys, write_gguf
from hypothesis import given, settings
from hypothesis import strategies as st

from gguftools.errors import FormatError
from gguftools.header.strings import StringArray
from gguftools.vocab import Vocab, kimi
from gguftools.vocab.pieces import TokenType

# Names that Kimi-K2.5 adds; the goldens were made with them.
K25 = {
    163602: "<|media_begin|>",
    163603: "<|media_content|>",
    163604: "<|media_end|>",
    163605: "<|media_pad|>",
    163606: "<think>",
    163607: "</think>",
}
# Latin, Greek, Cyrillic, Hebrew, Arabic, Hindi, Thai, kana, Han and its extensions, hangul, emoji, marks.
SCRIPTS = [
    *(
        (0x20, 0x7E),
        (0x20, 0x7E),
        (0x61, 0x7A),
        (0xA0, 0x24F),
        (0x300, 0x36F),
        (0x370, 0x3FF),
        (0x400, 0x4FF),
    ),
    *((0x590, 0x5FF), (0x600, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F), (0x1E00, 0x1EFF), (0x2000, 0x206F)),
    *((0x2070, 0x218F), (0x2460, 0x24FF), (0x2E80, 0x2FDF), (0x3000, 0x303F), (0x3040, 0x30FF)),
    *((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xF900, 0xFAFF), (0xFE00, 0xFE0F)),
    *((0xFF00, 0xFFEF), (0x1F300, 0x1FAFF), (0x1D400, 0x1D7FF), (0x20000, 0x2A6DF), (0x30000, 0x3134F)),
]
PIECES = [
    " ",
    "  ",
    "\n",
    "\r\n",
    "\t",
    "'s",
    "'LL",
    "’t",
    "12345",
    "々〇",
    "\u200d",
    "\ufe0f",
    "HTTPError",
    "...!",
]


@pytest.fixture(scope="session")
def kimi_vocab(kimi_folder: Path) -> Vocab:
    return Vocab.from_checkpoint(kimi_folder)


@pytest.fixture(scope="session")
def k25_vocab(kimi_folder: Path) -> Vocab:
    files = {path.name: path.read_bytes() for path in kimi_folder.iterdir()}
    config = json.loads(files["tokenizer_config.json"])
    config["added_tokens_decoder"] |= {str(i): {"content": name} for i, name in K25.items()}
    return Vocab.from_checkpoint({**files, "tokenizer_config.json": json.dumps(config).encode()})


@pytest.fixture(scope="session")
def kimi_gguf(kimi_vocab: Vocab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("kimi") / "kimi.gguf", vocab_keys(kimi_vocab))


def texts(count: int, seed: int) -> list[str]:
    """Generated texts in many scripts, mixed and alone."""
    rng = random.Random(seed)
    out = []
    for _ in range(count):
        ranges = rng.choices(SCRIPTS, k=rng.choice((1, 1, 2, 3)))
        words = []
        for _ in range(rng.randrange(1, 12)):
            first, last = rng.choice(ranges)
            words.append("".join(chr(rng.randint(first, last)) for _ in range(rng.randrange(1, 9))))
            words.append(rng.choice(PIECES) if rng.random() < 0.6 else "")
        out.append("".join(words))
    return out


def test_the_vocabulary_is_as_llama_cpps_converter_writes_it(kimi_vocab: Vocab) -> None:
    assert kimi_vocab.n_tokens == 163_840
    assert len(kimi_vocab.merges) == 163_328
    assert (kimi_vocab.model, kimi_vocab.pre, kimi_vocab.scores) == ("gpt2", "kimi-k2", None)
    assert (kimi_vocab.types[163_584:] == TokenType.CONTROL).all()
    assert (kimi_vocab.types[:163_584] == TokenType.NORMAL).all()
    assert kimi_vocab.special == {"bos": 163584, "eos": 163586, "eot": 163586, "unk": 163838, "pad": 163839}
    assert kimi_vocab.texts[163589] == b"<|reserved_token_163589|>"
    assert kimi_vocab.texts[163586] == b"<|im_end|>"
    assert kimi_vocab.eog() == {163585, 163586, 163593, 163839}
    assert kimi_vocab.merges[:3] == ["Ġ Ġ".encode(), "ĠĠ ĠĠ".encode(), "Ġ t".encode()]
    assert kimi_vocab.tokens[33845] == "你好".encode()


def test_each_merge_makes_the_token_of_its_rank(kimi_vocab: Vocab) -> None:
    texts = kimi_vocab.texts[:163_584]
    made = [merge.replace(b" ", b"") for merge in kimi_vocab.merges]
    lengths = [len(text.decode()) for text in texts]
    assert made == [text for text, length in zip(texts, lengths, strict=True) if length > 1]
    ranks = {text: i for i, text in enumerate(texts)}
    for i in random.Random(3).sample(range(len(made)), 3000):
        left, right = kimi_vocab.merges[i].split(b" ")
        assert max(ranks[left], ranks[right]) < ranks[left + right]


def test_from_a_gguf_it_is_equal_and_encodes_the_same(kimi_vocab: Vocab, kimi_gguf: Path) -> None:
    again = Vocab.from_gguf(kimi_gguf)
    assert again == kimi_vocab
    for name in ("digest_ordinary", "digest_tokens", "digest_merges"):
        assert getattr(again, name) == getattr(kimi_vocab, name)
    for text in texts(300, 1):
        assert again.encode(text) == kimi_vocab.encode(text)
        assert again.decode(again.encode(text)) == text.encode()


def test_reading_and_digesting_a_gguf_takes_a_moment(kimi_gguf: Path) -> None:
    def reading() -> float:
        start = time.perf_counter()
        vocab = Vocab.from_gguf(kimi_gguf)
        assert vocab.digest_ordinary
        assert vocab.digest_merges
        assert vocab.eog()
        return time.perf_counter() - start

    assert min(reading() for _ in range(5)) < 0.1


def test_every_golden_is_encoded_exactly(k25_vocab: Vocab, shared_data: Path) -> None:
    cases = json.loads((shared_data / "kimi" / "golden.json").read_text("utf-8"))["cases"]
    assert len(cases) > 50
    for case in cases:
        assert k25_vocab.encode(case["text"]) == case["ids_ordinary"], case["text"]
        assert k25_vocab.encode(case["text"], parse_special=True) == case["ids_special"], case["text"]


def test_chat_goldens_are_encoded_exactly(k25_vocab: Vocab, kimi_vocab: Vocab) -> None:
    start, end = "<|im_user|>user<|im_middle|>", "<|im_end|><|im_assistant|>assistant<|im_middle|>"
    hello = [163587, 2482, 163601, 22931, 163586, 163588, 69702, 163601]
    revolution = [
        163587,
        2482,
        163601,
        69211,
        1019,
        1215,
        276,
        64782,
        25317,
        13,
        163586,
        163588,
        69702,
        163601,
    ]
    encoded = k25_vocab.encode(f"{start}hello{end}<think></think>", parse_special=True)
    assert encoded == [*hello, 163606, 163607]
    text = f"{start}Tell me about the french revolution.{end}"
    assert kimi_vocab.encode(text, parse_special=True) == revolution
    assert 163587 not in kimi_vocab.encode(text)


def test_thousands_of_texts_are_encoded_as_splintr_does(kimi_vocab: Vocab) -> None:
    other = pytest.importorskip("splintr").Tokenizer.from_pretrained("kimi_k2")
    for text in texts(5000, 2):
        assert kimi_vocab.encode(text) == other.encode_ordinary(text), repr(text)


def test_thousands_of_texts_are_encoded_as_the_plain_library_does(
    kimi_vocab: Vocab, kimi_folder: Path
) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    ranks = {
        token: i for i, token in enumerate(kimi.read_ranks((kimi_folder / "tiktoken.model").read_bytes()))
    }
    plain = tiktoken.Encoding("plain", pat_str=kimi.PATTERN, mergeable_ranks=ranks, special_tokens={})

    @settings(max_examples=400, deadline=None)
    @given(st.text(max_size=200))
    def check(text: str) -> None:
        ids = kimi_vocab.encode(text)
        assert ids == plain.encode_ordinary(text)
        assert kimi_vocab.decode(ids) == text.encode()

    check()
    for text in texts(2000, 4):
        assert kimi_vocab.encode(text) == plain.encode_ordinary(text)


def test_the_pattern_is_moonshots(shared_data: Path) -> None:
    assert (shared_data / "kimi" / "pat_str.txt").read_text("utf-8").strip("\n") == kimi.PATTERN


def moonshots_split(text: str, most: int, run: int) -> list[str]:
    """Character by character: a piece ends before the character that would make its run too long."""
    pieces = []
    for first in range(0, len(text), most):
        chunk, start, length = text[first : first + most], 0, 0
        for i, char in enumerate(chunk):
            same = i > 0 and char.isspace() == chunk[i - 1].isspace()
            length = length + 1 if same else 1
            if length > run:
                pieces.append(chunk[start:i])
                start, length = i, 1
        pieces.append(chunk[start:])
    return pieces


def test_long_texts_are_split_as_moonshots_code_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kimi, "MAX_CHARS", 40)
    monkeypatch.setattr(kimi, "MAX_RUN", 5)
    rng = random.Random(6)
    for _ in range(2000):
        text = "".join(
            rng.choice("ab \n\u3000\x1c\x85") * rng.randrange(1, 14) for _ in range(rng.randrange(12))
        )
        assert list(kimi.split(text)) == moonshots_split(text, 40, 5)


@pytest.mark.parametrize(
    "text", [" " * 1_000_000, "a" * 60_001, "x y" * 200_000, "\n" * 25_001, " a" * 13_000]
)
def test_very_long_texts_do_not_panic(kimi_vocab: Vocab, text: str) -> None:
    start = time.perf_counter()
    assert kimi_vocab.decode(kimi_vocab.encode(text)) == text.encode()
    assert time.perf_counter() - start < 5
    assert list(kimi.split(text)) == moonshots_split(text, kimi.MAX_CHARS, kimi.MAX_RUN)


def test_names_of_special_tokens_are_text_unless_asked_for(kimi_vocab: Vocab) -> None:
    for name in ("<|im_end|>", "[EOS]", "<|reserved_token_163700|>"):
        ordinary = kimi_vocab.encode(name)
        assert all(i < 163_584 for i in ordinary)
        assert kimi_vocab.decode(ordinary) == name.encode()
        (i,) = kimi_vocab.encode(name, parse_special=True)
        assert kimi_vocab.decode([i]) == name.encode()


def test_a_gguf_whose_types_are_missing_still_encodes(kimi_vocab: Vocab) -> None:
    plain = dataclasses.replace(kimi_vocab, types=np.ones(163_840, np.int32), _cache={})
    assert plain.encode("Hello, world! 你好") == kimi_vocab.encode("Hello, world! 你好")


def test_a_vocabulary_that_only_claims_to_be_kimis_is_refused(kimi_vocab: Vocab) -> None:
    for texts_ in ([b"a", b"b"], ["日".encode(), b"b"]):
        fake = dataclasses.replace(
            kimi_vocab, texts=StringArray.pack(texts_), types=np.ones(2, np.int32), _cache={}
        )
        with pytest.raises(FormatError):
            fake.encode("a")


def test_tiktoken_is_imported_only_when_something_is_encoded(kimi_folder: Path) -> None:
    code = (
        "import sys; from gguftools.vocab import Vocab; Vocab.from_checkpoint(sys.argv[1]).eog();"
        "assert 'tiktoken' not in sys.modules and 'llama_cpp' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(kimi_folder)], check=True)
