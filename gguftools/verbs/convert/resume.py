"""A conversion into shards that goes on where it was stopped.

Beside the goal NAME.gguf stands the folder NAME.gguf.unfinished until all is done. In it are the shards that
are whole, and record.json: what is converted (the plan) and what each whole shard looked like when it was
closed. A shard counts as whole only where the record names it and its size, its time and its whole header are
as they should be; its tensors are not read again. At the end the shards take their names beside it, the first
one, which a reader begins with, last.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO

from ... import goal
from ...checkpoint import Checkpoint
from ...errors import FormatError, GGUFToolsError, InputError, OutputExists, Unsupported
from .shards import Shard

RECORD, LOCK = "record.json", "lock"
_SHARD, _PART = re.compile(r".+-\d{5}-of-\d{5}\.gguf"), re.compile(r"\..+\.part")
_NOTE = (
    "An unfinished conversion by gguftools. Run the same command again and it goes on after the shards that "
    "are named here. Remove this folder to give it up."
)
# Parts of the plan → what a person calls them.
_WORDS = {
    "version": "version of gguftools",
    "files": "source (its files, their sizes or times)",
    "config": "config.json",
    "outtype": "--outtype",
    "split_size": "--split-size",
    "heads": "keys or tensors",
}

log = logging.getLogger("gguftools.verbs.convert")

Plan = Mapping[str, Any]
Record = dict[str, Any]


def folder(out: Path) -> Path:
    """Where the whole shards of an unfinished conversion into `out` lie."""
    return out.parent.resolve() / f"{out.name}.unfinished"


def source(checkpoint: Checkpoint) -> dict[str, Any]:
    """What tells one state of the source's files from another: of each its size, its time and its table.

    The files of a Hub repo are told by their commit.
    """
    rows: dict[str, list[Any]] = {}
    for entry in checkpoint.tensors.values():
        row = (entry.name, entry.dtype, entry.shape, entry.start, entry.stop)
        rows.setdefault(entry.path.name, []).append(row)
    found: dict[str, Any] = {}
    for name, table in sorted(rows.items()):
        digest = hashlib.sha256(json.dumps(sorted(table)).encode()).hexdigest()
        if checkpoint.remote is not None:
            found[name] = [checkpoint.remote.revision, checkpoint.remote.files.get(name), digest]
            continue
        facts = (checkpoint.folder / name).stat()
        found[name] = [facts.st_size, facts.st_mtime_ns, digest]
    return found


def digests(checkpoint: Checkpoint, shards: Sequence[Shard]) -> dict[str, Any]:
    """What else decides the bytes: config.json, and keys and tensors, which each shard's header holds."""
    config = hashlib.sha256(checkpoint.files.get("config.json", b"")).hexdigest()
    return {"config": config, "heads": [hashlib.sha256(shard.head).hexdigest() for shard in shards]}


def write_shards(
    out: Path,
    shards: Sequence[Shard],
    plan: Plan,
    fill: Callable[[BinaryIO, Shard], None],
    *,
    force: bool,
    room: Callable[[Sequence[Shard]], None],
) -> int:
    """Writes the shards, each by `fill`, and returns how many of them were there from an earlier run.

    `plan` says, in values of JSON, all that decides the bytes; `room` raises where the shards still to be
    written do not fit. Raises OutputExists (a shard's name is taken, or what was begun differs in its plan,
    both unless `force`), InputError (another process is at it), and what `fill` raises: after bad input
    nothing is kept.
    """
    plan = json.loads(json.dumps(plan))
    with _claimed(out) as place:
        done = _begun(place, plan, force)
        found = {shard.path.name: _where(place, shard, done) for shard in shards}
        done = {name: stamp for name, stamp in done.items() if found.get(name) is not None}
        left = [shard for shard in shards if shard.path.name not in done]
        _no_names_taken(place, shards, done, force)
        room(left)
        n_kept = len(done)
        try:
            _note(place, plan, done)
            for shard in left:
                _write_one(place, shard, fill)
                done[shard.path.name] = _stamp(place / shard.path.name, shard)
                _note(place, plan, done)
            _publish(place, shards, done, force)
        except _BadInput as error:
            _remove(place)
            raise error.found from None
        except BaseException as error:
            _leave(place, error, len(done), len(shards))
            raise
        _remove(place)
    return n_kept


class _BadInput(Exception):
    """`found` was raised by what is read, so what was made of it is of no use."""

    def __init__(self, found: GGUFToolsError) -> None:
        super().__init__(found)
        self.found = found


def _write_one(place: Path, shard: Shard, fill: Callable[[BinaryIO, Shard], None]) -> None:
    with goal.new_file(place / shard.path.name, shard.nbytes, force=True) as file:
        try:
            fill(file, shard)
        except (InputError, FormatError, Unsupported) as error:
            raise _BadInput(error) from None


