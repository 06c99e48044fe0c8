"""tokenizer.model of sentencepiece, read and written without its library: pieces, scores and types.

The file is a protobuf, a ModelProto: pieces (field 1: piece 1, score 2, type 3), trainer_spec (2: model_type
3) and normalizer_spec (3: add_dummy_prefix 3), as sentencepiece_model.proto has them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import FormatError, Unsupported
from .pieces import MAX_TOKENS, Pieces, TokenType, added_type

if TYPE_CHECKING:
    from . import Vocab

_BPE = 2
ADDED, _PADDING = -1000.0, -10000.0  # scores that llama.cpp's converter gives


def pieces(data: bytes, settings: Mapping[str, Any], size: int | None, name: str) -> Pieces:
    """The tokens, padded to `size`, with tokenizer_config.json's added ones, as llama.cpp's converter does.

    FormatError for a file that is no such protobuf, Unsupported for other kinds than BPE.
    """
    texts: list[bytes] = []
    scores: list[float] = []
    types: list[int] = []
    kind, prefix = 1, None
    for field, value in _fields(data, name):
        if field == 1 and isinstance(value, bytes):
            text, score, token_type = _piece(value, name)
            if len(texts) == MAX_TOKENS:
                raise FormatError(name, None, f"more than {MAX_TOKENS:,} pieces")
            texts.append(text)
            scores.append(score)
            types.append(token_type)
        elif field == 2 and isinstance(value, bytes):
            kind = dict(_fields(value, name)).get(3, 1)  # type: ignore[assignment]
        elif field == 3 and isinstance(value, bytes):
            prefix = None if dict(_fields(value, name)).get(3, 1) else False
    if kind != _BPE:
        raise Unsupported(f"{name}: no BPE model", "", "convert it with llama.cpp's script")
    missing = range(len(texts), size or len(texts))
    texts += [f"[PAD{i}]".encode() for i in missing]
    scores += [_PADDING] * len(missing)
    types += [int(TokenType.UNUSED)] * len(missing)
    if size is not None and len(texts) > size:
        del texts[size:], scores[size:], types[size:]
    _add(settings, texts, scores, types, name)
    return Pieces("llama", "default", texts, types, scores, [], prefix)


def _add(
    settings: Mapping[str, Any], texts: list[bytes], scores: list[float], types: list[int], name: str
) -> None:
    added = settings.get("added_tokens_decoder") or {}
    try:
        rows = [(int(i), str(t["content"]), bool(t.get("special"))) for i, t in added.items()]
    except (AttributeError, KeyError, TypeError, ValueError):
        raise FormatError(
            name, None, "tokenizer_config.json's added_tokens_decoder is no map of tokens"
        ) from None
    for i, content, special in rows:
        if 0 <= i < len(texts):
            types[i] = added_type(content, special)
            texts[i] = (content.replace("▁", " ") if types[i] == TokenType.USER_DEFINED else content).encode()
            scores[i] = ADDED


def _piece(data: bytes, name: str) -> tuple[bytes, float, int]:
    fields = dict(_fields(data, name))
    text, score, kind = fields.get(1, b""), fields.get(2, b"\0\0\0\0"), fields.get(3, 1)
    if (
        not isinstance(text, bytes)
        or not isinstance(score, bytes)
        or len(score) != 4
        or not isinstance(kind, int)
    ):
        raise FormatError(name, None, "a piece of another form than sentencepiece's")
    (number,) = struct.unpack("<f", score)
    return text, number, kind if 1 <= kind <= 6 else int(TokenType.NORMAL)


def _fields(data: bytes, name: str) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of a message's fields: varints as numbers, all else as bytes."""
    pos = 0
    while pos < len(data):
        key, pos = _varint(data, pos, name)
        wire = key & 7
        if wire == 0:
            value: int | bytes
            value, pos = _varint(data, pos, name)
        elif wire in (1, 2, 5):
            length = {1: 8, 5: 4}.get(wire, 0)
            if wire == 2:
                length, pos = _varint(data, pos, name)
            if length > len(data) - pos:
                raise FormatError(name, pos, "a field ends beyond the file")
            value, pos = data[pos : pos + length], pos + length
        else:
            raise FormatError(name, pos, f"protobuf's wire type {wire} has no place in a sentencepiece model")
        yield key >> 3, value


def _varint(data: bytes, pos: int, name: str) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if pos >= len(data):
            break
        value |= (data[pos] & 0x7F) << shift
        pos += 1
        if data[pos - 1] < 0x80:
            return value, pos
    raise FormatError(name, pos, "a number of protobuf does not end")


def model_bytes(vocab: Vocab) -> bytes:
    """The tokenizer.model of a vocabulary of Llama-2's kind: the same pieces, scores and types.

    Padding at the end is left out: vocab_size brings it back. FormatError where sentencepiece itself would
    refuse the file: no single UNKNOWN piece, an empty piece, one text twice.
    """
    texts, types = vocab.texts.tolist(), vocab.types.tolist()
    scores = [0.0] * len(texts) if vocab.scores is None else vocab.scores.tolist()
    n = len(texts)
    while n and _is_padding(n - 1, texts[n - 1], types[n - 1], scores[n - 1]):
        n -= 1
    unknown = [i for i, kind in enumerate(types[:n]) if kind == TokenType.UNKNOWN]
    if len(unknown) != 1 or len(set(texts[:n])) != n or b"" in texts[:n]:
        why = "a tokenizer.model needs one UNKNOWN piece, and pieces that all differ and are not empty"
        raise FormatError("vocabulary", None, why, "mend tokenizer.ggml.token_type or tokens in the GGUF")
    pieces = (
        _chunk(1, _chunk(1, text) + b"\x15" + struct.pack("<f", score) + _number(3, kind))
        for text, score, kind in zip(texts[:n], scores, types, strict=False)
    )
    ids = {
        "unk": unknown[0],
        **{k: i for k, i in vocab.special.items() if k in ("bos", "eos", "pad") and i < n},
    }
    trainer = _number(3, _BPE) + _number(4, n) + _number(35, int(TokenType.BYTE in types))
    for field, role in enumerate(("unk", "bos", "eos", "pad")):
        trainer += _number(40 + field, ids.get(role, -1))
        trainer += _chunk(45 + field, texts[ids[role]]) if role in ids else b""
    prefix = int(vocab.add_space_prefix is not False)
    normalizer = _chunk(1, b"identity") + _number(3, prefix) + _number(4, 0) + _number(5, 1)
    return b"".join(pieces) + _chunk(2, trainer) + _chunk(3, normalizer)


def _is_padding(i: int, text: bytes, kind: int, score: float) -> bool:
    return kind == TokenType.UNUSED and text == b"[PAD%d]" % i and score == _PADDING


def _number(field: int, value: int) -> bytes:
    return _to_varint(field << 3) + _to_varint(value & (1 << 64) - 1)


def _chunk(field: int, data: bytes) -> bytes:
    return _to_varint(field << 3 | 2) + _to_varint(len(data)) + data


def _to_varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])
