"""What `gguftools convert` tells: the summary, and a dry run's tensors file by file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from . import ui

if TYPE_CHECKING:
    from ..verbs.convert import Converted, File, Made


def summary(done: Converted, free: int | None = None) -> None:
    """What was written, or would be; `free` are the disk's free bytes."""
    types = ", ".join(f"{count} {name}" for name, count in done.types.items()) or "none"
    files = f"{len(done.files)} files, the first is " if len(done.files) > 1 else ""
    rows = [
        ("would write" if done.dry_run else "wrote", f"{files}{done.path}"),
        ("size", _size(done.nbytes)),
        ("architecture", done.architecture),
        ("tensors", types),
        ("tokens", f"{done.n_tokens:,}"),
    ]
    if done.n_kept:
        rows.insert(1, ("kept", f"{done.n_kept} files from an earlier run"))
    if free is not None:
        rows.insert(2, ("free", _size(free)))
    ui.table(rows)


def tensors(done: Converted) -> None:
    """Each file's tensors in the order of its bytes, with their sums."""
    for file in done.files:
        ui.line(f"{file.path.name}: {len(file.tensors)} tensors, {file.nbytes:,} bytes")
        ui.table(_rows(file), ("tensor", "type", "shape", "bytes", "made of"))


def _rows(file: File) -> Iterator[tuple[str, ...]]:
    data = sum(made.nbytes for made in file.tensors)
    yield "(header, padding)", "", "", f"{file.nbytes - data:,}", ""
    for made in file.tensors:
        shape = " × ".join(map(str, made.shape))
        yield made.name, made.type, shape, f"{made.nbytes:,}", _sources(made)


def _sources(made: Made) -> str:
    if not made.sources:
        return "config.json"
    more = f" and {len(made.sources) - 1} more" if len(made.sources) > 1 else ""
    return made.sources[0] + more


def _size(nbytes: int) -> str:
    return f"{nbytes / 1e9:,.2f} GB" if nbytes >= 10**10 else f"{nbytes / 1e6:,.1f} MB"
