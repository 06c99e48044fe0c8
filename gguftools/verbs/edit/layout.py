"""The bytes of an edited header: keys, the tensor table as it was, padding; and a filler where it pays."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np

from ... import gguf_write
from ...header import Header, read_header
from ...header.ggml_types import ValueType
from .keys import FILLER, Keys


def header_bytes(old: Header, keys: Keys, block: int = 0) -> bytes:
    """Everything before the tensor data of the first shard.

    `block`: the data begins at the same place in a block of that many bytes as it did before, by a key of
    zeros where that is needed.
    """
    bare = _unpadded(old, keys)
    head = _padded(old, bare)
    if not block or (len(head) - old.data_offset) % block == 0:
        return head
    n = (old.data_offset - len(bare) - len(_filler(0))) % block or block
    return _padded(old, _unpadded(old, keys, _filler(n)))


def result(old: Header, head: bytes) -> Header:
    """The Header of the edited model, for rules: no file has its path. Raises FormatError."""
    new = read_header(head, name=f"{old.path} as edited")
    others = tuple(info for info in old.tensors if info.shard)
    nbytes = old.nbytes - old.data_offset + len(head)
    return replace(new, files=old.files, tensors=(*new.tensors, *others), nbytes=nbytes)


def _filler(n: int) -> bytes:
    return gguf_write.key_bytes(FILLER, np.zeros(n, np.uint8), ValueType.U8)


def _unpadded(old: Header, keys: Keys, filler: bytes = b"") -> bytes:
    own = [info for info in old.tensors if info.shard == 0]
    counts = struct.pack("<IQQ", old.version, len(own), len(keys) + bool(filler))
    parts = [b"GGUF", counts, *(gguf_write.key_bytes(key, *value) for key, value in keys.items()), filler]
    for info in own:
        name = info.name.encode()
        parts.append(struct.pack("<Q", len(name)) + name + struct.pack("<I", len(info.shape)))
        offset = info.offset - old.data_offset
        parts.append(struct.pack(f"<{len(info.shape)}QIQ", *info.shape, info.type, offset))
    return b"".join(parts)


def _padded(old: Header, head: bytes) -> bytes:
    """A file without tensors ends where its header does."""
    if not any(info.shard == 0 for info in old.tensors):
        return head
    alignment = old.get_int("general.alignment", 32)
    return head + bytes(-len(head) % alignment)
