"""The files that a conversion writes: one, or shards as llama.cpp's gguf-split makes them.

Shards are NAME-00001-of-0000N.gguf; the first holds all keys, each one split.no, split.count and
split.tensors.count. Tensors stay in order, and a shard is full when the next tensor would make it too large.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import InputError
from ...gguf_write import Key, data_bytes, header_bytes, padded, table_row
from ...header.ggml_types import ValueType
from ...header.shards import MAX_SHARDS
from .plan import Job


@dataclass(frozen=True, slots=True)
class Shard:
    """One file to come: all that stands before its tensors, and these."""

    path: Path
    head: bytes
    jobs: tuple[Job, ...]

    @property
    def nbytes(self) -> int:
        return len(self.head) + data_bytes(job.out for job in self.jobs)


def plan(out: Path, keys: Sequence[Key], jobs: Sequence[Job], split_size: int | None) -> list[Shard]:
    """The files of at most `split_size` bytes, but for a tensor that is larger; one file keeps its name.

    Raises InputError for a size that makes too many.
    """
    groups = [list(jobs)] if split_size is None else _groups(keys, jobs, split_size)
    if len(groups) == 1:
        return [Shard(out, header_bytes(keys, [job.out for job in jobs]), tuple(jobs))]
    if len(groups) > MAX_SHARDS:
        raise InputError(
            f"a size of {split_size:,} bytes makes {len(groups):,} shards",
            f"a model has at most {MAX_SHARDS:,}",
            "give a larger --split-size",
        )
    found = []
    for no, group in enumerate(groups):
        own = [*(keys if no == 0 else ()), *_split_keys(no, len(groups), len(jobs))]
        head = header_bytes(own, [job.out for job in group])
        found.append(Shard(_path(out, no, len(groups)), head, tuple(group)))
    return found


def _groups(keys: Sequence[Key], jobs: Sequence[Job], size: int) -> list[list[Job]]:
    first, later = (len(header_bytes([*some, *_split_keys(0, 1, 1)], [])) for some in (keys, ()))
    groups: list[list[Job]] = []
    head = data = 0
    for job in jobs:
        row, own = len(table_row(job.out, 0)), padded(job.out.nbytes)
        if not groups or padded(head + row) + data + own > size:
            groups.append([])
            head, data = first if len(groups) == 1 else later, 0
        groups[-1].append(job)
        head += row
        data += own
    return groups


def _split_keys(no: int, count: int, n_tensors: int) -> list[Key]:
    return [
        ("split.no", no, ValueType.U16),
        ("split.count", count, ValueType.U16),
        ("split.tensors.count", n_tensors, ValueType.I32),
    ]


def _path(out: Path, no: int, count: int) -> Path:
    return out.with_name(f"{out.name.removesuffix('.gguf')}-{no + 1:05}-of-{count:05}.gguf")
