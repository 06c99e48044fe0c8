"""Tokenizer files for tests: a small byte-level tokenizer.json, and one of Llama-2's kind in both forms."""

from __future__ import annotations

import json
import struct
from typing import Any

from gguftools.vocab import Vocab, byte_letters, pre_tokenizers

LETTERS = [byte_letters.to_letters(bytes([byte])).decode() for byte in range(256)]


def tokenizer_json(**changes: Any) -> dict[str, Any]:
    """A small byte-level tokenizer.json."""
    vocab = {letter: i for i, letter in enumerate([*LETTERS, "Ġt", "he", "Ġthe"])}
    doc = {
        "added_tokens": [
            {"id": 259, "content": "<|bos|>", "special": True},
            {"id": 260, "content": "<|im_end|>", "special": True},
            {"id": 261, "content": "<tool_call>", "special": False},
            {"id": 262, "content": "<|fim_pad|>", "special": False},
        ],
        "pre_tokenizer": pre_tokenizers.to_json("qwen2")[0],  # type: ignore[index]
        "post_processor": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": vocab, "merges": ["Ġ t", "h e", "Ġt he"]},
    }
    return {**doc, **changes}


def folder_vocab(doc: dict[str, Any], **files: Any) -> Vocab:
    """from_checkpoint of files given as objects; `config` stands for config.json and so on."""
    named = {f"{name}.json": json.dumps(value).encode() for name, value in files.items()}
    return Vocab.from_checkpoint({"tokenizer.json": json.dumps(doc).encode(), **named})


def spm_doc() -> tuple[dict[str, Any], dict[str, int]]:
    """A tokenizer.json of Llama-2's kind."""
    texts = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁t",
        "he",
        "▁the",
        "▁",
        "t",
        "h",
        "e",
    ]
    vocab = {text: i for i, text in enumerate(texts)}
    doc = {
        "added_tokens": [{"id": i, "content": texts[i], "special": True} for i in range(3)],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            ],
        },
        "model": {
            "type": "BPE",
            "byte_fallback": True,
            "unk_token": "<unk>",
            "vocab": vocab,
            "merges": ["▁ t", "h e", "▁t he"],
        },
    }
    return doc, vocab


def _proto(fields: list[tuple[int, bytes | int | float]]) -> bytes:
    out = b""
    for number, value in fields:
        if isinstance(value, bytes):
            assert len(value) < 16384
            size = (
                bytes([len(value)]) if len(value) < 128 else bytes([len(value) & 127 | 128, len(value) >> 7])
            )
            out += bytes([number << 3 | 2]) + size + value
        elif isinstance(value, float):
            out += bytes([number << 3 | 5]) + struct.pack("<f", value)
        else:
            out += bytes([number << 3, value])
    return out


def spm_model() -> bytes:
    """The tokenizer.model of the same vocabulary."""
    out = b""
    for text, i in spm_doc()[1].items():
        kind = 2 if i == 0 else 3 if i < 3 else 6 if i < 259 else 1
        out += _proto([(1, _proto([(1, text.encode()), (2, float(min(0, 259 - i))), (3, kind)]))])
    return out + _proto([(2, _proto([(3, 2)])), (3, _proto([(3, 1)]))])
