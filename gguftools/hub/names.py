"""Names of models on the Hub: `org/repo[:file or quant]`, split files, and which names are safe to write."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath, PureWindowsPath

from ..errors import InputError, NotFound

_NAME = re.compile(
    r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@(?P<revision>[\w./-]+))?(?::(?P<pick>.+))?"
)
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})(?=\.gguf$)")
_LISTED = 30


@dataclass(frozen=True, slots=True)
class HubName:
    """A parsed name: `repo` is org/name, `pick` a file name, a quant label or empty."""

    repo: str
    pick: str
    revision: str = "main"


@dataclass(frozen=True, slots=True)
class HubFile:
    """One GGUF on the Hub: all shards in order, with their sizes in bytes.

    `revision` is a commit, `ref` the branch or tag that meant it.
    """

    repo: str
    revision: str
    files: tuple[str, ...]
    sizes: tuple[int, ...]
    ref: str = "main"


@dataclass(frozen=True, slots=True)
class HubRepo:
    """A repo without GGUF files: file name → size in bytes."""

    repo: str
    revision: str
    files: Mapping[str, int]
    ref: str = "main"


def parse(name: str) -> HubName | None:
    """`name` as a Hub name, or None where it can only be a path.

    >>> parse("org/repo:Q4_K_M")
    HubName(repo='org/repo', pick='Q4_K_M', revision='main')
    """
    match = _NAME.fullmatch(name)
    if not match or ".." in match["repo"] or match["repo"].lower().endswith(".gguf"):
        return None
    return HubName(match["repo"], match["pick"] or "", match["revision"] or "main")


def is_safe(file: str) -> bool:
    """Whether a file name from the Hub stays inside the folder that it is joined to, on every system."""
    posix, windows = PurePosixPath(file), PureWindowsPath(file)
    return (
        bool(file)
        and not posix.is_absolute()
        and not windows.drive
        and not windows.root
        and ".." not in windows.parts
        and "\0" not in file
        and ":" not in file
    )


def groups(files: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The GGUF models among `files`: name without the shard number → its shards in order."""
    found: dict[str, list[str]] = {}
    for file in sorted(files):
        if file.endswith(".gguf"):
            found.setdefault(_SHARD.sub("", file), []).append(file)
    return {name: tuple(shards) for name, shards in found.items()}


def choose(name: HubName, sizes: Mapping[str, int]) -> tuple[str, ...] | None:
    """The files of the one model that `name` means; None where the repo has no GGUF and none was asked for.

    An exact file name wins over a quant label. Raises InputError that lists the choices where several fit,
    NotFound where none does or shards are missing.
    """
    models = groups(sizes)
    if not models and not name.pick:
        return None
    hits = _named(name.pick, models) or _labelled(name.pick, models)
    if len(hits) == 1:
        return _whole(name, models[hits[0]])
    if hits:
        what = f"{name.repo} has {len(hits)} models that fit" + (f" '{name.pick}'" if name.pick else "")
        raise InputError(what, _listing(models, hits, sizes), f"name one: {name.repo}:{hits[0]}")
    raise NotFound(
        f"{name.repo} has no GGUF named or labelled '{name.pick}'",
        _listing(models, list(models), sizes) if models else "it holds no GGUF file",
        f"name one that it has, as {name.repo}:FILE",
    )


def _named(pick: str, models: Mapping[str, tuple[str, ...]]) -> list[str]:
    def is_it(model: str) -> bool:
        paths = (model, *models[model])
        return pick in paths or pick in {PurePosixPath(path).name for path in paths}

    exact = [model for model in models if pick == model or pick in models[model]]
    return exact or [model for model in models if is_it(model)]


def _labelled(pick: str, models: Mapping[str, tuple[str, ...]]) -> list[str]:
    beside = re.compile(r"(^|[-_./])(mmproj|imatrix)([-_./]|$)", re.I)
    candidates = [model for model in models if not beside.search(model)]
    if not pick:
        return candidates
    label = re.compile(rf"(^|[-_./]){re.escape(pick)}([-./]|$)", re.I)
    return [model for model in candidates if label.search(model.removesuffix(".gguf"))]


def _whole(name: HubName, shards: tuple[str, ...]) -> tuple[str, ...]:
    numbers = [_SHARD.search(shard) for shard in shards]
    count = int(numbers[0][2]) if numbers[0] else 1
    if numbers[0] and [int(m[1]) for m in numbers if m] != list(range(1, count + 1)):
        raise NotFound(
            f"{name.repo}: {len(shards)} of {count} shards are there",
            f"found {', '.join(shards[:5])}",
            "the repo is incomplete: choose another",
        )
    return shards


def _listing(models: Mapping[str, tuple[str, ...]], hits: list[str], sizes: Mapping[str, int]) -> str:
    rows = [f"{hit} ({sum(sizes[file] for file in models[hit]) / 1e9:.1f} GB)" for hit in hits[:_LISTED]]
    more = f", and {len(hits) - _LISTED} more" if len(hits) > _LISTED else ""
    return "it has " + ", ".join(rows) + more
