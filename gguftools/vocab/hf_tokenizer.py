"""The vocabulary of a Hugging Face folder, with the ids, flags and templates as llama.cpp's converter has.

The rules are those of gguf-py's SpecialVocab (llama.cpp, gguf-py/gguf/vocab.py), with one addition: where
generation_config.json names the token that ends a turn, it is written as eot.
"""

from __future__ import annotations

import json
import string
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from ..errors import FormatError, InputError, NotFound
from ..header.strings import StringArray
from . import kimi, sentencepiece, special, tokenizer_json
from .pieces import MAX_TOKENS, Pieces

MAX_FILE = 256 << 20  # bytes of one tokenizer file
FILES = (
    *("tokenizer.json", "tiktoken.model", "tokenizer.model", "tokenizer_config.json", "config.json"),
    *("generation_config.json", "chat_template.jinja", "chat_template.json"),
)
# Texts that end a turn, where generation_config.json lists several ids.
_EOT = (b"<|im_end|>", b"<|eot_id|>", b"<end_of_turn>", b"<|end|>", b"<turn|>")
_LLAMA_TYPES = ("llama", "mistral", "mixtral")


@dataclass(frozen=True, slots=True)
class Folder:
    """Tokenizer files by name, on disk or in memory."""

    source: Path | Mapping[str, bytes]

    def where(self, name: str) -> str:
        """The file's name for messages."""
        return str(self.source / name) if isinstance(self.source, Path) else name

    def get(self, name: str) -> bytes | None:
        """The file's bytes, None where it is missing."""
        if not isinstance(self.source, Path):
            return self.source.get(name)
        path = self.source / name
        try:
            if path.stat().st_size > MAX_FILE:
                raise FormatError(path, MAX_FILE, f"it is larger than the cap of {MAX_FILE:,} bytes")
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(f"{path}: cannot be read", str(error)) from None

    def text(self, name: str) -> str | None:
        """The file's text, None where it is missing; FormatError where it is not UTF-8."""
        data = self.get(name)
        try:
            return None if data is None else data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise FormatError(self.where(name), error.start, "it is not UTF-8") from None

    def json(self, name: str) -> dict[str, Any]:
        """The object in the file, {} where it is missing."""
        text = self.text(name)
        if text is None:
            return {}
        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            raise FormatError(self.where(name), error.pos, f"it is not JSON: {error.msg}") from None
        if not isinstance(value, dict):
            raise FormatError(self.where(name), 0, "its JSON is not an object")
        return value

    def more_templates(self) -> dict[str, str]:
        """Name -> text of additional_chat_templates/*.jinja."""
        start = "additional_chat_templates"
        if isinstance(self.source, Path):
            names = [f"{start}/{path.name}" for path in sorted(self.source.glob(f"{start}/*.jinja"))]
        else:
            names = sorted(n for n in self.source if n.startswith(start + "/") and n.endswith(".jinja"))
        return {name[len(start) + 1 : -len(".jinja")]: self.text(name) or "" for name in names}


def read(source: str | Path | Mapping[str, bytes]) -> dict[str, Any]:
    """The fields of the Vocab in these files; see Vocab.from_checkpoint."""
    folder = Folder(source if isinstance(source, Mapping) else Path(source))
    try:
        return _read(folder)
    except RecursionError:
        raise FormatError(folder.where(""), 0, "its tokenizer files are nested too deeply") from None


def _read(folder: Folder) -> dict[str, Any]:
    config = _flat(folder.json("config.json"))
    settings = folder.json("tokenizer_config.json")
    doc: dict[str, Any] = {}
    size = config.get("vocab_size")
    if size is not None and (not isinstance(size, int) or not 0 < size <= MAX_TOKENS):
        raise FormatError(folder.where("config.json"), 0, f"vocab_size is {size!r}")
    if (data := folder.get("tiktoken.model")) is not None:
        pieces = kimi.pieces(data, settings, size, folder.where("tiktoken.model"))
    elif (data := folder.get("tokenizer.model") or b"").startswith(b"\n"):
        pieces = sentencepiece.pieces(data, settings, size, folder.where("tokenizer.model"))
        doc = folder.json("tokenizer.json")
    elif doc := folder.json("tokenizer.json"):
        pieces = tokenizer_json.pieces(doc, size, folder.where("tokenizer.json"))
    else:
        what = f"{folder.where('')}: no tokenizer"
        raise NotFound(what, f"none of {', '.join(FILES[:3])} is there", "give a folder that has one")
    try:
        settings, adds = _adds(doc.get("post_processor"), settings)
    except (AttributeError, TypeError, LookupError):
        why = "its post_processor is not built as the tokenizers library builds it"
        raise FormatError(folder.where("tokenizer.json"), 0, why) from None
    prefix = pieces.add_space_prefix
    if config.get("model_type", "llama") in _LLAMA_TYPES and isinstance(
        settings.get("add_prefix_space"), bool
    ):
        prefix = settings["add_prefix_space"]
    return {
        "model": pieces.model,
        "pre": pieces.pre,
        "texts": StringArray.pack(pieces.texts),
        "types": np.array(pieces.types, np.int32),
        "scores": None if pieces.scores is None else np.array(pieces.scores, np.float32),
        "merges": StringArray.pack(pieces.merges),
        "special": _ids(pieces, settings, config, folder.json("generation_config.json")),
        "add_bos": adds.get("bos"),
        "add_eos": adds.get("eos"),
        "add_space_prefix": prefix,
        "templates": _templates(folder, settings),
    }


