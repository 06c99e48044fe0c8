"""Split GGUFs: NAME-00001-of-00003.gguf and so on, as llama-gguf-split names them, and their keys split.*."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import FormatError, InputError, NotFound

if TYPE_CHECKING:
    from . import Header

MAX_SHARDS = 4096
_NAME = re.compile(r"(?P<stem>.+)-(?P<no>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


def local(name: str | Path) -> Path:
    """`name` as a path of this machine, `~` expanded where it stands for a home."""
    try:
        return Path(name).expanduser()
    except RuntimeError:  # ~ and no such person
        return Path(name)


def pick(path: Path) -> Path:
    """`path` itself, or the one model in a folder: its single GGUF or the first shard that is there."""
    if not path.is_dir():
        if not path.exists():
            raise NotFound(f"{path}: no such file or folder")
        return path
    models: dict[str, Path] = {}
    for file in sorted(path.glob("*.gguf")):
        match = _NAME.fullmatch(file.name)
        models.setdefault(f"{match['stem']} of {match['count']}" if match else file.name, file)
    if not models:
        if (path / "config.json").is_file():
            hint = f"convert it first: gguftools convert {shlex.quote(str(path))} -o model.gguf"
            raise NotFound(f"{path}: no GGUF in this folder", "it is a Hugging Face checkpoint", hint)
        raise NotFound(f"{path}: no GGUF in this folder", "", "give a GGUF, or the folder of one")
    if len(models) > 1:
        names = ", ".join(sorted(file.name for file in models.values()))
        raise InputError(f"{path}: more than one model in this folder", names, "name the file that you mean")
    return next(iter(models.values()))


def names(path: Path, keys: Mapping[str, Any], where: Mapping[str, int]) -> list[Path]:
    """All shards of the model that `path` belongs to, in order; [path] for one that is not split."""
    count = keys.get("split.count", 0)
    if not isinstance(count, int) or count <= 1:
        return [path]
    if count > MAX_SHARDS:
        raise FormatError(path, where["split.count"], f"{count} shards, more than the cap of {MAX_SHARDS:,}")
    match = _NAME.fullmatch(path.name)
    if not match or int(match["count"]) != count:
        why = f"it is one of {count} shards, but its name does not end in -NNNNN-of-{count:05}.gguf"
        raise FormatError(path, where["split.count"], why, "give all shards the names they had")
    shards = [path.with_name(f"{match['stem']}-{i:05}-of-{count:05}.gguf") for i in range(1, count + 1)]
    missing = [shard.name for shard in shards if not shard.exists()]
    if missing:
        what = f"{path}: {len(missing)} of {count} shards are missing"
        shown = ", ".join(missing[:8]) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
        raise NotFound(what, shown, f"put them into {path.parent}")
    return shards


def join(parts: Sequence[Header]) -> Header:
    """One Header for the shards of a model, which must belong together: FormatError otherwise."""
    first = parts[0]
    tensors: dict[str, Any] = {}
    for no, part in enumerate(parts):
        _check(first, part, no, len(parts))
        for info in part.tensors:
            if info.name in tensors:
                _refuse(
                    part, f"the tensor {info.name} is also in {parts[tensors[info.name].shard].path.name}"
                )
            tensors[info.name] = replace(info, shard=no)
    total = first.get_plain("split.tensors.count")
    if total not in (None, len(tensors)):
        _refuse(first, f"the shards hold {len(tensors)} tensors together, but the model has {total}")
    return replace(
        first,
        files=tuple(part.path for part in parts),
        tensors=tuple(tensors.values()),
        nbytes=sum(part.nbytes for part in parts),
    )


def _check(first: Header, part: Header, no: int, count: int) -> None:
    if part.get_plain("split.count") != count or part.get_plain("split.no") != no:
        said = f"shard {part.get_plain('split.no')} of {part.get_plain('split.count')} (counted from 0)"
        _refuse(part, f"it says that it is {said}, its name says {no} of {count}")
    if part.version != first.version:
        _refuse(part, f"it is GGUF version {part.version}, the first shard version {first.version}")
    for key, value in part.keys.items():  # a later shard may repeat keys of the first
        plain = isinstance(value, (str, int, float)) and key.startswith(("general.", "split."))
        if plain and key != "split.no" and first.get_plain(key) != value:
            _refuse(part, f"its {key} is {value!r}, the first shard's {first.get_plain(key)!r}")


def _refuse(part: Header, why: str) -> None:
    hint = "the shards come from different models: fetch them again from one place"
    raise FormatError(part.path, part.where.get("split.count", 0), why, hint)
