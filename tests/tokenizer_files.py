"""Tokenizer files for tests: a small byte-level tokenizer.json."""

from __future__ import annotations

import json
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
