"""Ordinary text as a vocabulary's tokens, and where each lies in the text, without the vocabulary's model."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ... import libllama
from ...errors import FormatError, LoadError, Unsupported
from ...gguf_write import Key, header_bytes
from ...header.ggml_types import ValueType
from ...libllama.devices import CPU
from ...vocab import TokenType, Vocab, special
from ..check.loads import load_rules
from ..check.side import Side
from .spelling import ordinary, token_bytes

_STARTS = ("<|endoftext|>", "<|end_of_text|>", "<|begin_of_text|>")


class Tokenizer:
    """Encodes for one vocabulary: by tiktoken for Kimi's, by libllama for others. A resource to close.

    No space is put before a text (as SentencePiece's models want it), so that tokens spell the text alone.
    """

    def __init__(self, vocab: Vocab) -> None:
        """Raises Unsupported for a vocabulary whose bytes are not known or that cannot be loaded."""
        self.vocab = vocab
        self.bytes: list[bytes] = token_bytes(vocab)  # of each id; a special token's are its name
        self.sizes = np.array([len(data) for data in self.bytes], np.int64)  # [n_tokens] bytes
        self._weights = None if vocab.is_kimi else _load(vocab)
        if vocab.is_kimi:
            _try(vocab)

    def close(self) -> None:
        """Frees the vocabulary in libllama."""
        if self._weights is not None:
            self._weights.close()

    def __enter__(self) -> Tokenizer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def encode(self, text: str, *, parse_special: bool = False) -> list[int]:
        """Ids of a text. A control token's name in it is text, unless `parse_special`."""
        if self._weights is None:
            return self.vocab.encode(text, parse_special=parse_special)
        return self._weights.tokenize(text, parse_special=parse_special) if text else []

    def offsets(self, ids: Sequence[int]) -> NDArray[np.int64]:
        """[len(ids) + 1]: where each token begins, in bytes, and where the last ends."""
        out = np.zeros(len(ids) + 1, np.int64)
        np.cumsum(self.sizes[np.asarray(ids, np.int64)], out=out[1:])
        return out

    def spell(self, text: str) -> tuple[NDArray[np.int32], NDArray[np.int64]] | None:
        """(ids [n], offsets [n + 1]) of a text; None where the tokens' bytes are not those of the text.

        That is so where a vocabulary changes text before it splits it, or lacks bytes of it.
        """
        ids = self.encode(text)
        if b"".join([self.bytes[i] for i in ids]) != text.encode("utf-8", "replace"):
            return None
        return np.array(ids, np.int32), self.offsets(ids)


def start_id(vocab: Vocab) -> int:
    """The donor's token that texts begin with: its bos where it adds one, else its end of text."""
    ids = special.resolved(vocab)
    named = special.find(vocab, _STARTS)
    order = [named.get(text) for text in _STARTS] + [ids.get("bos"), ids.get("eos"), 0]
    if special.adds(vocab)[0]:
        order.insert(0, ids.get("bos"))
    return next(i for i in order if i is not None)


def _try(vocab: Vocab) -> None:
    try:
        vocab.encode("a")
    except FormatError as error:
        raise Unsupported("this vocabulary cannot encode text", error.why, "take another model's") from None


def _load(vocab: Vocab) -> libllama.Weights:
    """The vocabulary in libllama, by way of a file that holds nothing else."""
    rules = load_rules(Side("", vocab, None, "", 0, 0, 0), vocab.texts.tolist())
    why = next((rule.effect for rule in rules if not rule.passed and rule.level == "fatal"), "")
    if not why and vocab.model == "llama" and not _has_all_bytes(vocab):
        why = "not all bytes are tokens, and libllama ends the process where one is missing"
    if why:
        raise Unsupported("this vocabulary cannot encode text", why, "take another model's")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "vocabulary.gguf"
        path.write_bytes(header_bytes(_keys(vocab), []))
        try:
            return libllama.load(path, CPU, "auto", None, vocab_only=True)
        except LoadError as error:
            why = error.why or error.what
            raise Unsupported("this vocabulary cannot encode text", why, "take another model's") from None


def _has_all_bytes(vocab: Vocab) -> bool:
    texts = set(vocab.texts.tolist())
    return all(b"<0x%02X>" % byte in texts or bytes([byte]) in texts for byte in range(1, 256))


def _keys(vocab: Vocab) -> list[Key]:
    """Of the tokens that libllama looks for in any text, those that are no ordinary text become CONTROL."""
    tags = (vocab.types == TokenType.USER_DEFINED) & ~ordinary(vocab)
    kept = {name: i for name, i in vocab.special.items() if 0 <= i < vocab.n_tokens}
    plain = replace(
        vocab,
        types=np.where(tags, np.int32(TokenType.CONTROL), vocab.types),
        special=kept,
        add_bos=False,
        add_eos=False,
        add_space_prefix=False,
        templates={},
        _cache={},
    )
    architecture: Key = ("general.architecture", "llama", ValueType.STR)
    return [architecture, *plain.gguf_keys()]
