"""How a vocabulary spells bytes: its own merges, applied to bytes and not to text.

No pre-tokenizer splits the bytes first: what is spelled here is one token of another vocabulary, which is
rarely more than one word.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf

import numpy as np
from numpy.typing import NDArray

from ...errors import Unsupported
from ...vocab import TokenType, Vocab, byte_letters

MAX_BYTES = 2048  # longer tokens are not spelled: the longest of real vocabularies have some hundred bytes

# Of the tokens that a tokenizer looks for before all others, those are ordinary text which do not look like a
# tag, and HTML's own tags (Gemma has them).
_TAG = re.compile(rb"<[^\s<>][^<>]*>|\[[^\s\[\]]+\]|<\|.*|.*\|>", re.DOTALL)
_HTML = re.compile(
    rb"</?(?:table|caption|thead|tbody|tfoot|tr|th|td|h[1-6]|blockquote|ul|ol|li|dl|dt|dd|p|br|hr|a|b|i|u"
    rb"|strong|em|code|pre|sub|sup|img|div|span)>"
)

# One UTF-8 character in Latin-1, or what is there of it.
_CHARACTER = re.compile("[\xc0-\xff][\x80-\xbf]{0,3}|.", re.DOTALL)


def is_text(text: bytes) -> bool:
    """Whether a USER_DEFINED token's text is ordinary text, such as a run of spaces, and no tag."""
    return bool(text) and (_TAG.fullmatch(text) is None or _HTML.fullmatch(text) is not None)


def ordinary(vocab: Vocab) -> NDArray[np.bool_]:
    """[n_tokens]: NORMAL and BYTE tokens, and the USER_DEFINED ones whose text is ordinary."""
    mask = vocab.ordinary()
    for i in np.flatnonzero(vocab.types == TokenType.USER_DEFINED).tolist():
        mask[i] = is_text(vocab.texts[i])
    return mask


def token_bytes(vocab: Vocab) -> list[bytes]:
    """list(vocab.tokens), faster. Unsupported where it is not known which bytes the tokens stand for."""
    if vocab.model not in ("gpt2", "llama"):
        why = f"tokenizer.ggml.model is {vocab.model or 'not named'}; gpt2's and llama's kinds are known"
        raise Unsupported("the bytes of this vocabulary's tokens are not known", why, "take another model")
    if vocab.model == "llama":
        return list(vocab.tokens)
    texts = vocab.texts.tolist()
    ids = np.flatnonzero(vocab.types == TokenType.NORMAL).tolist()
    try:
        for i, data in zip(ids, byte_letters.all_to_bytes([texts[i] for i in ids]), strict=True):
            texts[i] = data
    except ValueError:  # a token that is not in byte letters
        return list(vocab.tokens)
    return texts


@dataclass(frozen=True, slots=True)
class Speller:
    """A vocabulary's way to spell bytes, made by `speller`.

    Bytes are written as strings here, one character a byte: gpt2's byte letters, or Latin-1 for llama.
    """

    exact: Mapping[bytes, int]  # bytes -> id of the ordinary tokens; of several the one a tokenizer emits
    parts: Mapping[str, int]  # what merging leaves -> id
    ranks: Mapping[str, float]  # what is merged first is lowest: by "left right" (gpt2), by the sum (llama)
    joint: str  # " " or ""
    single: Mapping[str, int]  # one byte -> id
    specials: Mapping[str, int]  # text -> id of the tokens that are not ordinary

    def spell(self, data: bytes) -> list[int] | None:
        """The ids whose bytes are `data`; None where that cannot be.

        >>> speller(Vocab.from_gguf("qwen2.5.gguf")).spell(b"123")
        [16, 17, 18]
        """
        whole = self.exact.get(data)
        if whole is not None:
            return [whole]
        if not data or len(data) > MAX_BYTES:
            return None
        ids: list[int] = []
        try:
            for part in _merge(self, self._symbols(data)):
                known = self.parts.get(part)
                ids += [self.single[byte] for byte in part] if known is None else [known]
        except KeyError:
            return None
        return ids

    def _symbols(self, data: bytes) -> list[str]:
        """What merging starts from: bytes (gpt2) or characters (llama)."""
        latin = data.decode("latin-1")
        return list(latin.translate(byte_letters.LETTERS)) if self.joint else _CHARACTER.findall(latin)

    def encode(self, text: str) -> list[int] | None:
        """The ids of a text in which the names of special tokens are such tokens; None as in `spell`."""
        names = sorted((name for name in self.specials if name in text), key=len, reverse=True)
        ids: list[int] = []
        for i, part in enumerate(re.split(f"({'|'.join(map(re.escape, names))})", text) if names else [text]):
            found = [self.specials[part]] if i % 2 else self.spell(part.encode("utf-8", "replace"))
            if found is None and part:
                return None
            ids += found or []
        return ids


def speller(vocab: Vocab) -> Speller:
    """The Speller of a vocabulary of gpt2's or llama's kind; Unsupported for others."""
    tokens, texts = token_bytes(vocab), vocab.texts.tolist()
    exact = preferred(vocab, tokens)
    normal = np.flatnonzero(vocab.types == TokenType.NORMAL)[::-1].tolist()  # the lower of two ids is last
    if vocab.model == "gpt2":
        parts = {texts[i].decode("utf-8", "replace"): i for i in normal}
        merges = enumerate(merge.decode("utf-8", "replace") for merge in vocab.merges.tolist())
        ranks = {merge: float(rank) for rank, merge in reversed(list(merges))}
        alphabet, joint = byte_letters.LETTERS, " "
    else:
        parts = {tokens[i].decode("latin-1"): i for i in normal}
        scores = [] if vocab.scores is None else vocab.scores.tolist()
        ranks = {part: -scores[i] for part, i in parts.items() if i < len(scores)}
        alphabet, joint = "".join(map(chr, range(256))), ""
    single = {letter: exact[bytes([byte])] for byte, letter in enumerate(alphabet) if bytes([byte]) in exact}
    return Speller(exact, parts, ranks, joint, single, _specials(vocab))


def preferred(vocab: Vocab, tokens: Sequence[bytes]) -> dict[bytes, int]:
    """bytes -> id of the ordinary tokens that are not empty: of several, the one that a tokenizer emits.

    It looks for USER_DEFINED tokens first and takes BYTE tokens last; else the lower id.
    """
    mask = ordinary(vocab)
    best: dict[bytes, int] = {}
    for kind in (TokenType.BYTE, TokenType.NORMAL, TokenType.USER_DEFINED):
        ids = np.flatnonzero(mask & (vocab.types == kind))[::-1].tolist()
        best.update((tokens[i], i) for i in ids)
    best.pop(b"", None)
    return best


def _specials(vocab: Vocab) -> dict[str, int]:
    kinds = (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED)
    ids = np.flatnonzero(~ordinary(vocab) & np.isin(vocab.types, kinds))[::-1].tolist()
    return {vocab.texts[i].decode("utf-8", "replace"): i for i in ids if vocab.texts[i]}


def _merge(speller: Speller, parts: list[str]) -> list[str]:
    """Merges the pair of the lowest rank, of several the leftmost, until none has a rank."""
    rank, joint = speller.ranks.get, speller.joint
    ranks = [rank(left + joint + right, inf) for left, right in pairwise(parts)]
    while ranks and (low := min(ranks)) < inf:
        i = ranks.index(low)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
        del ranks[i]
        if i < len(ranks):
            ranks[i] = rank(parts[i] + joint + parts[i + 1], inf)
        if i:
            ranks[i - 1] = rank(parts[i - 1] + joint + parts[i], inf)
    return parts
