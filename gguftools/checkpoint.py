"""Checkpoint: a Hugging Face folder or Hub repo: its config, its tokenizer files, its tensors as byte ranges.

Only safetensors are read: a pickle runs code when it is loaded, so .bin and .pt files are never opened.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from . import safetensors
from .errors import FormatError, InputError, NotFound, Unsupported
from .safetensors import Entry

SMALL_FILES = (
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "tiktoken.model", "chat_template.jinja", "chat_template.json", "vocab.json", "merges.txt",
)  # fmt: skip
_SMALL_CAP = 200_000_000  # bytes; the largest tokenizer.json seen is 35 MB
_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a folder holds. `config` is config.json; `files` the small files by name; `tensors` the byte ranges."""

    name: str
    folder: Path
    config: Mapping[str, Any]
    files: Mapping[str, bytes]
    tensors: Mapping[str, Entry]

    @classmethod
    def open(cls, src: str | Path, *, tensors: bool = True, offline: bool = False) -> Checkpoint:
        """Reads the small files and, with `tensors`, every shard's table; no weights.

        `src` is a folder or org/repo on the Hub, whose files are downloaded into the usual cache.
        Raises NotFound, FormatError, InputError (files that contradict each other), Unsupported (pickles alone),
        HubError.
        """
        folder = _folder(src, tensors, offline)
        files = small_files(folder)
        if "config.json" not in files and tensors:
            raise NotFound(
                f"{folder} has no config.json", "a Hugging Face model folder has one", "check the path"
            )
        config = as_json(folder / "config.json", files.get("config.json", b"{}"))
        table = _tensors(folder) if tensors else {}
        name = folder.name if Path(src).is_dir() else str(src).rsplit("/", 1)[-1]
        return cls(name, folder, MappingProxyType(config), MappingProxyType(files), MappingProxyType(table))

    def tensor(self, name: str) -> tuple[str, tuple[int, ...], memoryview]:
        """A whole tensor: its safetensors dtype, its shape (outermost first), its bytes."""
        entry = self.tensors[name]
        return entry.dtype, entry.shape, memoryview(safetensors.read_bytes(entry, 0, entry.nbytes))


def small_files(folder: Path) -> dict[str, bytes]:
    """The config and tokenizer files of a folder, by name, those that are there. Raises NotFound, FormatError."""
    if not folder.is_dir():
        raise NotFound(
            f"{folder} is no folder", "a tokenizer or checkpoint is a folder of files", "check the path"
        )
    found = {name: folder / name for name in SMALL_FILES}
    found |= {
        f"additional_chat_templates/{p.name}": p
        for p in sorted(folder.glob("additional_chat_templates/*.jinja"))
    }
    out = {}
    for name, path in found.items():
        if not path.is_file():
            continue
        if path.stat().st_size > _SMALL_CAP:
            raise FormatError(path, _SMALL_CAP, f"it is larger than {_SMALL_CAP} bytes")
        out[name] = path.read_bytes()
    return out


def as_json(path: Path, data: bytes) -> dict[str, Any]:
    """A JSON object from a file's bytes. Raises FormatError."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FormatError(path, getattr(error, "pos", 0), f"it is not good JSON: {error}") from None
    if not isinstance(value, dict):
        raise FormatError(path, 0, "it is not a JSON object")
    return value


def _folder(src: str | Path, tensors: bool, offline: bool) -> Path:
    path = Path(src)
    if path.is_dir():
        return path
    if path.is_file():
        raise InputError(f"{src} is a file", "a checkpoint is a folder", f"give the folder: {path.parent}")
    raise NotFound(f"there is no folder {src}", "and it is no org/repo on the Hub", "check the path")


def _tensors(folder: Path) -> dict[str, Entry]:
    """All shards' tables as one. Raises InputError for a tensor in two shards or in another than the index says."""
    index = _weight_map(folder)
    shards = sorted(set(index.values())) if index else [_SINGLE]
    found: dict[str, Entry] = {}
    for shard in shards:
        path = folder / shard
        if not path.is_file():
            raise NotFound(
                f"{path} is missing", f"the checkpoint has {len(shards)} shards", "download it again"
            )
        for name, entry in safetensors.read_table(path).items():
            if name in found:
                raise InputError(
                    f"{name} is in two shards",
                    f"{found[name].path.name} and {shard}",
                    "download the checkpoint again",
                )
            found[name] = entry
    for name, shard in index.items():
        if name not in found or found[name].path.name != shard:
            raise InputError(
                f"{name} is not in {shard}", f"{_INDEX} says that it is", "download the checkpoint again"
            )
    return found


def _weight_map(folder: Path) -> dict[str, str]:
    """Tensor name → shard of the index file; empty for a checkpoint in one file. Raises as `Checkpoint.open`."""
    path = folder / _INDEX
    if not path.is_file():
        if (folder / _SINGLE).is_file():
            return {}
        raise _no_weights(folder)
    weight_map = as_json(path, path.read_bytes()).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise FormatError(path, 0, "it has no weight_map")
    for name, shard in weight_map.items():
        inside = (
            isinstance(shard, str) and shard == Path(shard).name and "\\" not in shard and ":" not in shard
        )
        if not inside or not shard.endswith(".safetensors"):
            raise FormatError(
                path, 0, f"it sends {name} to {shard!r}, which is no .safetensors file in this folder"
            )
    return weight_map


def _no_weights(folder: Path) -> Exception:
    pickles = sorted(p.name for pattern in _PICKLES for p in folder.glob(pattern))
    if pickles:
        return Unsupported(
            f"{folder} has its weights as pickles only ({pickles[0]})",
            "loading a pickle runs whatever code is in it, so gguftools never does",
            "look for a safetensors copy of the model",
        )
    return NotFound(
        f"{folder} has no weights",
        f"neither {_SINGLE} nor {_INDEX} is there",
        "with --vocab-only none are needed",
    )
