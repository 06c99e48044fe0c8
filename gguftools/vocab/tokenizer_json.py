"""tokenizer.json: byte-level BPE (GPT-2's kind) and BPE with byte fallback (Llama-2's kind)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from ..errors import FormatError, Unsupported
from . import pre_tokenizers
from .pieces import MAX_TOKENS, Pieces, TokenType, added_type
from .tokenizer_write import write_tokenizer as write_tokenizer

_AGAIN = "download tokenizer.json again"
_OTHER = "take tokenizer.json and config.json from one model"

log = logging.getLogger("gguftools.vocab.tokenizer_json")


def pieces(doc: Mapping[str, Any], size: int | None, name: str) -> Pieces:
    """The tokens of a tokenizer.json, padded to `size` (config.json's vocab_size) where it is given.

    FormatError where the file does not fit together, Unsupported for other models and unknown pre-tokenizers.
    """
    model = doc.get("model")
    if not isinstance(model, dict) or model.get("type", "BPE") != "BPE":
        kind = model.get("type") if isinstance(model, dict) else None
        raise Unsupported(
            f"{name}: a {kind} tokenizer", "only BPE is read", "convert it with llama.cpp's script"
        )
    texts, types = _tokens(doc, model, size, name)
    merges = _merges(model.get("merges"), model["vocab"], name)
    if model.get("byte_fallback"):
        return _with_fallback(doc, model, texts, types, merges)
    pre = pre_tokenizers.name_of(doc.get("pre_tokenizer"), model.get("ignore_merges"))
    if pre is None:
        hint = "convert it with llama.cpp's script, or write to the project with this tokenizer.json"
        why = pre_tokenizers.describe(doc.get("pre_tokenizer"))
        raise Unsupported(f"{name}: unknown pre-tokenizer", why, hint)
    _refuse_other_changes(doc, model, name)
    return Pieces("gpt2", pre, texts, types, None, merges)


def _refuse_other_changes(doc: Mapping[str, Any], model: Mapping[str, Any], name: str) -> None:
    """Refuses what changes a text or its pieces and libllama does not do; but NFC, as llama.cpp does."""
    root = doc.get("normalizer")
    steps = [] if root is None else pre_tokenizers.nodes(root, "normalizers")
    others = [str(step.get("type")) for step in steps if step.get("type") != "NFC"]
    others += [key for key in ("continuing_subword_prefix", "end_of_word_suffix") if model.get(key)]
    if others:
        why = f"libllama does not do what it asks for: {', '.join(others)}"[:300]
        raise Unsupported(f"{name}: an unknown kind of BPE", why, "convert it with llama.cpp's script")


def _tokens(
    doc: Mapping[str, Any], model: Mapping[str, Any], size: int | None, name: str
) -> tuple[list[bytes], list[int]]:
    vocab, added = model.get("vocab"), doc.get("added_tokens") or []
    if not isinstance(vocab, dict) or not isinstance(added, list):
        raise FormatError(name, None, "it has no model.vocab", _AGAIN)
    extra = [_added(token, name) for token in added]
    ids = [*vocab.values(), *(i for i, _, _ in extra)]
    if not all(type(i) is int and 0 <= i < MAX_TOKENS for i in ids):
        why = f"an id in its vocabulary is not a number below {MAX_TOKENS:,}"
        raise FormatError(name, None, why, _AGAIN)
    top = max(ids, default=-1) + 1
    if size is not None and top > size:
        why = f"its highest id is {top - 1}, but config.json's vocab_size is {size}"
        raise FormatError(name, None, why, _OTHER)
    if len(set(vocab.values())) != len(vocab):
        raise FormatError(name, None, "two tokens of its vocabulary have one id", _AGAIN)
    _warn_of_holes(ids, size or top, name)
    found = dict(zip(vocab.values(), vocab, strict=True))
    texts = [found.get(i) for i in range(size or top)]
    types = [int(TokenType.UNUSED if text is None else TokenType.NORMAL) for text in texts]
    for i, content, special in extra:
        types[i] = added_type(content, special)
        texts[i] = content.replace("▁", " ") if types[i] == TokenType.USER_DEFINED else content
    return [(f"[PAD{i}]" if text is None else text).encode() for i, text in enumerate(texts)], types


def _added(token: Any, name: str) -> tuple[int, str, bool]:
    if isinstance(token, dict) and isinstance(token.get("content"), str) and isinstance(token.get("id"), int):
        return token["id"], token["content"], bool(token.get("special"))
    raise FormatError(name, None, f"an added token without id or content: {token!r}"[:200], _AGAIN)


def _warn_of_holes(ids: Sequence[int], total: int, name: str) -> None:
    """Says so where ids have no token below the highest one, or more than a tenth have none at the end."""
    known = set(ids)
    inside = max(known, default=-1) + 1 - len(known)
    missing = total - len(known)
    if inside or missing > total // 10:
        first = next(i for i in range(total) if i not in known)
        log.warning(
            "%s: %s of %s ids have no token, the first is %s", name, f"{missing:,}", f"{total:,}", first
        )


def _merges(merges: Any, vocab: Mapping[str, int], name: str) -> list[bytes]:
    """As "left right", each part and the whole a token; a space inside a part is written as the letter Ġ."""
    if not isinstance(merges, list):
        raise FormatError(name, None, "it has no model.merges", _AGAIN)
    out = []
    for merge in merges:
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(parts, list) or len(parts) != 2 or not all(isinstance(p, str) and p for p in parts):
            why = f"of its merges, {merge!r} is not two tokens with a space between"
            raise FormatError(name, None, why[:200], _AGAIN)
        left, right = parts
        for part in (left, right, left + right):
            if part not in vocab and part.replace(" ", "Ġ") not in vocab:
                why = f"of its merges, {left!r} + {right!r} needs {part!r}, which is not in its vocabulary"
                raise FormatError(name, None, why[:300], _AGAIN)
        out.append(f"{left.replace(' ', 'Ġ')} {right.replace(' ', 'Ġ')}".encode())
    return out


def _with_fallback(
    doc: Mapping[str, Any],
    model: Mapping[str, Any],
    texts: list[bytes],
    types: list[int],
    merges: list[bytes],
) -> Pieces:
    """Llama-2's kind: no merges in the GGUF but scores, higher for what is merged earlier."""
    for i, text in enumerate(texts):
        if (
            types[i] == TokenType.NORMAL
            and len(text) == 6
            and text.startswith(b"<0x")
            and text.endswith(b">")
        ):
            types[i] = TokenType.BYTE
        elif types[i] == TokenType.NORMAL and text.decode() == model.get("unk_token"):
            types[i] = TokenType.UNKNOWN
    scores = _scores(texts, types, merges)
    prefix = None if "Prepend" in str(doc.get("normalizer")) or _metaspace(doc) else False
    return Pieces("llama", "default", texts, types, scores, [], prefix)


def _metaspace(doc: Mapping[str, Any]) -> bool:
    node = doc.get("pre_tokenizer")
    nodes = node.get("pretokenizers", [node]) if isinstance(node, dict) else []
    return any(n.get("type") == "Metaspace" and n.get("prepend_scheme", "always") != "never" for n in nodes)


def _scores(texts: list[bytes], types: list[int], merges: list[bytes]) -> list[float]:
    """Minus the merge's rank; where ids follow the merges, minus the distance from the first ordinary id.

    The latter is what sentencepiece's own files have. Added and unused tokens as llama.cpp's converter does.
    """
    made = {merge.replace(b" ", b"", 1): rank for rank, merge in reversed(list(enumerate(merges)))}
    index = {text: i for i, text in enumerate(texts)}
    ids = [index[text] for text in sorted(made, key=made.__getitem__) if text in index]
    in_order = all(a < b for a, b in pairwise(ids))
    first = next((i for i, kind in enumerate(types) if kind == TokenType.NORMAL), 0)
    fixed = {TokenType.NORMAL: 0.0, TokenType.BYTE: 0.0, TokenType.UNKNOWN: 0.0, TokenType.UNUSED: -10000.0}
    scores = []
    for i, (text, kind) in enumerate(zip(texts, types, strict=True)):
        if kind != TokenType.NORMAL:
            scores.append(fixed.get(TokenType(kind), -1000.0))
        else:
            scores.append(float(first - i) if in_order else -float(made.get(text, len(merges))))
    return scores
