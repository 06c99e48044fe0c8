"""Writing so that a goal is whole or untouched: beside it first, then renamed over it."""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from . import flush
from .errors import DiskFull, GGUFToolsError, InputError, OutputExists

_FULL = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}
_SPARE = 1 << 20  # bytes left free for the file system's own records

Foreign = Callable[[Path], str]  # why a folder is not one to replace; empty where it is


def check_file(goal: Path, *, force: bool = False) -> None:
    """Raises, before any work is done, what `new_file` would raise but for the disk's size."""
    if goal.is_dir():
        raise InputError(f"{goal} is a folder", "this output is one file", "give the name of a file")
    if goal.exists() and not goal.is_file():
        raise InputError(f"{goal} is no ordinary file", "replacing it would break it", "choose another place")
    if goal.exists() and not force:
        raise OutputExists(f"{goal} exists already", "nothing was written", "add --force to replace it")
    _check_parent(goal)


def check_folder(goal: Path, foreign: Foreign, *, force: bool = False) -> None:
    """Raises, before any work is done, what `new_folder` would raise but for the disk's size."""
    if goal.exists() and not goal.is_dir():
        raise InputError(f"{goal} is a file", "this output is a folder", "give the name of a folder")
    full = goal.is_dir() and any(goal.iterdir())
    if full and not force:
        raise _folder_exists(goal)
    if full and (why := foreign(goal)):
        raise _keep(goal, why)
    _check_parent(goal)


def _folder_exists(goal: Path) -> OutputExists:
    return OutputExists(f"{goal} exists and is not empty", "nothing was written", "add --force to replace it")


def _keep(goal: Path, why: str) -> OutputExists:
    return OutputExists(f"{goal} is not replaced, even with --force", why, "choose another place")


@contextmanager
def new_file(goal: Path, nbytes: int, *, force: bool = False) -> Iterator[BinaryIO]:
    """A file to write `nbytes` into; it takes the goal's name when the block ends well, else it is removed.

    Raises OutputExists (without `force`, also where the goal appears meanwhile), InputError (no such folder),
    DiskFull (before, or while writing).
    """
    check_file(goal, force=force)
    place = goal.resolve()  # a link stays, its file is replaced
    _sweep(place)
    check_room(goal, nbytes)
    part = _beside(place)
    try:
        with _disk_errors(goal, part):
            with part.open("xb") as file:
                with flush.behind(file, nbytes):
                    yield file
                file.flush()
                os.fsync(file.fileno())
            give_name(part, goal, force=force)
    finally:
        part.unlink(missing_ok=True)


def put(goal: Path, data: bytes) -> None:
    """Writes a small file whole, in place of what was there."""
    with new_file(goal, len(data), force=True) as file:
        file.write(data)


@contextmanager
def scratch(goal: Path, what: str) -> Iterator[Path]:
    """A folder beside the goal for files on the way to it; it goes with all in it when the block ends.

    `what` tells apart several of one goal. Raises InputError where no folder can be made. Errors of writing
    in it are told of the goal.
    """
    place = goal.resolve()
    place = place.with_name(f"{place.name}.{what}")
    _sweep(place)
    part = _beside(place)
    with _disk_errors(goal, part):
        part.mkdir()
    try:
        with _told_of(goal, part):
            yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)


def give_name(part: Path, goal: Path, *, force: bool = False) -> None:
    """Gives a whole file the goal's name; without `force` only where nothing has it, else OutputExists."""
    place = goal.resolve()  # a link stays, its file is replaced
    if force:
        part.replace(place)
        return
    try:
        if os.name == "nt":
            part.rename(place)  # refuses there, replaces elsewhere
            return
        _link_or_rename(part, place)
    except FileExistsError:
        raise OutputExists(
            f"{goal} exists by now", "it was written meanwhile and is kept", "add --force to replace it"
        ) from None


def _link_or_rename(part: Path, place: Path) -> None:
    try:
        os.link(part, place)
    except FileExistsError:
        raise
    except OSError:  # a file system without links; an empty file to take the name could outlive us
        if place.exists():
            raise FileExistsError from None
        part.replace(place)
        return
    part.unlink()


