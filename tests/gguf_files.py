"""Builds GGUFs for tests, right and deliberately wrong ones, without the code under test."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARRAY, U64, I64, F64 = range(13)
_NUMBERS = (U8, I8, U16, I16, U32, I32, F32, BOOL, U64, I64, F64)
_LETTERS = dict(zip(_NUMBERS, "BbHhIif?Qqd", strict=True))
_SIZES = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 8: (32, 34), 24: (1, 1), 30: (1, 2)}


@dataclass(frozen=True)
class Typed:
    """A value with its type said: Typed(U16, 3), Typed(I32, [1, 2]) for an array, Typed(ARRAY, raw bytes)."""

    type: int
    value: Any


@dataclass(frozen=True)
class Tensor:
    """A row of the tensor table. `data` None: zeros; `offset` None: behind the one before."""

    name: str | bytes
    shape: Sequence[int] = (32,)
    type: int = 0
    data: bytes | None = None
    offset: int | None = None
    n_dims: int | None = None


def text(value: str | bytes, endian: str = "<") -> bytes:
    """A GGUF string."""
    data = value.encode() if isinstance(value, str) else bytes(value)
    return struct.pack(endian + "Q", len(data)) + data


def _typed(value: Any) -> Typed:
    if isinstance(value, Typed):
        return value
    if isinstance(value, bool):
        return Typed(BOOL, value)
    if isinstance(value, int):
        return Typed(U32 if 0 <= value < 2**32 else I64, value)
    if isinstance(value, float):
        return Typed(F32, value)
    if isinstance(value, np.ndarray):
        kinds = {"int32": I32, "float32": F32, "uint32": U32, "int64": I64, "float64": F64, "bool": BOOL}
        return Typed(kinds[value.dtype.name], value.tolist())
    if isinstance(value, (str, bytes)):
        return Typed(STR, value)
    items = list(value)
    return Typed(_typed(items[0]).type if items else STR, items)


def value_bytes(value: Any, endian: str = "<") -> bytes:
    """Type and content of a key."""
    typed = _typed(value)
    kind, content = typed.type, typed.value
    if kind == ARRAY:
        return struct.pack(endian + "I", kind) + content
    if isinstance(content, list):
        head = struct.pack(endian + "IIQ", ARRAY, kind, len(content))
        if kind == STR:
            return head + b"".join(text(item, endian) for item in content)
        return head + struct.pack(f"{endian}{len(content)}{_LETTERS[kind]}", *content)
    body = text(content, endian) if kind == STR else struct.pack(endian + _LETTERS.get(kind, "I"), content)
    return struct.pack(endian + "I", kind) + body


def gguf_bytes(
    keys: Mapping[str, Any] | Iterable[tuple[str | bytes, Any]] = (),
    tensors: Sequence[Tensor] = (),
    *,
    version: int = 3,
    endian: str = "<",
    alignment: int = 32,
    magic: bytes = b"GGUF",
    n_keys: int | None = None,
    n_tensors: int | None = None,
    with_data: bool = True,
) -> bytes:
    """A whole GGUF. A `keys` mapping or pairs (which may repeat); counts as given, right or wrong."""
    pairs = list(keys.items() if isinstance(keys, Mapping) else keys)
    parts = [magic, struct.pack(endian + "I", version)]
    parts.append(struct.pack(endian + "Q", len(tensors) if n_tensors is None else n_tensors))
    parts.append(struct.pack(endian + "Q", len(pairs) if n_keys is None else n_keys))
    parts += [text(key, endian) + value_bytes(value, endian) for key, value in pairs]
    data = b""
    for tensor in tensors:
        content = _content(tensor)
        offset = len(data) if tensor.offset is None else tensor.offset
        n_dims = len(tensor.shape) if tensor.n_dims is None else tensor.n_dims
        row = text(tensor.name, endian) + struct.pack(endian + "I", n_dims)
        row += struct.pack(f"{endian}{len(tensor.shape)}Q", *tensor.shape)
        parts.append(row + struct.pack(endian + "IQ", tensor.type, offset))
        data += content + bytes(-len(content) % alignment)
    head = b"".join(parts)
    if not tensors:
        return head
    return head + bytes(-len(head) % alignment) + (data if with_data else b"")


def _content(tensor: Tensor) -> bytes:
    if tensor.data is not None:
        return tensor.data
    block, size = _SIZES.get(tensor.type, (1, 0))
    count = 1
    for n in tensor.shape:
        count *= n
    return bytes(count // block * size) if count < 1 << 20 else b""


def write_gguf(path: Path, *args: Any, **kwargs: Any) -> Path:
    """gguf_bytes written to a file."""
    path.write_bytes(gguf_bytes(*args, **kwargs))
    return path


def write_split(
    path: Path, stem: str, keys: Mapping[str, Any], shards: Sequence[Sequence[Tensor]]
) -> list[Path]:
    """A split model as llama-gguf-split makes it: the keys in the first shard, split.* in all."""
    count, total = len(shards), sum(map(len, shards))
    files = []
    for no, tensors in enumerate(shards):
        own = {
            **(keys if no == 0 else {}),
            "split.no": Typed(U16, no),
            "split.count": Typed(U16, count),
            "split.tensors.count": Typed(I32, total),
        }
        files.append(write_gguf(path / f"{stem}-{no + 1:05}-of-{count:05}.gguf", own, tensors))
    return files


def vocab_keys(vocab: Any) -> dict[str, Any]:
    """The keys of a Vocab (or anything with gguf_keys()) for gguf_bytes."""
    keys: dict[str, Any] = {"general.architecture": "llama"}
    for key, value, kind in vocab.gguf_keys():
        plain = isinstance(value, (str, bytes, int, float, bool))
        keys[key] = Typed(int(kind), value if plain else list(value))
    return keys