@contextmanager
def _claimed(out: Path) -> Iterator[Path]:
    """The folder, ours alone. Raises InputError where another process has it, or it is something else."""
    place = folder(out)
    if (place.exists() and not (place / RECORD).is_file() and not _is_empty(place)) or place.is_file():
        raise InputError(
            f"{place} is no unfinished conversion",
            "its name is needed for one",
            "move it away or choose another output",
        )
    try:
        place.mkdir(exist_ok=True)
        lock = (place / LOCK).open("ab")
    except OSError as error:
        raise InputError(
            f"{place} cannot be written", error.strerror or "", "choose another place"
        ) from error
    with lock:
        if not _lock(lock):
            raise InputError(
                f"{out} is being written", f"by another process, in {place}", "wait for it, or stop it"
            )
        try:
            yield place
        finally:
            if not (place / RECORD).exists():
                lock.close()  # Windows removes no open file
                with suppress(OSError):
                    (place / LOCK).unlink(missing_ok=True)
                    place.rmdir()


def _is_empty(place: Path) -> bool:
    """Whether nothing is in it but what a process leaves that is killed as it begins."""
    return place.is_dir() and all(p.name == LOCK or _PART.fullmatch(p.name) for p in place.iterdir())


def _lock(file: IO[bytes]) -> bool:
    """Whether nobody else holds it; the system lets go of it with the process, however that ends."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EACCES, errno.EAGAIN, errno.EDEADLK)  # else: no locks on this disk
    return True


def _begun(place: Path, plan: Plan, force: bool) -> Record:
    """Name → stamp of the shards that the record names. Raises OutputExists for those of another plan."""
    record = _read(place)
    for path in place.iterdir():
        if _PART.fullmatch(path.name):  # of a process that was killed: the folder is ours alone
            path.unlink(missing_ok=True)
    if record["plan"] == plan:
        return dict(record["shards"])
    if record["shards"] and not force:
        other = [word for key, word in _WORDS.items() if record["plan"].get(key) != plan.get(key)]
        raise OutputExists(
            f"{place} holds {len(record['shards'])} shards of another conversion",
            f"it differs in: {', '.join(other) or 'its record'}",
            f"run that command again to finish it, or: rm -r {shlex.quote(str(place))} (or add --force)",
        )
    _remove(place)
    return {}


def _read(place: Path) -> Record:
    """The record; an empty one where there is none that can be read."""
    found: Any = None
    with suppress(OSError, ValueError, RecursionError):
        found = json.loads((place / RECORD).read_bytes())
    parts = {key: found.get(key) if isinstance(found, dict) else None for key in ("plan", "shards")}
    return parts if all(isinstance(part, dict) for part in parts.values()) else {"plan": {}, "shards": {}}


def _note(place: Path, plan: Plan, done: Record) -> None:
    record = {"note": _NOTE, "plan": plan, "shards": done}
    goal.put(place / RECORD, json.dumps(record, indent=1).encode())


def _stamp(path: Path, shard: Shard) -> dict[str, Any]:
    facts = path.stat()
    head = hashlib.sha256(shard.head).hexdigest()
    return {"nbytes": facts.st_size, "mtime_ns": facts.st_mtime_ns, "header_sha256": head}


def _where(place: Path, shard: Shard, done: Record) -> Path | None:
    """Where the shard lies whole: in the folder, or under its own name already."""
    name = shard.path.name
    return next((path for path in (shard.path, place / name) if _is_whole(path, shard, done.get(name))), None)


def _is_whole(path: Path, shard: Shard, stamp: Any) -> bool:
    try:
        if stamp != _stamp(path, shard) or stamp["nbytes"] != shard.nbytes:
            return False
        with path.open("rb") as file:
            return file.read(len(shard.head)) == shard.head
    except OSError:
        return False


def _no_names_taken(place: Path, shards: Sequence[Shard], done: Record, force: bool) -> None:
    """Raises OutputExists for a name that something else has; what was moved there before is ours."""
    for shard in shards:
        if _where(place, shard, done) != shard.path:
            goal.check_file(shard.path, force=force)


def _publish(place: Path, shards: Sequence[Shard], done: Record, force: bool) -> None:
    """Gives the shards their names. Old ones go first: a set that stops midway lacks some, but mixes none."""
    waiting = [shard for shard in shards if _where(place, shard, done) != shard.path]
    _no_names_taken(place, shards, done, force)
    if force:
        for shard in waiting:
            shard.path.resolve().unlink(missing_ok=True)
    for shard in reversed(waiting):
        goal.give_name(place / shard.path.name, shard.path, force=force)


def _leave(place: Path, error: BaseException, n_done: int, n_shards: int) -> None:
    """Whole shards stay, and the error says so; without one nothing does."""
    if n_done == 0:
        _remove(place)
        return
    kept = f"{n_done} of {n_shards} shards are kept in {place}"
    if not isinstance(error, GGUFToolsError):
        log.warning("%s: the same command goes on there", kept)
        return
    why = error.why.replace("nothing was kept", kept)
    error.why = why if kept in why else f"{why}; {kept}".removeprefix("; ")
    error.hint = f"{error.hint}; the same command goes on there".removeprefix("; ")
    error.args = (error.what, error.why, error.hint)


def _remove(place: Path) -> None:
    """Takes away what we put there; a stranger's file stays, and the folder with it."""
    for path in place.iterdir():
        if (_SHARD.fullmatch(path.name) or _PART.fullmatch(path.name)) and path.is_file():
            path.unlink(missing_ok=True)
    (place / RECORD).unlink(missing_ok=True)
