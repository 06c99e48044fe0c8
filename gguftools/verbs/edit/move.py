"""Tensor data from one file into another: shared where the file system can, else copied in big pieces.

btrfs, XFS, bcachefs and others let two files share blocks (FICLONERANGE); that takes neither time nor room,
but it wants both files to have the data at the same place in a block.
"""

from __future__ import annotations

import os
import struct
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from ...errors import FormatError

PIECE = 16 << 20  # bytes copied between two calls of `tell`
MAX_BLOCK = 1 << 16  # of a file system; a header is filled up to one
WORTH = 1 << 20  # bytes of data that are worth a filler
_CLONE_RANGE = 0x4020940D  # Linux: _IOW(0x94, 13, struct file_clone_range)

Tell = Callable[[int], None]  # bytes copied so far; may raise to stop


def block_to_share(source: Path, data_offset: int, folder: Path) -> int:
    """The block size with which files in `folder` can share the data of `source`; 0 where they cannot.

    A file without a name tries it, so nothing stays behind.
    """
    if sys.platform != "linux":
        return 0
    try:
        block = os.statvfs(folder).f_bsize
        first = -(-data_offset // block) * block
        if block > MAX_BLOCK or block & (block - 1) or source.stat().st_size < first + max(block, WORTH):
            return 0
        with source.open("rb") as file, tempfile.TemporaryFile(dir=folder) as trial:
            _clone(file.fileno(), first, block, trial.fileno(), 0)
    except OSError:
        return 0
    return block


def move(source: BinaryIO, start: int, goal: BinaryIO, nbytes: int, block: int, tell: Tell) -> bool:
    """Appends bytes [start, start + nbytes) of `source` to `goal`; True where they are shared.

    `block` as `block_to_share` gives it. Raises FormatError where the source has become shorter, OSError.
    """
    goal.flush()
    at = goal.tell()
    shared = 0
    edge = -start % block if block else 0
    if block and (at - start) % block == 0 and nbytes > edge:
        copy(source, start, goal, at, edge, lambda _done: None)
        shared = _share(source, start + edge, goal, at + edge, nbytes - edge)
    if not shared:
        copy(source, start, goal, at, nbytes, tell)
    goal.seek(at + nbytes)
    tell(nbytes)
    return bool(shared)


def _share(source: BinaryIO, start: int, goal: BinaryIO, at: int, nbytes: int) -> int:
    """The bytes that are shared by now: all, or none where the file system refuses."""
    try:
        _clone(source.fileno(), start, 0, goal.fileno(), at)  # 0: to the end of the file
    except OSError:
        return 0
    return nbytes


def _clone(source: int, start: int, nbytes: int, goal: int, at: int) -> None:
    if sys.platform != "linux":
        raise OSError("no file cloning here")
    import fcntl

    fcntl.ioctl(goal, _CLONE_RANGE, struct.pack("=qQQQ", source, start, nbytes, at))


def copy(source: BinaryIO, start: int, goal: BinaryIO, at: int, nbytes: int, tell: Tell) -> None:
    """Copies bytes from place to place, in the kernel where it can. Raises as `move`."""
    done = 0
    in_kernel = hasattr(os, "copy_file_range")
    while done < nbytes:
        want = min(PIECE, nbytes - done)
        count = _in_kernel(source, start + done, goal, at + done, want) if in_kernel else 0
        if not count:  # another file system, or one that cannot
            in_kernel = False
            count = _by_hand(source, start + done, goal, at + done, want)
        done += count
        tell(done)


def _in_kernel(source: BinaryIO, start: int, goal: BinaryIO, at: int, want: int) -> int:
    """Bytes copied; 0 where it does not work here. A full disk is raised by the copy by hand that follows."""
    if sys.platform == "linux":
        try:
            return os.copy_file_range(source.fileno(), goal.fileno(), want, start, at)
        except OSError:
            return 0
    return 0


def _by_hand(source: BinaryIO, start: int, goal: BinaryIO, at: int, want: int) -> int:
    source.seek(start)
    piece = source.read(want)
    if not piece:
        raise FormatError(source.name, start, "the file became shorter while it was read", "try again")
    goal.seek(at)
    goal.write(piece)
    goal.flush()
    return len(piece)
