"""Writing an edited model: a new file beside, renamed; of a split one, its first shard and the others beside.

Nothing is ever written into a file that has its name already: a kill at any moment leaves the old one or the
new one, whole.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Literal

from ... import goal
from ...errors import InputError, LoadAborted
from ...header import Header
from .keys import Keys
from .layout import header_bytes
from .move import Tell, block_to_share, copy, move

How = Literal["copied", "shared"]
Progress = Callable[[str, float], "bool | None"]
State = tuple[int, int, int]  # inode, size, time of the last change

_CACHED = re.compile(r"models--[^/]+")


def state(path: Path) -> State:
    """What tells that a file is still the one that was read."""
    facts = path.stat()
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


def check_goal(header: Header, out: Path | None, *, in_place: bool, force: bool) -> None:
    """Raises, before any work, InputError or OutputExists for a place that cannot be written."""
    first = header.files[0]
    if out is None and not in_place:
        raise InputError("no output", "an edit is written to a new place", "give -o OUT, or --in-place")
    if out is not None and in_place:
        raise InputError("-o and --in-place", "the result has one place", "give one of them")
    if out is None:
        _refuse_cache(first)
        goal.check_file(first, force=True)
    elif out.resolve() in {path.resolve() for path in header.files}:
        raise InputError(f"{out} is the file itself", "it is only replaced on demand", "use --in-place")
    elif len(header.files) == 1:
        goal.check_file(out, force=force)
    else:
        _refuse_file_name(header, out)
        goal.check_folder(out, _not_ours, force=False)


def _refuse_cache(path: Path) -> None:
    """The Hub's cache names a file by its SHA-256, which an edit changes."""
    place = path.resolve()
    if place.parent.name == "blobs" and _CACHED.fullmatch(place.parent.parent.name):
        raise InputError(
            f"{path} is in the Hub's cache",
            "what is there has the SHA-256 that the Hub knows",
            "write the result to another place: -o OUT",
        )


def _refuse_file_name(header: Header, out: Path) -> None:
    if out.suffix == ".gguf":
        count = len(header.files)
        raise InputError(
            f"{out} is one file, the model has {count}",
            "its shards keep their names, in a folder of their own",
            "give -o FOLDER, or --in-place, which replaces the first shard alone",
        )


def _not_ours(_folder: Path) -> str:
    return "only new folders are written"


def write(
    header: Header,
    keys: Keys,
    before: State,
    out: Path | None,
    *,
    force: bool,
    progress: Progress | None,
) -> tuple[Path, How]:
    """Writes the model to `out`, or (None) in place of itself; returns the first shard's path."""
    first = header.files[0]
    if out is not None and len(header.files) > 1:
        return _folder(header, keys, before, out, progress)
    place = out if out is not None else first
    parent = place.resolve().parent
    block = block_to_share(first, header.data_offset, parent)
    head = header_bytes(header, keys, block)
    room = len(head) + 2 * block if block else len(head) + _data_bytes(header)
    with goal.new_file(place, room, force=force or out is None) as file:
        if out is None:
            _as_before(first, Path(file.name))
        shared = _fill(file, head, header, before, block, _tell(progress, _data_bytes(header)))
    return place, "shared" if shared else "copied"


def _folder(
    header: Header, keys: Keys, before: State, out: Path, progress: Progress | None
) -> tuple[Path, How]:
    """All shards in a new folder: the first one edited, the others as further names of the same files."""
    first, others = header.files[0], header.files[1:]
    parent = out.resolve().parent
    block = block_to_share(first, header.data_offset, parent)
    head = header_bytes(header, keys, block)
    copied = [] if goal.same_disk(first, out) else [path.stat().st_size for path in others]
    total = _data_bytes(header) + sum(copied)
    room = len(head) + sum(copied) + (2 * block if block else _data_bytes(header))
    tell = _tell(progress, total)
    with goal.new_folder(out, room, _not_ours) as folder:
        with (folder / first.name).open("xb") as file:
            shared = _fill(file, head, header, before, block, tell)
            file.flush()
            os.fsync(file.fileno())
        done = _data_bytes(header)
        for path in others:
            done += _link(path, folder / path.name, lambda now, done=done: tell(done + now))  # type: ignore[misc]
    return out / first.name, "shared" if shared else "copied"


def _link(source: Path, place: Path, tell: Tell) -> int:
    """Another name for the same file, or (no links here) a copy; returns the bytes copied."""
    try:
        os.link(source.resolve(), place)
        return 0
    except OSError:
        size = source.stat().st_size
        with source.open("rb") as file, place.open("xb") as new:
            copy(file, 0, new, 0, size, tell)
            new.flush()
            os.fsync(new.fileno())
        return size


def _fill(file: BinaryIO, head: bytes, header: Header, before: State, block: int, tell: Tell) -> bool:
    """The header, then the data as it is; True where the data is shared. InputError where another wrote."""
    first = header.files[0]
    with first.open("rb") as source:
        _refuse_changed(first, before)
        file.write(head)
        shared = move(source, header.data_offset, file, _data_bytes(header), block, tell)
        _refuse_changed(first, before)
    return shared


def _refuse_changed(path: Path, before: State) -> None:
    if state(path) != before:
        raise InputError(
            f"{path} was changed meanwhile", "by another program; nothing was written", "try again"
        )


def _data_bytes(header: Header) -> int:
    """From the first tensor to the end of the first shard."""
    return header.files[0].stat().st_size - header.data_offset


def _as_before(old: Path, new: Path) -> None:
    """The new file gets the permissions of the one that it replaces, and (as root) its owner."""
    facts = old.stat()
    if hasattr(os, "chown"):
        with suppress(OSError):
            os.chown(new, facts.st_uid, facts.st_gid)
    shutil.copymode(old, new)


def _tell(progress: Progress | None, total: int) -> Tell:
    def tell(done: int) -> None:
        if progress is not None and progress("copy", min(done / max(total, 1), 1.0)) is False:
            raise LoadAborted("the edit was stopped", "nothing was written", "run it again")

    return tell
