"""The vocabulary of a Hugging Face folder, with the ids, flags and templates as llama.cpp's converter has.

The rules are those of gguf-py's SpecialVocab (llama.cpp, gguf-py/gguf/vocab.py), with two additions: lists of
eos ids are read, and the token that ends a turn is named as eot, which libllama else takes from an unordered
map.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import FormatError, InputError, NotFound
from ..header.strings import StringArray
from . import kimi, sentencepiece, special, tokenizer_json
from .pieces import MAX_TOKENS, Pieces

MAX_FILE = 256 << 20  # bytes of one tokenizer file
FILES = (
    *("tokenizer.json", "tiktoken.model", "tokenizer.model", "tokenizer_config.json", "config.json"),
    *("generation_config.json", "chat_template.jinja", "chat_template.json"),
)  # and MORE_TEMPLATES/*.jinja
MODELS = FILES[:3]  # one of them there must be
MORE_TEMPLATES = "additional_chat_templates/"
# Texts that end a turn, where generation_config.json lists several ids.
_EOT = (b"<|im_end|>", b"<|eot_id|>", b"<end_of_turn>", b"<|end|>", b"<turn|>")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_AGAIN = "download it again"
_LLAMA_TYPES = ("llama", "mistral", "mixtral")
_GEMMA_TYPES = ("gemma3", "gemma3_text")
_GEMMA_SIZE = 262208  # transformers' vocab_size where a Gemma 3's config.json has none, as those with vision


def json_object(where: object, data: bytes) -> dict[str, Any]:
    """The JSON object in a file's bytes; `where` names the file. Raises FormatError.

    Half a surrogate pair is refused here, since no text with one can be written or shown.
    """
    try:
        value = json.loads(data.decode("utf-8"))
        if _SURROGATE.search(data):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        raise FormatError(where, error.start, "it is not UTF-8", _AGAIN) from None
    except UnicodeEncodeError:
        raise FormatError(where, None, "a text in it is half a surrogate pair", _AGAIN) from None
    except ValueError as error:
        raise FormatError(where, getattr(error, "pos", 0), f"it is not JSON: {error}", _AGAIN) from None
    except RecursionError:
        raise FormatError(where, None, "it is nested too deeply", _AGAIN) from None
    if not isinstance(value, dict):
        raise FormatError(where, None, "its JSON is not an object", _AGAIN)
    return value


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
        data = self.get(name)
        return {} if data is None else json_object(self.where(name), data)

    def more_templates(self) -> dict[str, str]:
        """Name -> text of additional_chat_templates/*.jinja."""
        if isinstance(self.source, Path):
            found = self.source.glob(f"{MORE_TEMPLATES}*.jinja")
            names = sorted(f"{MORE_TEMPLATES}{path.name}" for path in found)
        else:
            names = more_templates(self.source)
        return {name[len(MORE_TEMPLATES) : -len(".jinja")]: self.text(name) or "" for name in names}


def more_templates(files: Iterable[str]) -> list[str]:
    """Those of the file names that are further chat templates."""
    return sorted(name for name in files if name.startswith(MORE_TEMPLATES) and name.endswith(".jinja"))


def read(source: str | Path | Mapping[str, bytes]) -> dict[str, Any]:
    """The fields of the Vocab in these files; see Vocab.from_checkpoint."""
    folder = Folder(source if isinstance(source, Mapping) else Path(source))
    try:
        return _read(folder)
    except RecursionError:
        raise FormatError(
            folder.where(""), None, "its tokenizer files are nested too deeply", _AGAIN
        ) from None


def _read(folder: Folder) -> dict[str, Any]:
    config = _flat(folder.json("config.json"))
    settings = folder.json("tokenizer_config.json")
    doc: dict[str, Any] = {}
    size = config.get("vocab_size")
    if size is None and config.get("model_type") in _GEMMA_TYPES:
        size = _GEMMA_SIZE
    if size is not None and (not isinstance(size, int) or not 0 < size <= MAX_TOKENS):
        raise FormatError(folder.where("config.json"), None, f"vocab_size is {size!r}", _AGAIN)
    if (data := folder.get("tiktoken.model")) is not None:
        pieces = kimi.pieces(data, settings, size, folder.where("tiktoken.model"))
    elif (data := folder.get("tokenizer.model") or b"").startswith(b"\n"):
        pieces = sentencepiece.pieces(data, settings, size, folder.where("tokenizer.model"))
        doc = folder.json("tokenizer.json")
    elif doc := folder.json("tokenizer.json"):
        pieces = tokenizer_json.pieces(doc, size, folder.where("tokenizer.json"))
    else:
        what = f"{folder.where('')}: no tokenizer"
        raise NotFound(what, f"none of {', '.join(MODELS)} is there", "give a folder that has one")
    try:
        settings, adds = _adds(doc.get("post_processor"), settings)
    except (AttributeError, TypeError, LookupError):
        why = "its post_processor is not built as the tokenizers library builds it"
        raise FormatError(folder.where("tokenizer.json"), None, why, _AGAIN) from None
    prefix, kind = pieces.add_space_prefix, config.get("model_type", "llama")
    if kind in _LLAMA_TYPES and isinstance(settings.get("add_prefix_space"), bool):
        prefix = settings["add_prefix_space"]
    elif kind in _GEMMA_TYPES:
        prefix = False  # whatever its files say, as llama.cpp's converter
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
    for kind in special.KEYS:
        name = _name(settings, kind)
        if name is not None and (text := name.encode()) in named:
            ids[kind] = named[text]
        elif found := _numbers(kind, config, pieces) + _numbers(kind, generation, pieces):
            ids[kind] = found[0]
    ends = _numbers("eos", generation, pieces)
    if pieces.pre == kimi.PRE:
        ids |= kimi.turn_ends(pieces, ends)
    elif "eot" not in ids:
        others = [*_numbers("eos", config, pieces), *([ids["eos"]] if "eos" in ids else [])]
        ids |= _turn_end(pieces, ends, others)
    return {kind: ids[kind] for kind in special.KEYS if kind in ids}


def _turn_end(pieces: Pieces, ends: Sequence[int], others: Sequence[int]) -> dict[str, int]:
    """eot, where it is plain: an id that ends text and reads so, else the only one of generation_config.json
    that nothing else names."""
    turn = [i for i in (*ends, *others) if pieces.texts[i] in _EOT]
    turn = turn or [i for i in ends if len(ends) == 1 and i not in others]
    return {"eot": turn[0]} if turn else {}


def _numbers(kind: str, file: Mapping[str, Any], pieces: Pieces) -> list[int]:
    """The ids that a JSON file names for this kind: a number or a list of them."""
    value = file.get(f"{kind}_token_id")
    ids = value if isinstance(value, list) else [value]
    return [i for i in ids if type(i) is int and 0 <= i < len(pieces.texts)]


def _templates(folder: Folder, settings: Mapping[str, Any]) -> dict[str, str]:
    jinja = folder.text("chat_template.jinja")
    other: Any = None
    if jinja is not None:
        other = [{"name": "default", "template": jinja}]
        other += [{"name": name, "template": text} for name, text in folder.more_templates().items()]
    elif settings.get("chat_template") is None:
        other = folder.json("chat_template.json").get("chat_template")
    value = settings.get("chat_template")
    value = other if value is None else value
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
