"""The way back: a Vocab as the tokenizer files of a Hugging Face folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import FormatError, Unsupported
from ..goal import put
from . import kimi, pre_tokenizers, sentencepiece
from .pieces import TokenType, added_type

if TYPE_CHECKING:
    from . import Vocab


def write_tokenizer(vocab: Vocab, folder: Path) -> dict[str, int]:
    """Writes the tokenizer files into `folder`; gives what config.json must say: vocab_size and *_token_id.

    tokenizer.json for byte-level BPE, tokenizer.model for Llama-2's kind, tiktoken.model for Kimi's;
    tokenizer_config.json with the chat templates. With the result in config.json,
    Vocab.from_checkpoint(folder) is equal to `vocab`, unless a token's type cannot be said there (a
    USER_DEFINED token named <|…|> comes back as CONTROL), or it names no eot and its eos ends a turn, which
    comes back named as both.
    Raises Unsupported for other vocabularies and unknown pre-tokenizers.
    """
    settings = _settings(vocab)
    if vocab.is_kimi:
        put(folder / "tiktoken.model", kimi.tiktoken_model(vocab))
        settings["added_tokens_decoder"] = _kimi_names(vocab)
        settings["tokenizer_class"] = "TikTokenTokenizer"
    elif vocab.model == "llama":
        put(folder / "tokenizer.model", sentencepiece.model_bytes(vocab))
        settings["added_tokens_decoder"] = _later_added(vocab)
        settings["tokenizer_class"] = "LlamaTokenizer"
    else:
        doc = json.dumps(_document(vocab), ensure_ascii=False, indent=2)
        put(folder / "tokenizer.json", doc.encode())
    put(folder / "tokenizer_config.json", json.dumps(settings, ensure_ascii=False, indent=2).encode())
    return {"vocab_size": vocab.n_tokens, **{f"{kind}_token_id": i for kind, i in vocab.special.items()}}


def _text(vocab: Vocab, i: int) -> str:
    try:
        return vocab.texts[i].decode("utf-8")
    except UnicodeDecodeError:
        raise FormatError("vocabulary", None, f"the text of token {i} is not UTF-8") from None


def _special(vocab: Vocab) -> list[int]:
    kinds = (TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.UNKNOWN)
    return [i for i, kind in enumerate(vocab.types.tolist()) if kind in kinds]


def _settings(vocab: Vocab) -> dict[str, Any]:
    """tokenizer_config.json."""
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
    }
    special = set(_special(vocab))
    settings |= {f"{kind}_token": _text(vocab, i) for kind, i in vocab.special.items() if i in special}
    flags = {
        "add_bos_token": vocab.add_bos,
        "add_eos_token": vocab.add_eos,
        "add_prefix_space": vocab.add_space_prefix,
    }
    settings |= {name: flag for name, flag in flags.items() if flag is not None}
    if set(vocab.templates) == {"default"}:
        settings["chat_template"] = vocab.templates["default"]
    elif vocab.templates:
        named = [{"name": name, "template": text} for name, text in vocab.templates.items()]
        settings["chat_template"] = named
    return settings


def _kimi_names(vocab: Vocab) -> dict[str, Any]:
    names = {i: _text(vocab, i) for i in _special(vocab)}
    return {
        str(i): {"content": name, "special": True}
        for i, name in names.items()
        if name != f"<|reserved_token_{i}|>"
    }


def _later_added(vocab: Vocab) -> dict[str, Any]:
    """Of Llama-2's kind the tokens that were added to sentencepiece's own, which their score shows."""
    scores = [] if vocab.scores is None else vocab.scores.tolist()
    added = [_added(vocab, i) for i in _special(vocab) if scores and scores[i] == sentencepiece.ADDED]
    same = [t for t in added if added_type(t["content"], t["special"]) == vocab.types[t["id"]]]
    return {str(token.pop("id")): token for token in same}


def _document(vocab: Vocab) -> dict[str, Any]:
    """tokenizer.json."""
    known = pre_tokenizers.to_json(vocab.pre) if vocab.model == "gpt2" else None
    if known is None:
        what = f"a vocabulary of the kind {vocab.model}, pre-tokenizer {vocab.pre or 'not named'}"
        why = "its splitting is not among those that can be written as tokenizer.json"
        raise Unsupported(
            what, why, f"written are: {', '.join(pre_tokenizers.KNOWN)}, kimi-k2, and SentencePiece's BPE"
        )
    pre_tokenizer, normalizer, ignore_merges = known
    special = _special(vocab)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(vocab, i) for i in special],
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": _post_processor(vocab),
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": ignore_merges,
            "vocab": _vocabulary(vocab),
            "merges": [merge.decode("utf-8", "replace") for merge in vocab.merges],
        },
    }


def _vocabulary(vocab: Vocab) -> dict[str, int]:
    """text -> id of all but padding, which vocab_size brings back."""
    texts: dict[str, int] = {}
    types = vocab.types.tolist()
    for i, raw in enumerate(vocab.texts.tolist()):
        if types[i] == TokenType.UNUSED and raw == b"[PAD%d]" % i:
            continue
        text = _text(vocab, i)
        if text in texts:
            raise FormatError("vocabulary", None, f"the tokens {texts[text]} and {i} have one text: {text!r}")
        texts[text] = i
    return texts


def _added(vocab: Vocab, i: int) -> dict[str, Any]:
    return {
        "id": i,
        "content": _text(vocab, i),
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": int(vocab.types[i]) != TokenType.USER_DEFINED,
    }


def _post_processor(vocab: Vocab) -> dict[str, Any] | None:
    """What adds bos and eos; None where neither is added."""
    first = vocab.special.get("bos") if vocab.add_bos else None
    last = vocab.special.get("eos") if vocab.add_eos else None
    ids = {_text(vocab, i): i for i in (first, last) if i is not None and i < vocab.n_tokens}
    if not ids:
        return None

    def around(sequences: list[tuple[str, int]]) -> list[dict[str, Any]]:
        out: list[dict[str, Any]] = []
        for name, type_id in sequences:
            out += (
                [{"SpecialToken": {"id": _text(vocab, first), "type_id": type_id}}]
                if first is not None
                else []
            )
            out += [{"Sequence": {"id": name, "type_id": type_id}}]
            out += (
                [{"SpecialToken": {"id": _text(vocab, last), "type_id": type_id}}] if last is not None else []
            )
        return out

    return {
        "type": "TemplateProcessing",
        "single": around([("A", 0)]),
        "pair": around([("A", 0), ("B", 1)]),
        "special_tokens": {text: {"id": text, "ids": [i], "tokens": [text]} for text, i in ids.items()},
    }
