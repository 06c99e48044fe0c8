"""Whose vocabulary a model has, and what its chat templates are."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any

from ... import recipes
from ...vocab import Vocab, special
from ..check.templates import failure
from .results import Template, Vocabulary


@cache
def _table(name: str, key: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = recipes.load(name)[key]
    return found


def described(vocab: Vocab) -> Vocabulary:
    """Sizes, digests and family."""
    family, identical = _family(vocab)
    return Vocabulary(
        vocab.model,
        vocab.pre,
        vocab.n_tokens,
        len(vocab.merges),
        dict(vocab.special),
        vocab.digest_ordinary,
        vocab.digest_tokens,
        vocab.digest_merges,
        family,
        identical,
        _words(vocab, family, identical),
    )


def _family(vocab: Vocab) -> tuple[str | None, bool]:
    """The family's name, and whether all ordinary tokens are its own, byte for byte."""
    bpe = vocab.model == "gpt2"
    for entry in _table("vocabularies", "vocabulary"):
        begin, end = entry["begin"], entry["end"]
        if bpe and vocab.n_tokens >= end and _digest(vocab, begin, end) == entry["sha256"]:
            return entry["name"], True
    for entry in _table("tokenizers", "vocabulary"):
        ids = {int(i): text.encode() for i, text in entry["tokens"].items()}
        there = bpe and max(ids) < vocab.n_tokens
        if there and all(vocab.texts[i] == text for i, text in ids.items()):
            return entry["name"], False
    return None, False


def _digest(vocab: Vocab, begin: int, end: int) -> str:
    return hashlib.sha256(vocab.texts.span(begin, end)).hexdigest()


def _words(vocab: Vocab, family: str | None, identical: bool) -> str:
    if family is None:
        return "a vocabulary that gguftools has no digest of"
    if not identical:
        return f"special tokens as in {family}; its ordinary tokens were not compared"
    if family != "Kimi-K2":
        return f"{family} vocabulary, byte-identical"
    facts = recipes.load("kimi-k2")
    named = {**facts["special"], **facts["tool_calls"]}
    other = sum(1 for text, i in named.items() if i >= vocab.n_tokens or vocab.texts[i] != text.encode())
    tail = f"; {other} special tokens have other names than in Kimi-K2-Instruct" if other else ""
    return f"Kimi-K2 vocabulary, byte-identical{tail}"


def templates(vocab: Vocab) -> tuple[Template, ...]:
    """The chat templates, the default one first."""
    names = sorted(vocab.templates, key=lambda name: (name != "default", name))
    return tuple(_template(vocab, name) for name in names)


def _template(vocab: Vocab, name: str) -> Template:
    text = vocab.templates[name]
    families = _table("special-tokens", "family")
    written = (f["name"] for f in families if all(mark in text for mark in f["known_by"]))
    family = next(written, None)
    if family is None and text:  # what it writes is put together from variables
        known = (f["name"] for f in families if len(special.find(vocab, f["known_by"])) == len(f["known_by"]))
        family = next(known, None)
    return Template(name, len(text), family, failure(text))