def _flat(config: dict[str, Any]) -> dict[str, Any]:
    """config.json with the text_config of a multimodal model below it."""
    inner = config.get("text_config")
    return {**inner, **config} if isinstance(inner, dict) else config


def _adds(post: Any, settings: dict[str, Any]) -> tuple[dict[str, Any], dict[str, bool]]:
    """(tokenizer_config with bos and eos as the post-processor shows them, which of them are added)."""
    settings = dict(settings)
    adds: dict[str, bool] = {}
    parts = post.get("processors", [post]) if isinstance(post, dict) else []
    for part in parts:
        kind = part.get("type")
        if kind == "ByteLevel":
            adds = {"bos": False, "eos": False, **adds}
        elif kind == "RobertaProcessing":
            adds = {"bos": True, "eos": True}
        elif kind == "TemplateProcessing" and len(single := part.get("single") or []) > 1:
            first, last = (piece.get("SpecialToken", {}).get("id") for piece in (single[0], single[-1]))
            if first:
                known = [_name(settings, name) for name in ("bos", "cls")]
                if first not in known:
                    unset = [name for name, text in zip(("bos", "cls"), known, strict=True) if not text]
                    settings |= {f"{name}_token": first for name in unset}
                adds["bos"] = first in (_name(settings, "bos"), _name(settings, "cls"))
            if last:
                if last != _name(settings, "eos"):
                    settings["eot_token"], settings["eos_token"] = _name(settings, "eos"), last
                adds["eos"] = True
    for name in ("bos", "eos"):
        said = settings.get(f"add_{name}_token")
        if isinstance(said, bool):
            adds.setdefault(name, said)
    return settings, adds


def _name(settings: Mapping[str, Any], kind: str) -> str | None:
    entry = settings.get(f"{kind}_token")
    if isinstance(entry, dict):
        entry = entry.get("content")
    return entry if isinstance(entry, str) else None


def _ids(
    pieces: Pieces, settings: Mapping[str, Any], config: Mapping[str, Any], generation: Mapping[str, Any]
) -> dict[str, int]:
    """The special ids: named in tokenizer_config.json, else numbered in config.json or generation_config."""
    named = pieces.specials()
    ids: dict[str, int] = {}
    last: Any = generation.get("eos_token_id")
    ends = [i for i in (last if isinstance(last, list) else [last]) if _is_id(i, pieces)]
    for kind in special.KEYS:
        name = _name(settings, kind)
        numbers = [config.get(f"{kind}_token_id"), generation.get(f"{kind}_token_id")]
        if name is not None and (text := name.encode("utf-8", "replace")) in named:
            ids[kind] = named[text]
        elif found := [i for i in numbers if _is_id(i, pieces)]:
            ids[kind] = found[0]
    if pieces.pre == kimi.PRE:
        ids |= kimi.turn_ends(pieces, ends)
    elif "eot" not in ids and ends != [ids.get("eos")]:
        turn = [i for i in ends if pieces.texts[i] in _EOT] or (ends if len(ends) == 1 else [])
        ids |= {"eot": turn[0]} if turn else {}
    if "eos" not in ids and ends:
        ids["eos"] = ends[0]
    return {kind: ids[kind] for kind in special.KEYS if kind in ids}


def _is_id(value: Any, pieces: Pieces) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(pieces.texts)


def _templates(folder: Folder, settings: Mapping[str, Any]) -> dict[str, str]:
    jinja = folder.text("chat_template.jinja")
    other: Any = None
    if jinja is not None:
        other = [{"name": "default", "template": jinja}]
        other += [{"name": name, "template": text} for name, text in folder.more_templates().items()]
    elif "chat_template" not in settings:
        other = folder.json("chat_template.json").get("chat_template")
    value = settings.get("chat_template", other)
    if isinstance(value, str):
        return {"default": value}
    found: dict[str, str] = {}
    choices = [choice for choice in value if isinstance(choice, dict)] if isinstance(value, list) else []
    for choice in choices:
        name, text = choice.get("name"), choice.get("template")
        if isinstance(name, str) and isinstance(text, str) and name:
            letters = string.ascii_letters + string.digits
            found["".join(c if c in letters else "_" for c in name)] = text
    return found
