"""Tiny vocab-only GGUFs for tests: one function that writes them, with any key changed or left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGUFValueType as T

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
P = "tokenizer.ggml."


def letters(n: int) -> list[str]:
    """n different ordinary tokens in byte letters; a newline is the first."""
    return ["Ċ", *(f"tok{i}" for i in range(n - 1))]


def write(
    path: Path,
    tokens: Sequence[str | bytes],
    *,
    model: str | None = "gpt2",
    pre: str | None = "gpt-2",
    types: Sequence[int] | None = None,
    merges: Sequence[str] | None = ("t o",),
    arch: str = "llama",
    ids: Mapping[str, int] | None = None,
    keys: Mapping[str, Any] | None = None,
    typed: Mapping[str, tuple[Any, T]] | None = None,
    tensors: Mapping[str, tuple[int, ...]] | None = None,
) -> Path:
    """`ids`: bos=1 writes bos_token_id; `keys`: str, bool, float or int (u32); `typed`: (value, type)."""
    writer = gguf.GGUFWriter(path, arch)
    if model is not None:
        writer.add_string(P + "model", model)
    if pre is not None:
        writer.add_string(P + "pre", pre)
    writer.add_array(P + "tokens", list(tokens))
    if types is not None:
        writer.add_array(P + "token_type", list(types))
    if model == "llama":
        writer.add_array(P + "scores", [-float(i) for i in range(len(tokens))])
    if merges:
        writer.add_array(P + "merges", list(merges))
    for name, i in (ids or {}).items():
        writer.add_uint32(f"{P}{name}_token_id", i)
    for key, value in (keys or {}).items():
        add = {
            str: writer.add_string,
            bool: writer.add_bool,
            float: writer.add_float32,
            int: writer.add_uint32,
        }
        add[type(value)](key, value)
    for key, (value, kind) in (typed or {}).items():
        if isinstance(value, list):
            writer.add_array(key, value)
        else:
            writer.add_key_value(key, value, kind)
    for name, shape in (tensors or {}).items():
        writer.add_tensor(name, np.zeros(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
