"""Vocab: the tokens of a model as a GGUF has them, from a GGUF or from a checkpoint's tokenizer files."""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from ..errors import FormatError, Unsupported
from ..header import Header, StringArray, read_header
from ..header.ggml_types import ValueType
from . import byte_letters, special
from .pieces import TokenType as TokenType

if TYPE_CHECKING:
    from collections.abc import Callable

PREFIX = "tokenizer.ggml."
_BYTE = re.compile(rb"<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True, slots=True, eq=False)
class Vocab:
    """Equal to another Vocab when all fields are, whichever road they came by."""

    model: str  # tokenizer.ggml.model: "gpt2", "llama", "bert" …
    pre: str  # tokenizer.ggml.pre: the pre-tokenizer's name, "" where absent
    texts: StringArray  # [n_tokens] as in a GGUF: byte letters for gpt2, ▁ for llama
    types: NDArray[np.int32]  # [n_tokens] TokenType; all NORMAL where a GGUF has none
    scores: NDArray[np.float32] | None  # [n_tokens]
    merges: StringArray  # "left right", in byte letters, by rank
    special: Mapping[str, int]  # the ids that are named explicitly: keys of special.KEYS
    add_bos: bool | None  # None: not said
    add_eos: bool | None
    add_space_prefix: bool | None
    templates: Mapping[str, str]  # chat templates: "default" and named ones
    _cache: dict[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def from_gguf(cls, path: str | Path) -> Vocab:
        """The vocabulary of a GGUF (any shard). Raises what read_header raises, and FormatError."""
        return cls.from_header(read_header(path))

    @classmethod
    def from_header(cls, header: Header) -> Vocab:
        """The vocabulary in a header; FormatError where it has none or its arrays do not fit together."""
        texts = header.get_strings(PREFIX + "tokens")
        if texts is None:
            raise FormatError(
                header.path,
                None,
                f"it holds no vocabulary: {PREFIX}tokens is missing",
                "give the GGUF of a language model",
            )
        types = _numbers(header, "token_type", len(texts), np.dtype(np.int32))
        return cls(
            header.get_str(PREFIX + "model", ""),
            header.get_str(PREFIX + "pre", ""),
            texts,
            np.full(len(texts), TokenType.NORMAL, np.int32) if types is None else types,
            _numbers(header, "scores", len(texts), np.dtype(np.float32)),
            header.get_strings(PREFIX + "merges", StringArray(b"", 0)),
            _special_ids(header),
            header.get_bool(PREFIX + "add_bos_token"),
            header.get_bool(PREFIX + "add_eos_token"),
            header.get_bool(PREFIX + "add_space_prefix"),
            _templates(header),
        )

    @classmethod
    def from_checkpoint(cls, source: str | Path | Mapping[str, bytes]) -> Vocab:
        """The vocabulary of a Hugging Face folder (or its files by name), as llama.cpp's converter writes
        it.

        Reads tokenizer.json, or tiktoken.model with Kimi's tokenizer_config.json; no code of the folder runs.
        Raises NotFound without either, Unsupported for a kind of tokenizer that is not known, FormatError.
        """
        from . import hf_tokenizer

        return cls(**hf_tokenizer.read(source))

    @property
    def n_tokens(self) -> int:
        """Tokens, padding included."""
        return len(self.texts)

    @property
    def tokens(self) -> Sequence[bytes]:
        """The bytes that each token stands for; specials as their names. Decoded when asked for."""
        return Tokens(self)

    @property
    def is_kimi(self) -> bool:
        """Whether prompts are encoded by tiktoken with Moonshot's pattern."""
        return self.model == "gpt2" and self.pre == "kimi-k2"

    @property
    def digest_ordinary(self) -> str:
        """sha256 over the ordinary tokens (NORMAL and BYTE) with their ids."""
        return self._once("ordinary", lambda: _digest(self._ordinary_spans()))

    @property
    def digest_tokens(self) -> str:
        """sha256 over the texts of all tokens."""
        return self._once("tokens", lambda: _digest([self.texts.raw]))

    @property
    def digest_merges(self) -> str:
        """sha256 over the merges."""
        return self._once("merges", lambda: _digest([self.merges.raw]))

    def ordinary(self) -> NDArray[np.bool_]:
        """[n_tokens]: whether each token is ordinary, NORMAL or BYTE."""
        return np.isin(self.types, (TokenType.NORMAL, TokenType.BYTE))

    def _ordinary_spans(self) -> Iterator[bytes | memoryview]:
        edges = np.flatnonzero(np.diff(self.ordinary().astype(np.int8), prepend=0, append=0)).tolist()
        for begin, end in zip(edges[::2], edges[1::2], strict=True):
            yield struct.pack("<QQ", begin, end)
            yield self.texts.span(begin, end)

    def _once(self, name: str, make: Callable[[], str]) -> str:
        if name not in self._cache:
            self._cache[name] = make()
        value: str = self._cache[name]
        return value

    def id_of(self, text: bytes) -> int | None:
        """The first id whose text (as stored) is `text`, or None."""
        return self.texts.find(text)

    def eog(self) -> frozenset[int]:
        """The ids that end generation, by llama.cpp's own rules."""
        return special.eog(self)

    def encode(self, text: str, *, parse_special: bool = False) -> list[int]:
        """Ids of a text by tiktoken with Moonshot's pattern: exact, for Kimi vocabularies only.

        Names of special tokens in the text are such tokens only with `parse_special`. Unsupported for others.
        """
        if not self.is_kimi:
            why = f"its pre-tokenizer is {self.pre or 'not named'}, and only Kimi's is encoded here"
            raise Unsupported("this vocabulary cannot encode", why, "load the model: libllama tokenizes it")
        from . import kimi

        return kimi.encode(self, text, parse_special=parse_special)

    def decode(self, ids: Iterable[int]) -> bytes:
        """The bytes of these tokens, one after the other; IndexError for an id outside the vocabulary."""
        tokens = self.tokens
        return b"".join(tokens[i] for i in ids)

    def gguf_keys(self) -> list[tuple[str, Any, ValueType]]:
        """(key, value, value type) of everything here, in a fixed order; arrays with their elements' type."""
        keys: list[tuple[str, Any, ValueType]] = [
            (PREFIX + "model", self.model, ValueType.STR),
            (PREFIX + "pre", self.pre, ValueType.STR),
            (PREFIX + "tokens", self.texts, ValueType.STR),
            (PREFIX + "scores", self.scores, ValueType.F32),
            (PREFIX + "token_type", self.types, ValueType.I32),
            (PREFIX + "merges", self.merges if len(self.merges) else None, ValueType.STR),
        ]
        keys += [(PREFIX + special.KEYS[name], i, ValueType.U32) for name, i in self.special.items()]
        keys += [
            (PREFIX + "add_bos_token", self.add_bos, ValueType.BOOL),
            (PREFIX + "add_eos_token", self.add_eos, ValueType.BOOL),
            (PREFIX + "add_space_prefix", self.add_space_prefix, ValueType.BOOL),
        ]
        named = [name for name in self.templates if name != "default"]
        keys += [("tokenizer.chat_templates", named or None, ValueType.STR)]
        keys += [(f"tokenizer.chat_template.{name}", self.templates[name], ValueType.STR) for name in named]
        keys += [("tokenizer.chat_template", self.templates.get("default"), ValueType.STR)]
        return [key for key in keys if key[1] is not None and not (isinstance(key[1], str) and not key[1])]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocab):
            return NotImplemented
        small = ("model", "pre", "special", "add_bos", "add_eos", "add_space_prefix", "templates")
        return (
            all(getattr(self, name) == getattr(other, name) for name in small)
            and self.texts == other.texts
            and self.merges == other.merges
            and np.array_equal(self.types, other.types)
            and (self.scores is None) == (other.scores is None)
            and (self.scores is None or np.array_equal(self.scores, other.scores))  # type: ignore[arg-type]
        )

    __hash__ = None  # type: ignore[assignment]


class Tokens(Sequence[bytes]):
    """Vocab.tokens: token i in real bytes, as libllama's token_to_piece gives them."""

    __slots__ = ("_vocab",)

    def __init__(self, vocab: Vocab) -> None:
        self._vocab = vocab

    def __len__(self) -> int:
        return self._vocab.n_tokens

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        text = self._vocab.texts[index]
        kind = int(self._vocab.types[index])
        if kind == TokenType.BYTE and (match := _BYTE.fullmatch(text)):
            return bytes.fromhex(match[1].decode())
        if kind != TokenType.NORMAL:
            return text
        if self._vocab.model == "llama":
            return text.replace("▁".encode(), b" ")
        if self._vocab.model == "gpt2":
            real = byte_letters.to_bytes(text)
            return text if real is None else real
        return text


def _digest(parts: Iterable[bytes | memoryview]) -> str:
    state = hashlib.sha256()
    for part in parts:
        state.update(part)
    return state.hexdigest()


def _numbers(header: Header, key: str, count: int, dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """The array under the key with at least `count` numbers, cut to as many; other widths are converted."""
    array = header.get_array(PREFIX + key)
    if array is None:
        return None
    if len(array) < count:
        why = f"{PREFIX}{key} has {len(array)} elements for {count} tokens"
        raise FormatError(header.path, header.where[PREFIX + key], why)
    with np.errstate(invalid="ignore", over="ignore"):  # libllama refuses other types: check says so
        return array[:count].astype(dtype, copy=False)


def _special_ids(header: Header) -> dict[str, int]:
    ids = {name: header.get_int(PREFIX + key) for name, key in special.KEYS.items()}
    return {name: i for name, i in ids.items() if i is not None}


def _templates(header: Header) -> dict[str, str]:
    start = "tokenizer.chat_template"
    return {
        key[len(start) + 1 :] or "default": header.get_str(key, "")
        for key in header.keys
        if key == start or key.startswith(start + ".")
    }
