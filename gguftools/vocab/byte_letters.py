"""GPT-2's byte letters: the printable characters that stand for bytes in the vocabularies of byte-level BPE.

The 188 bytes that print in Latin-1 stand for themselves; the other 68 are U+0100 and up, in order (openai's
gpt-2, bytes_to_unicode).
"""

from __future__ import annotations

from collections.abc import Sequence

_PRINTABLE = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
_HIDDEN = [byte for byte in range(256) if byte not in _PRINTABLE]

LETTERS = "".join(chr(b) if b in _PRINTABLE else chr(256 + _HIDDEN.index(b)) for b in range(256))
_TO_BYTE = {ord(letter): byte for byte, letter in enumerate(LETTERS)}


def to_letters(data: bytes) -> bytes:
    """The UTF-8 of the letters for these bytes: b" a" gives "Ġa"."""
    return data.decode("latin-1").translate(LETTERS).encode()


def to_bytes(text: bytes) -> bytes | None:
    """The bytes that the letters in this UTF-8 stand for; None where a character is no letter."""
    try:
        return text.decode("utf-8").translate(_TO_BYTE).encode("latin-1") if is_letters(text) else None
    except UnicodeDecodeError:
        return None


def is_letters(text: bytes) -> bool:
    """Whether every character of this UTF-8 is a byte letter."""
    return all(ord(letter) in _TO_BYTE for letter in text.decode("utf-8"))


def all_to_letters(tokens: Sequence[bytes]) -> list[bytes]:
    """to_letters of each, translated in one go."""
    letters = b"".join(tokens).decode("latin-1").translate(LETTERS)
    out, start = [], 0
    for token in tokens:
        out.append(letters[start : start + len(token)].encode())
        start += len(token)
    return out


def all_to_bytes(texts: Sequence[bytes]) -> list[bytes]:
    """to_bytes of each, translated in one go. ValueError where a character is no byte letter."""
    split = "\uffff"  # no letter, so it survives the translation
    joined = split.encode().join(texts).decode("utf-8")
    if set(map(ord, set(joined))) - _TO_BYTE.keys() - {0xFFFF}:
        raise ValueError("not all characters are byte letters")
    parts = [part.encode("latin-1") for part in joined.translate(_TO_BYTE).split(split)]
    if len(parts) != max(len(texts), 1):
        raise ValueError("not all characters are byte letters")
    return parts if texts else []
