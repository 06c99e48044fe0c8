"""Conversions of a tiny checkpoint into shards, and what a stopped one leaves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gguftools.errors import LoadAborted
from gguftools.verbs.convert import Converted, convert, resume

SIZE = 100_000  # bytes of a shard: six of them
Progress = Callable[[str, float], "bool | None"]


def run(src: Path, out: Path, **changes: Any) -> Converted:
    return convert(src, out, **{"split_size": SIZE, **changes})


def stop_at(part: float) -> Progress:
    return lambda _stage, fraction: fraction < part


def content(done: Converted) -> list[bytes]:
    return [file.path.read_bytes() for file in done.files]


def begin(src: Path, out: Path, part: float = 0.7, **changes: Any) -> Path:
    """The folder that a conversion leaves that is stopped there."""
    with pytest.raises(LoadAborted):
        run(src, out, progress=stop_at(part), **changes)
    return resume.folder(out)


def shards_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.gguf"))
