"""tiktoken.model: what is read from it, its merges, and what is said about broken ones."""

from __future__ import annotations

import random
import time
from itertools import pairwise
from pathlib import Path

import pytest

from gguftools.errors import FormatError, InputError, Unsupported
from gguftools.vocab import Vocab, kimi
from gguftools.vocab.pieces import TokenType


def test_merges_are_what_a_plain_byte_pair_encoder_leaves() -> None:
    rng = random.Random(5)
    tokens = [bytes([byte]) for byte in range(256)]
    while len(tokens) < 1200:
        token = b"".join(rng.choices(tokens[97:117] + tokens[256:356], k=rng.choice((2, 2, 3))))
        if token not in tokens and len(token) < 40:
            tokens.append(token)
    ranks = {token: i for i, token in enumerate(tokens)}

    def parts_of(token: bytes) -> list[bytes]:
        parts = [bytes([byte]) for byte in token]
        while len(parts) > 1:
            found = [(ranks.get(a + b, 1 << 30), i) for i, (a, b) in enumerate(pairwise(parts))]
            rank, i = min(found)
            if rank >= ranks[token]:
                break
            parts[i : i + 2] = [parts[i] + parts[i + 1]]
        return parts

    letters, merges = kimi.letters_and_merges(tokens, "x")
    wanted = [parts for parts in map(parts_of, tokens) if len(parts) == 2]
    assert len(letters) == len(tokens)
    assert 100 < len(wanted) < len(tokens) - 356  # some cannot be reached
    translate = dict(zip(tokens, letters, strict=True))
    assert merges == [translate[a] + b" " + translate[b] for a, b in wanted]


def test_reading_and_converting_is_fast(kimi_folder: Path) -> None:
    start = time.perf_counter()
    Vocab.from_checkpoint(kimi_folder)
    assert time.perf_counter() - start < 2


def test_padding_beyond_the_256_specials_is_unused(kimi_folder: Path) -> None:
    files = {path.name: path.read_bytes() for path in kimi_folder.iterdir()}
    wide = Vocab.from_checkpoint({**files, "config.json": b'{"vocab_size": 163842}'})
    assert wide.texts[163_838:] == [b"[UNK]", b"[PAD]", b"[PAD163840]", b"[PAD163841]"]
    assert wide.types[-3:].tolist() == [TokenType.CONTROL, TokenType.UNUSED, TokenType.UNUSED]
    assert Vocab.from_checkpoint({**files, "config.json": b"{}"}).n_tokens == 163_840
    inner = Vocab.from_checkpoint({**files, "config.json": b'{"text_config": {"vocab_size": 163842}}'})
    assert inner == wide
    with pytest.raises(InputError, match="rows for 100"):
        Vocab.from_checkpoint({**files, "config.json": b'{"vocab_size": 100}'})


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"QQ== 1\n", "rank 1 where 0 should be"),
        (b"QQ==\n", "invalid literal"),
        (b"Q 0\n", "padding|base64"),
        (b"QQ== 0\n", "256 single bytes"),
    ],
)
def test_a_broken_tiktoken_model_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(FormatError, match=why):
        kimi.read_ranks(data)


def test_equal_and_overlong_tokens_are_refused() -> None:
    single = [bytes([byte]) for byte in range(256)]
    with pytest.raises(FormatError, match="rank 256 is there twice"):
        kimi.letters_and_merges([*single, b"a"], "x")
    with pytest.raises(FormatError, match="rank 256 is longer"):
        kimi.letters_and_merges([*single, b"a" * 513], "x")
    letters, merges = kimi.letters_and_merges([*single, b"", b"aa"], "x")
    assert (letters[256], merges) == (b"", [b"a a"])


def test_another_models_tiktoken_model_is_unsupported(kimi_folder: Path) -> None:
    with pytest.raises(Unsupported, match="not Kimi's"):
        Vocab.from_checkpoint({"tiktoken.model": b"QQ== 0\n"})
