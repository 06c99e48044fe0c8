"""Prompts become token ids: exactly by tiktoken for Kimi vocabularies, by libllama for all others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from operator import index

import numpy as np

from ..errors import InputError, TemplateError
from ..libllama import Weights
from ..libllama.compat import library
from ..template import CHATML, KIMI, ChatTemplate, Prompt
from ..vocab import TokenType, Vocab

# User-defined tokens that steer a model as control tokens do; others (Gemma has HTML tags) are ordinary text.
LIKE_CONTROL = re.compile(
    r"<[|｜].*[|｜]>|\[/?[A-Z_]+\]|</?(think|tools?|tool_\w+|(start|end)_of_\w+|\w*_(start|end|sep|pad))>"
)
RSTRIP, LSTRIP = 1 << 8, 1 << 7  # llama.cpp's token attributes: white space beside the token is dropped


class Encoder:
    """Encodes for one model. Control tokens come from templates and ids alone, never from ordinary text."""

    def __init__(self, vocab: Vocab, weights: Weights) -> None:
        self.vocab = vocab
        self._weights = weights
        lib = library()
        self.bos: int = lib.llama_vocab_bos(weights.vocab)
        self.eos: int = lib.llama_vocab_eos(weights.vocab)
        self._adds_bos = lib.llama_vocab_get_add_bos(weights.vocab) and self.bos >= 0
        self._ids: dict[str, int] = {}
        for i in np.flatnonzero(np.isin(vocab.types, (TokenType.CONTROL, TokenType.USER_DEFINED))).tolist():
            text = vocab.texts[i].decode("utf-8", "replace")
            if vocab.types[i] == TokenType.CONTROL or LIKE_CONTROL.fullmatch(text):
                self._ids.setdefault(text, i)
        parsed = [text for text, i in self._ids.items() if vocab.types[i] == TokenType.USER_DEFINED]
        self._parsed = re.compile("|".join(map(re.escape, sorted(parsed, key=len, reverse=True))) or r"(?!)")

    def template(self, tools: bool = False) -> ChatTemplate:
        """The model's chat template, the one for tools where it has one.

        Without any: Kimi's format for Kimi vocabularies, ChatML where its tokens are, else TemplateError.
        """
        named = self.vocab.templates
        source = (named.get("tool_use") if tools else None) or named.get("default")
        if source is None and named:
            source = next(iter(named.values()))
        if source is None:
            source = self._fallback()
        names = [self._text(i) for i in (self.bos, self.eos)]
        return ChatTemplate(source, tuple(self._ids), bos=names[0], eos=names[1])

    def _fallback(self) -> str:
        if self.vocab.is_kimi and "<|im_middle|>" in self._ids:
            return KIMI
        if {"<|im_start|>", "<|im_end|>"} <= self._ids.keys():
            return CHATML
        raise TemplateError(
            "this model has no chat template",
            "neither its file nor its control tokens say how a conversation is written",
            "use generate() (or `gguftools run --raw`) with a prompt in the form that the model knows",
        )

    def _text(self, token: int) -> str:
        return self.vocab.texts[token].decode("utf-8", "replace") if token >= 0 else ""

    def encode(self, prompt: str | Sequence[int], parse_special: bool = False) -> list[int]:
        """A raw prompt with the beginning token that the model wants; ids are taken as they are.

        Raises InputError for what is neither, an empty prompt or an id outside the vocabulary.
        """
        if isinstance(prompt, (bytes, bytearray)):
            raise InputError("the prompt is bytes", "it takes text or token ids", "decode it first")
        if not isinstance(prompt, str):
            ids = _given_ids(prompt)
        elif parse_special:
            ids = self._with_bos([i for part in self._split(prompt) for i in part])
        else:
            ids = self._with_bos(self._ordinary(prompt))
        wrong = [token for token in ids if not 0 <= token < self._weights.n_vocab]
        if wrong:
            raise InputError(
                f"token {wrong[0]} is not in the vocabulary", f"it has {self._weights.n_vocab:,}"
            )
        if not ids:
            raise InputError("the prompt is empty", "a model needs at least one token to go on from")
        return ids

    def _split(self, text: str) -> Iterator[list[int]]:
        pattern = "|".join(map(re.escape, sorted(self._ids, key=len, reverse=True))) or r"(?!)"
        for i, part in enumerate(re.split(f"({pattern})", text)):
            yield [self._ids[part]] if i % 2 else self._ordinary(part)

    def encode_chat(self, prompt: Prompt) -> list[int]:
        """A rendered conversation: its control tokens by id, all else as ordinary text."""
        ids: list[int] = []
        segments = prompt.segments
        for i, segment in enumerate(segments):
            if segment.special:
                ids.append(self._ids[segment.text])
                continue
            text = segment.text
            if i > 0 and self._attribute(segments[i - 1].text) & RSTRIP:
                text = text.lstrip()
            if i + 1 < len(segments) and self._attribute(segments[i + 1].text) & LSTRIP:
                text = text.rstrip()
            ids += self._ordinary(text)
        if not ids:
            raise TemplateError("the chat template writes nothing", "a model needs at least one token")
        return self._with_bos(ids)

    def _attribute(self, text: str) -> int:
        return int(library().llama_vocab_get_attr(self._weights.vocab, self._ids[text]))

    def _with_bos(self, ids: list[int]) -> list[int]:
        return ids if not self._adds_bos or ids[:1] == [self.bos] else [self.bos, *ids]

    def _ordinary(self, text: str) -> list[int]:
        """libllama parses user-defined tokens in any text, so one that was typed is cut in two."""
        if not text:
            return []
        if self.vocab.is_kimi:
            return self.vocab.encode(text)
        ids: list[int] = []
        start = 0
        for match in self._parsed.finditer(text):
            ids += self._weights.tokenize(text[start : match.start() + 1])
            start = match.start() + 1
        return ids + self._weights.tokenize(text[start:])


def _given_ids(prompt: object) -> list[int]:
    """Token ids of any kind of whole number (numpy's too)."""
    try:
        return [index(token) for token in prompt]  # type: ignore[attr-defined]
    except TypeError:
        kind = type(prompt).__name__
        what = f"a prompt of the type {kind} cannot be continued"
        raise InputError(what, "it takes text or token ids", "for a conversation: session.chat()") from None
