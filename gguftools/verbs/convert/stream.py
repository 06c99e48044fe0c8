"""The bytes of a conversion: room for them, what is downloaded for them, progress, one file or shards."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from ... import __version__, gguf_write, goal
from ...checkpoint import Checkpoint
from ...errors import InputError, LoadAborted
from .pieces import of
from .plan import Job
from .resume import digests, source, write_shards
from .shards import Shard

Progress = Callable[[str, float], "bool | None"]

log = logging.getLogger("gguftools.verbs.convert")


def write(
    checkpoint: Checkpoint,
    out: Path,
    shards: Sequence[Shard],
    options: Mapping[str, Any],
    *,
    force: bool,
    offline: bool,
    progress: Progress | None,
) -> int:
    """Writes all files; returns how many were whole from an earlier run.

    One file: every source file is downloaded before it is begun, since a stop loses it. Shards: each source
    file when the first shard needs it.
    """
    state = source(checkpoint)
    jobs = [job for shard in shards for job in shard.jobs]
    fetch, tellers = _fetcher(checkpoint, jobs, offline, progress), _tellers(jobs, progress)

    def fill(file: BinaryIO, shard: Shard) -> None:
        fetch(shard.jobs)
        file.write(shard.head)
        for job in shard.jobs:
            gguf_write.write_tensor(file, job.out, of(job, tellers[job.out.name]))
        _unchanged(checkpoint, state)

    if len(shards) == 1:
        _check_room(checkpoint, shards[0].path, shards)
        with goal.new_file(shards[0].path, shards[0].nbytes, force=force) as file:
            fill(file, shards[0])
        return 0
    plan = {"version": __version__, "files": state, **options, **digests(checkpoint, shards)}
    room = partial(_check_room, checkpoint, out)
    n_kept = write_shards(out, shards, plan, fill, force=force, room=room)
    if n_kept:
        log.info("%d of %d shards were there already", n_kept, len(shards))
    return n_kept


def _check_room(checkpoint: Checkpoint, out: Path, shards: Sequence[Shard]) -> None:
    """Raises DiskFull where the files to come, with what is still to be downloaded, do not fit."""
    wanted = sum(shard.nbytes for shard in shards)
    missing = _missing(checkpoint, _files(checkpoint, [job for shard in shards for job in shard.jobs]))
    if missing and not goal.same_disk(out, checkpoint.folder):
        goal.check_room(checkpoint.folder, missing)
        missing = 0
    goal.check_room(out, wanted + missing)


def _missing(checkpoint: Checkpoint, names: Iterable[str]) -> int:
    """Bytes of a Hub repo's files that are not in the cache."""
    if checkpoint.remote is None:
        return 0
    return sum(checkpoint.remote.files[n] for n in names if not (checkpoint.folder / n).is_file())


def _files(checkpoint: Checkpoint, jobs: Iterable[Job]) -> set[str]:
    """The source files that the jobs read. A weight lies in several tensors (its scales) of one module."""
    wanted = {source.name.rpartition(".")[0] for job in jobs for source in job.sources}
    return {e.path.name for e in checkpoint.tensors.values() if e.name.rpartition(".")[0] in wanted}


def _fetcher(
    checkpoint: Checkpoint, jobs: Iterable[Job], offline: bool, progress: Progress | None
) -> Callable[[Sequence[Job]], None]:
    """A function that downloads what some of the jobs need; the progress counts what all of them do."""
    if checkpoint.remote is None:
        return lambda _jobs: None
    sizes = {name: checkpoint.remote.files[name] for name in _files(checkpoint, jobs)}
    total = max(sum(sizes.values()), 1)
    have: set[str] = set()

    def fetch(jobs: Sequence[Job]) -> None:
        names = sorted(_files(checkpoint, jobs) - have)
        before, part = sum(sizes[n] for n in have), sum(sizes[n] for n in names)

        def tell(stage: str, fraction: float) -> bool | None:
            return progress(stage, (before + fraction * part) / total) if progress is not None else None

        checkpoint.fetch(names, offline=offline, progress=tell)
        have.update(names)

    return fetch


def _tellers(jobs: Sequence[Job], progress: Progress | None) -> dict[str, Callable[[float], None]]:
    """For each tensor a function that turns "this part of the tensor" into "this part of all"."""
    total = sum(job.out.nbytes for job in jobs)
    found: dict[str, Callable[[float], None]] = {}
    done = 0
    for job in jobs:

        def tell(part: float, done: int = done, size: int = job.out.nbytes) -> None:
            if progress is not None and progress("convert", (done + part * size) / total) is False:
                raise LoadAborted("the conversion was stopped", "nothing was kept", "run it again")

        found[job.out.name] = tell
        done += job.out.nbytes
    return found


def _unchanged(checkpoint: Checkpoint, state: Mapping[str, Any]) -> None:
    if source(checkpoint) != state:
        raise InputError(
            f"{checkpoint.folder} was changed while it was read",
            "the output would mix two states of it",
            "run it again when nothing writes there",
        )
