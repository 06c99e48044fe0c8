"""Pieces: what the files of one kind of tokenizer say, before ids, flags and templates make it a Vocab."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

MAX_TOKENS = 1 << 20  # of a checkpoint's vocabulary; the largest have 2^18


class TokenType(IntEnum):
    """llama.cpp's token types."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class Pieces:
    """Everything as in a GGUF, padding included."""

    model: str
    pre: str
    texts: list[bytes]
    types: list[int]
    scores: list[float] | None
    merges: list[bytes]
    add_space_prefix: bool | None = None

    def specials(self) -> dict[bytes, int]:
        """text -> id of all tokens that are not ordinary."""
        ordinary = (TokenType.NORMAL, TokenType.BYTE, TokenType.UNUSED)
        return {self.texts[i]: i for i, kind in enumerate(self.types) if kind not in ordinary}


def added_type(content: str, special: bool) -> TokenType:
    """The type of an added token as llama.cpp's converter sets it.

    Some look special although they are not marked so (conversion/base.py, does_token_look_special).
    """
    looks = content in ("<pad>", "<mask>", "<2mass>", "[@BOS@]") or any(
        content.startswith(left) and content.endswith(right)
        for left, right in (("<|", "|>"), ("<｜", "｜>"), ("<unused", ">"))
    )
    return TokenType.CONTROL if special or looks else TokenType.USER_DEFINED
