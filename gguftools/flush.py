"""Bytes go to the disk while a large file is still being written, so that the last wait for it is short."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

STEP = 64 << 20  # bytes that may wait for the disk
_PAUSE = 0.02  # seconds between two looks; the fastest disks write STEP in about that time


@contextmanager
def behind(file: BinaryIO, nbytes: int) -> Iterator[None]:
    """Flushes what is written to `file` in the block, from a thread of its own where `nbytes` are worth one.

    Raises the OSError of a flush that failed: the system tells it once, and a later fsync would succeed.
    """
    flush: Callable[[int], None] | None = getattr(os, "fdatasync", None)  # not on Windows and macOS
    if flush is None or nbytes < 4 * STEP:
        yield
        return
    stop = threading.Event()
    failed: list[OSError] = []
    thread = threading.Thread(
        target=_follow, args=(file.fileno(), flush, stop, failed), name="flush", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if failed:
        raise failed[0]


def _follow(number: int, flush: Callable[[int], None], stop: threading.Event, failed: list[OSError]) -> None:
    done = 0
    while not stop.wait(_PAUSE):
        try:
            size = os.fstat(number).st_size
            if size - done >= STEP:
                flush(number)
                done = size
        except OSError as error:
            failed.append(error)
            return