@contextmanager
def new_folder(goal: Path, nbytes: int, foreign: Foreign, *, force: bool = False) -> Iterator[Path]:
    """A folder to write `nbytes` into; it takes the goal's name when the block ends well, else it is removed.

    An empty folder may be there already; `force` replaces one that is not `foreign`, so that neither a wrong
    name nor a file put there later costs a person anything. Errors as for `new_file`.
    """
    check_folder(goal, foreign, force=force)
    place = goal.resolve()
    _sweep(place)
    check_room(goal, nbytes)
    part = _beside(place)
    try:
        with _disk_errors(goal, part), _told_of(goal, part):
            part.mkdir()
            yield part
            if force and place.is_dir() and any(place.iterdir()):
                _swap(part, place, foreign)
                return
            with suppress(OSError):
                place.rmdir()  # an empty one
            try:
                part.rename(place)  # fails over a folder that is not empty, and over a file
            except OSError:
                if not place.exists():
                    raise
                raise _folder_exists(goal) from None
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _swap(part: Path, goal: Path, foreign: Foreign) -> None:
    """Gives `part` the goal's name; what stood there is put back when that fails, removed when it works."""
    old = _beside(goal, "old")
    goal.rename(old)
    try:
        if why := foreign(old):  # a file may have come since the first look
            raise _keep(goal, why)
        part.rename(goal)
    except BaseException:
        if not goal.exists():
            old.rename(goal)
        raise
    finally:
        if goal.exists():
            shutil.rmtree(old, ignore_errors=True)


def _beside(goal: Path, ending: str = "part") -> Path:
    return goal.with_name(f".{goal.name}.{_machine()}.{os.getpid()}.{ending}")


def _machine() -> str:
    """Tells the processes that are seen from here from those of machines and containers beside."""
    try:
        numbers = str(Path("/proc/self/ns/pid").readlink())  # Linux: the numbers of a container are its own
    except OSError:
        numbers = ""
    return hashlib.sha256(f"{platform.node()} {numbers}".encode()).hexdigest()[:8]


def _sweep(goal: Path) -> None:
    """Removes what killed processes of this machine left beside the goal."""
    ours = re.compile(re.escape(f".{goal.name}.{_machine()}.") + r"(\d{1,10})\.part")
    with suppress(OSError):
        for path in goal.parent.iterdir():
            match = ours.fullmatch(path.name)
            if match and _is_dead(int(match[1])):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)


def _is_dead(pid: int) -> bool:
    """Whether no process has this number. Unknown, so False, on Windows, where the question would end it."""
    if os.name == "nt":
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # another person's process
        return False
    return False


def _check_parent(goal: Path) -> None:
    parent = goal.resolve().parent
    if not parent.is_dir():
        raise InputError(
            f"{goal} cannot be written",
            f"there is no folder {parent}",
            f"run: mkdir -p {shlex.quote(str(parent))}",
        )
    if not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(
            f"{goal} cannot be written", f"nothing may be written into {parent}", "choose another place"
        )


def same_disk(one: Path, other: Path) -> bool:
    """Whether both goals take their space from one disk."""
    return len({goal.resolve().parent.stat().st_dev for goal in (one, other)}) == 1


def check_room(goal: Path, nbytes: int) -> None:
    """Raises DiskFull where the goal's disk has no room for `nbytes`."""
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
    except GGUFToolsError:
        raise
    except OSError as error:
        if error.errno in _FULL:
            raise DiskFull(
                f"{goal} could not be finished",
                f"the disk says: {error.strerror}; nothing was kept",
                "free some space or write to another disk",
            ) from error
        if error.filename != str(part):
            raise
        raise InputError(f"{goal} cannot be written", error.strerror or "", "choose another place") from error


@contextmanager
def _told_of(goal: Path, part: Path) -> Iterator[None]:
    """What goes wrong with a file in `part`, whose name means nothing to a person, is told of the goal."""
    try:
        yield
    except (DiskFull, InputError) as error:
        inside = re.compile(re.escape(str(part)) + r"[^\s:;,]*")  # the names in it are ours: without a blank
        error.what, error.why, error.hint = (
            inside.sub(lambda _: str(goal), text) for text in (error.what, error.why, error.hint)
        )
        error.args = (error.what, error.why, error.hint)
        raise


def _size(nbytes: int) -> str:
    return f"{nbytes / 1e9:.2f} GB" if nbytes >= 10**7 else f"{nbytes / 1e6:.2f} MB"
