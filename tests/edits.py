"""Small models to edit, and what must be true of every edited one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf_files import Tensor, write_gguf, write_split
from pairs import BASE, TOKENS, TYPES, N

from gguftools.header import Header, read_header, read_tensor
from gguftools.verbs.edit.keys import FILLER

P = "tokenizer.ggml."
WIDTH = 32
KEYS: dict[str, Any] = {
    "general.architecture": "llama",
    "general.name": "tiny",
    "llama.block_count": 1,
    "llama.context_length": 64,
    "llama.embedding_length": WIDTH,
    "llama.attention.head_count": 2,
    "llama.rope.freq_base": 10000.0,
    P + "model": "gpt2",
    P + "pre": "gpt-2",
    P + "tokens": TOKENS,
    P + "token_type": np.array(TYPES, np.int32),
    P + "merges": ["t o"],
    P + "bos_token_id": N + 1,
    P + "eos_token_id": N,
    "tokenizer.chat_template": "{% for m in messages %}<|user|>{{ m.content }}<|end|>{% endfor %}",
}
assert BASE["tokens"] == TOKENS


def noise(n: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).bytes(n)


def tensors() -> list[Tensor]:
    rows = len(TOKENS)
    return [
        Tensor("token_embd.weight", (WIDTH, rows), 0, noise(4 * WIDTH * rows)),
        Tensor("blk.0.attn_norm.weight", (5,), 0, noise(20, 1)),  # needs padding
        Tensor("blk.0.ffn_down.weight", (32, 3), 2, noise(54, 2)),
    ]


def model(path: Path, change: Mapping[str, Any] | None = None, **how: Any) -> Path:
    """A tiny Llama with tensors; `change`: keys with other values, None for none."""
    keys = {key: value for key, value in {**KEYS, **(change or {})}.items() if value is not None}
    return write_gguf(path, keys, tensors(), **how)


def split(folder: Path, stem: str = "tiny") -> list[Path]:
    """The same in three files."""
    folder.mkdir(exist_ok=True)
    return write_split(folder, stem, KEYS, [[each] for each in tensors()])


def plain(header: Header) -> dict[str, Any]:
    """Keys as comparable values with their types, without the filler."""
    return {
        key: (value.tolist() if hasattr(value, "tolist") else value, header.types[key])
        for key, value in header.keys.items()
        if key != FILLER
    }


def same_tensors(a: Path, b: Path) -> bool:
    """Whether both have the same tensor table and the same bytes in it, wherever they begin."""
    one, other = read_header(a), read_header(b)
    names = [[(t.name, t.shape, t.type) for t in header.tensors] for header in (one, other)]
    pairs = zip(one.tensors, other.tensors, strict=True)
    return names[0] == names[1] and all(
        bytes(read_tensor(one, x)) == bytes(read_tensor(other, y)) for x, y in pairs
    )


def only(folder: Path) -> list[str]:
    """The names of what is in a folder, hidden files too."""
    return sorted(path.name for path in folder.iterdir())
