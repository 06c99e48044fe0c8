"""Kimi's vocabulary: tiktoken.model, its merges, and encoding by tiktoken with Moonshot's pattern.

One tiktoken.model serves Kimi-K2 … K3, Kimi-Linear, Kimi-VL and Moonlight; only the names of the 256 special
tokens differ. llama.cpp's own `kimi-k2` splitter deviates from the pattern, so prompts are encoded here.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _native, recipes
from ..errors import FormatError, InputError, Unsupported
from ..header.strings import StringArray
from . import byte_letters
from .pieces import Pieces, TokenType

if TYPE_CHECKING:
    from . import Vocab

PRE = "kimi-k2"
N_SPECIAL = 256
_AGAIN = "download tiktoken.model again"
MAX_FILE = 16 << 20  # bytes of a tiktoken.model; Kimi's has 2.8 MB

# pat_str of Moonshot's tokenization_kimi.py.
PATTERN = "|".join(
    [
        r"[\p{Han}]+",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)

# As in Moonshot's code: tiktoken panics on very long texts and on very long runs without a change of space.
MAX_CHARS = 400_000
MAX_RUN = 25_000
_BYTES = {bytes([byte]) for byte in range(256)}
_RUN = re.compile(r"\s+|\S+")


def read_ranks(data: bytes, name: str = "tiktoken.model") -> list[bytes]:
    """The tokens of a tiktoken.model, in order of rank: lines of base64, a space and the rank, from 0 on.

    FormatError unless all 256 single bytes are there and no token is there twice or longer than 512 bytes.
    """
    if len(data) > MAX_FILE:
        raise FormatError(name, MAX_FILE, f"{len(data):,} bytes, more than the cap of {MAX_FILE:,}")
    tokens: list[bytes] = []
    for line in data.splitlines():
        text, _, rank = line.partition(b" ")
        try:
            if int(rank) != len(tokens):
                raise ValueError(f"rank {int(rank)} where {len(tokens)} should be")
            tokens.append(binascii.a2b_base64(text))
        except ValueError as error:
            raise FormatError(name, data.find(line), f"line {len(tokens) + 1}: {error}", _AGAIN) from None
    if not set(tokens) >= _BYTES:
        raise FormatError(name, None, "not all 256 single bytes are tokens", _AGAIN)
    return tokens


def letters_and_merges(tokens: Sequence[bytes], name: str) -> tuple[list[bytes], list[bytes]]:
    """Of tokens in order of rank: their byte letters, and the merges "left right" in order of rank.

    A merge is the two parts that byte-pair encoding over lower ranks leaves of a token, where it leaves two,
    as llama.cpp's converter finds them: 163,328 for Kimi.
    """
    packed = StringArray.pack(tokens)
    split = np.zeros(len(tokens), np.uint16)
    table = np.zeros(1 << max(4, (2 * len(tokens) - 1).bit_length()), np.uint32)
    code, rank = _native.find_merges(packed.raw, packed.starts, table, split)
    if code:
        why = "is there twice" if code == -3 else "is longer than 512 bytes"
        raise FormatError(name, None, f"the token of rank {rank} {why}", _AGAIN)
    letters = b"".join(tokens).decode("latin-1").translate(byte_letters.LETTERS)
    texts, merges, start = [], [], 0
    for token, left in zip(tokens, split.tolist(), strict=True):
        text = letters[start : start + len(token)]
        texts.append(text.encode())
        if left:
            merges.append(f"{text[:left]} {text[left:]}".encode())
        start += len(token)
    return texts, merges


def pieces(data: bytes, settings: Mapping[str, Any], size: int | None, name: str) -> Pieces:
    """The vocabulary of a Kimi folder, as llama.cpp's converter writes it.

    256 special tokens follow the ordinary ones: named by tokenizer_config.json's added_tokens_decoder, else
    <|reserved_token_ID|>, all CONTROL. Padding up to `size` is UNUSED. Unsupported for another model's file.
    """
    digest: str = recipes.load("kimi-k2")["tiktoken_sha256"]
    said = f"{settings.get('auto_map')} {settings.get('tokenizer_class')}"
    if "TikTokenTokenizer" not in said and hashlib.sha256(data).hexdigest() != digest:
        why = "such a file does not hold the pattern that splits text, and only Kimi's is known"
        raise Unsupported(f"{name}: not Kimi's tiktoken.model", why, "give a folder with tokenizer.json")
    texts, merges = letters_and_merges(read_ranks(data, name), name)
    count, total = len(texts), size or len(texts) + N_SPECIAL
    if total < count:
        what, why = (
            f"{name} is not this model's",
            f"it holds {count:,} tokens, the model has rows for {total:,}",
        )
        raise InputError(what, why, "give the folder of the right tokenizer with --tokenizer")
    names = _names(settings, name)
    end = min(count + N_SPECIAL, total)
    texts += [names.get(i, f"<|reserved_token_{i}|>").encode() for i in range(count, end)]
    texts += [f"[PAD{i}]".encode() for i in range(end, total)]
    types = [1] * count + [int(TokenType.CONTROL)] * (end - count) + [int(TokenType.UNUSED)] * (total - end)
    return Pieces("gpt2", PRE, texts, types, None, merges)


def _names(settings: Mapping[str, Any], name: str) -> dict[int, str]:
    try:
        return {int(i): str(t["content"]) for i, t in settings.get("added_tokens_decoder", {}).items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        why = "its tokenizer_config.json has an added_tokens_decoder that is no map of ids to tokens"
        raise FormatError(name, None, why, "download the tokenizer's files again") from None


def turn_ends(pieces: Pieces, ends: Sequence[int]) -> dict[str, int]:
    """eos and eot: what generation_config.json ends with (not config.json's [EOS]), and <|im_end|> or [EOT].

    Both are named explicitly, because libllama takes an eot that is not from an unordered map.
    """
    specials = pieces.specials()
    turn = specials.get(b"<|im_end|>", specials.get(b"[EOT]"))
    ids = {} if turn is None else {"eot": turn}
    if ends:
        ids["eos"] = turn if turn is not None and turn in ends else ends[0]
    return ids


def n_ranks(vocab: Vocab) -> int:
    """How many of the first ids are ordinary tokens: their rank is their id."""
    other = np.flatnonzero(vocab.types != 1)
    known: int = recipes.load("kimi-k2")["n_ordinary"]
    return min(int(other[0]) if other.size else vocab.n_tokens, known)


def tiktoken_model(vocab: Vocab) -> bytes:
    """The tiktoken.model of a Kimi vocabulary."""
    return b"".join(base64.b64encode(token) + b" %d\n" % i for i, token in enumerate(_ranked(vocab)))


def _ranked(vocab: Vocab) -> list[bytes]:
    """The ordinary tokens in real bytes; FormatError unless they are a whole byte-level vocabulary."""
    try:
        tokens = byte_letters.all_to_bytes(vocab.texts[: n_ranks(vocab)])
    except ValueError as error:
        raise FormatError("vocabulary", None, f"an ordinary token cannot be read: {error}") from None
    unique = set(tokens)
    if len(unique) != len(tokens) or not unique >= _BYTES:
        raise FormatError(
            "vocabulary", None, "its ordinary tokens are not Kimi's: some are missing or there twice"
        )
    return tokens


def encode(vocab: Vocab, text: str, *, parse_special: bool) -> list[int]:
    """Vocab.encode for Kimi: split as Moonshot's code does, then tiktoken."""
    encoding = vocab._cache.get("tiktoken") or _encoding(vocab)
    ids: list[int] = []
    for piece in split(text):
        if parse_special:
            ids += encoding.encode(piece, allowed_special="all")
        else:
            ids += encoding.encode_ordinary(piece)
    return ids


def _encoding(vocab: Vocab) -> Any:
    import tiktoken

    tokens = _ranked(vocab)
    ranks = {token: rank for rank, token in enumerate(tokens)}
    kinds = (TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.UNKNOWN)
    ids = np.flatnonzero(np.isin(vocab.types, kinds)).tolist()
    special = {vocab.texts[i].decode("utf-8", "replace"): i for i in ids if vocab.texts[i]}
    encoding = tiktoken.Encoding("kimi", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=special)
    vocab._cache["tiktoken"] = encoding
    return encoding


def split(text: str) -> Iterator[str]:
    """The pieces that are encoded one by one: of at most 400,000 characters, with runs of at most 25,000.

    A run is a stretch of spaces alone or of anything but spaces.
    """
    for start in range(0, len(text), MAX_CHARS):
        chunk = text[start : start + MAX_CHARS]
        begin = 0
        for run in _RUN.finditer(chunk) if len(chunk) > MAX_RUN else ():
            for cut in range(run.start() + MAX_RUN, run.end(), MAX_RUN):
                yield chunk[begin:cut]
                begin = cut
        yield chunk[begin:]
