"""Writing so that a goal is whole or untouched: beside it first, then renamed over it."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from .errors import DiskFull, InputError, OutputExists

_FULL = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}
_SPARE = 1 << 20  # bytes left free for the file system's own records


def check_file(goal: Path, *, force: bool = False) -> None:
    """Raises, before any work is done, what `new_file` would raise but for the disk's size."""
    if goal.is_dir():
        raise InputError(f"{goal} is a folder", "the output is one file", "give -o a file name")
    if goal.exists() and not goal.is_file():
        raise InputError(f"{goal} is no ordinary file", "replacing it would break it", "give -o a file name")
    if goal.exists() and not force:
        raise OutputExists(f"{goal} exists already", "nothing was written", "add --force to replace it")
    _check_parent(goal)


def check_folder(goal: Path, *, force: bool = False) -> None:
    """Raises, before any work is done, what `new_folder` would raise but for the disk's size."""
    if goal.exists() and not goal.is_dir():
        raise InputError(f"{goal} is a file", "the output is a folder", "give -o a folder name")
    full = goal.is_dir() and any(goal.iterdir())
    if full and not force:
        raise OutputExists(
            f"{goal} exists and is not empty", "nothing was written", "add --force to replace it"
        )
    if full and not (goal / "config.json").is_file():
        raise OutputExists(
            f"{goal} is not an exported model",
            "--force replaces only folders with a config.json",
            "choose another -o",
        )
    _check_parent(goal)


@contextmanager
def new_file(goal: Path, nbytes: int, *, force: bool = False) -> Iterator[BinaryIO]:
    """A file to write `nbytes` into; it takes the goal's name when the block ends well, else it is removed.

    Raises OutputExists (without `force`), InputError (no such folder), DiskFull (before, or while writing).
    """
    check_file(goal, force=force)
    _room(goal, nbytes)
    place = goal.resolve()  # a link stays, its file is replaced
    part = _beside(place)
    try:
        with _disk_errors(goal, part):
            with part.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            part.replace(place)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def new_folder(goal: Path, nbytes: int, *, force: bool = False) -> Iterator[Path]:
    """A folder to write `nbytes` into; it takes the goal's name when the block ends well, else it is removed.

    An empty folder may be there already; `force` replaces one that holds a config.json (an earlier export)
    and no other kind, so that a wrong name cannot delete a person's files. Errors as for `new_file`.
    """
    check_folder(goal, force=force)
    _room(goal, nbytes)
    place = goal.resolve()
    part = _beside(place)
    try:
        with _disk_errors(goal, part):
            part.mkdir()
            yield part
            _swap(part, place)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _swap(part: Path, goal: Path) -> None:
    """Gives `part` the goal's name; what stood there is put back when that fails, removed when it works."""
    if not goal.exists():
        part.replace(goal)
        return
    old = _beside(goal, "old")
    goal.replace(old)
    try:
        part.replace(goal)
    except BaseException:
        old.replace(goal)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _beside(goal: Path, ending: str = "part") -> Path:
    return goal.with_name(f".{goal.name}.{os.getpid()}.{ending}")


def _check_parent(goal: Path) -> None:
    parent = goal.resolve().parent
    if not parent.is_dir():
        raise InputError(
            f"{goal} cannot be written", f"there is no folder {parent}", f"run: mkdir -p {parent}"
        )


def _room(goal: Path, nbytes: int) -> None:
    free = shutil.disk_usage(goal.resolve().parent).free
    if free < nbytes + _SPARE:
        raise DiskFull(
            f"{goal} does not fit on its disk",
            f"it needs {_size(nbytes + _SPARE)}, {_size(free)} are free",
            "free some space or write to another disk",
        )


@contextmanager
def _disk_errors(goal: Path, part: Path) -> Iterator[None]:
    """A full disk becomes DiskFull; a `part` that cannot be made or renamed, InputError."""
    try:
        yield
    except DiskFull:
        raise
    except OSError as error:
        if error.filename == str(part):
            raise InputError(
                f"{goal} cannot be written", error.strerror or "", "choose another place with -o"
            ) from error
        if error.errno not in _FULL:
            raise
        raise DiskFull(
            f"{goal} could not be finished",
            f"the disk says: {error.strerror}; nothing was kept",
            "free some space or write to another disk",
        ) from error


def _size(nbytes: int) -> str:
    return f"{nbytes / 1e9:.2f} GB" if nbytes >= 10**7 else f"{nbytes / 1e6:.2f} MB"
