"""Small vocabularies for tests, made without files; and random ones, wrong in all ways that a GGUF can be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from gguftools.header import StringArray
from gguftools.vocab import TokenType, Vocab, byte_letters

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = (
    TokenType.NORMAL,
    TokenType.UNKNOWN,
    TokenType.CONTROL,
    TokenType.USER_DEFINED,
    TokenType.UNUSED,
    TokenType.BYTE,
)
Token = tuple[bytes, int]


def make(
    model: str,
    tokens: Sequence[Token],
    *,
    merges: Sequence[bytes] = (),
    scores: Sequence[float] | None = None,
    special: Mapping[str, int] = {},
    template: str | None = None,
    add_bos: bool | None = None,
) -> Vocab:
    """A vocabulary of (text as stored, type) pairs."""
    return Vocab(
        model,
        "default",
        StringArray.pack([text for text, _ in tokens]),
        np.array([kind for _, kind in tokens], np.int32),
        None if scores is None else np.array(scores, np.float32),
        StringArray.pack(merges),
        dict(special),
        add_bos,
        None,
        None,
        {} if template is None else {"default": template},
    )


def bpe(words: Sequence[bytes] = (), specials: Sequence[str] = (), **more: object) -> Vocab:
    """All 256 bytes, these words in real bytes (with the merges that make them byte by byte), specials."""
    letters = [byte_letters.to_letters(bytes([byte])) for byte in range(256)]
    texts, merges = list(letters), []
    for word in words:
        for end in range(2, len(word) + 1):
            left, right = (
                byte_letters.to_letters(word[: end - 1]),
                byte_letters.to_letters(word[end - 1 : end]),
            )
            merges.append(left + b" " + right)
        texts.append(byte_letters.to_letters(word))
    tokens = [(text, int(NORMAL)) for text in texts] + [(text.encode(), int(CONTROL)) for text in specials]
    return make("gpt2", tokens, merges=merges, **more)  # type: ignore[arg-type]


def spm(words: Sequence[str], specials: Sequence[str] = ("<unk>", "<s>", "</s>"), **more: object) -> Vocab:
    """Llama-2's kind: specials, 256 byte tokens, these words (▁ for a space), earlier ones merged first."""
    tokens = [(text.encode(), int(CONTROL)) for text in specials]
    tokens += [(b"<0x%02X>" % byte, int(BYTE)) for byte in range(256)]
    tokens += [(word.encode(), int(NORMAL)) for word in words]
    scores = [0.0] * (len(tokens) - len(words)) + [-float(i) for i in range(len(words))]
    return make("llama", tokens, scores=scores, **more)  # type: ignore[arg-type]


def real_gguf(name: str) -> Path:
    """A real model in the folder of assets beside this checkout; the test is skipped where it is not."""
    path = Path(__file__).resolve().parent.parent.parent / "assets" / "gguf" / name
    if not path.is_file():
        pytest.skip(f"{name} is not in the folder of assets beside this checkout")
    return path


QWEN = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"

NAMES = (
    *(
        "<|im_start|>",
        "<|im_end|>",
        "<|endoftext|>",
        "<|im_user|>",
        "<|im_middle|>",
        "[BOS]",
        "[EOS]",
        "[EOT]",
    ),
    *("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<s>", "</s>", "<unk>", "[INST]", "[/INST]"),
    *(
        "<｜User｜>",
        "<｜Assistant｜>",
        "<start_of_turn>",
        "<end_of_turn>",
        "<think>",
        "</think>",
        "<tool_call>",
    ),
    *(
        "<|reserved_token_9|>",
        "[PAD7]",
        "<unused1>",
        "<table>",
        "<h1>",
        "<|",
        "|>",
        "<>",
        "[]",
        "▁",
        "<0x0A>",
    ),
)
_TEMPLATES = (
    "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\n' ~ m.content ~ '<|im_end|>\n' }}{% endfor %}",
    "{% for m in messages %}{{ m.content }}<|eot_id|>{% endfor %}",
    "{{ raise_exception('no') }}",
    "{% for i in range(99999999) %}x{% endfor %}",
    "{% if %}",
    "{{ messages[7].content }}",
    "{{ 'Quartzite' * 3 }}<|im_end|>{{ '\\ud800' }}",
    "{% for m in messages %}[INST]{{ m.content }}[/INST]{% endfor %}",
)


def _texts() -> st.SearchStrategy[bytes]:
    real = st.binary(max_size=6)
    return st.one_of(
        real.map(byte_letters.to_letters),
        st.sampled_from(["ab", "a", "b", "Ġa", "Ċ", "abc", "▁", "▁a", "▁▁", "é", "中"]).map(str.encode),
        st.integers(0, 255).map(lambda byte: byte_letters.LETTERS[byte].encode()),
        st.integers(0, 255).map(lambda byte: b"<0x%02X>" % byte),
        st.sampled_from(NAMES).map(str.encode),
        real,
        st.just(b""),
    )


@st.composite
def vocabularies(draw: st.DrawFn) -> Vocab:
    """Holes, empty tokens, duplicates, invalid UTF-8, specials without text, ids and types out of range."""
    model = draw(st.sampled_from(["gpt2", "llama"]))
    kinds = st.sampled_from([NORMAL] * 6 + [BYTE, CONTROL, CONTROL, USER, UNUSED, UNKNOWN, 0, 7, -1]).map(int)
    tokens = draw(st.lists(st.tuples(_texts(), kinds), max_size=40))
    if draw(st.booleans()):
        tokens += [(letter.encode(), int(NORMAL)) for letter in byte_letters.LETTERS]
    if draw(st.booleans()):
        tokens += [(b"<0x%02X>" % byte, int(BYTE)) for byte in range(256)]
    some = [text for text, _ in tokens[:40]] or [b"a"]
    pairs = st.tuples(st.sampled_from(some), st.sampled_from(some)).map(b" ".join)
    merges = draw(st.lists(st.one_of(pairs, st.binary(max_size=4)), max_size=20))
    numbers = st.floats(width=32)
    scores = draw(st.none() | st.lists(numbers, min_size=len(tokens), max_size=len(tokens)))
    named = st.sampled_from(["bos", "eos", "eot", "eom", "pad", "fim_pre", "fim_rep"])
    special = draw(st.dictionaries(named, st.integers(-3, len(tokens) + 3), max_size=4))
    template = draw(st.none() | st.sampled_from(_TEMPLATES))
    add_bos = draw(st.none() | st.booleans())
    return make(
        model, tokens, merges=merges, scores=scores, special=special, template=template, add_bos=add_bos
    )
