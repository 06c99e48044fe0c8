"""A large file goes to the disk while it is written; a flush that fails is told, a small file needs none."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path

import pytest

from gguftools import flush, goal
from gguftools.errors import DiskFull

pytestmark = pytest.mark.skipif(not hasattr(os, "fdatasync"), reason="no such flush on this system")


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the file at each flush; a step is 1,000 bytes."""
    sizes: list[int] = []
    monkeypatch.setattr(flush, "STEP", 1000)
    monkeypatch.setattr(os, "fdatasync", lambda number: sizes.append(os.fstat(number).st_size))
    return sizes


def wait(flushed: list[int], n: int) -> None:
    until = time.monotonic() + 10
    while len(flushed) < n and time.monotonic() < until:
        time.sleep(0.001)


def write(path: Path, parts: int, flushed: list[int]) -> None:
    with goal.new_file(path, parts * 1000) as file:
        for i in range(parts):
            file.write(bytes(1000))
            file.flush()
            if parts >= 4:
                wait(flushed, i + 1)


def test_each_step_of_a_large_file_is_flushed_before_the_next(tmp_path: Path, flushed: list[int]) -> None:
    write(tmp_path / "x", 5, flushed)
    assert flushed == [1000, 2000, 3000, 4000, 5000]
    assert (tmp_path / "x").stat().st_size == 5000
    assert not [thread for thread in threading.enumerate() if thread.name == "flush"]


def test_a_small_file_gets_no_thread(tmp_path: Path, flushed: list[int]) -> None:
    write(tmp_path / "x", 3, flushed)
    assert not flushed


def test_a_flush_that_fails_is_not_lost(
    tmp_path: Path, flushed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(number: int) -> None:
        flushed.append(number)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fdatasync", full)
    with pytest.raises(DiskFull, match="No space left"), goal.new_file(tmp_path / "x", 4000) as file:
        _ = file.write(bytes(4000)), file.flush(), wait(flushed, 1)
    assert len(flushed) == 1
    assert not list(tmp_path.iterdir())


def test_what_goes_wrong_in_the_writing_is_what_is_raised(tmp_path: Path, flushed: list[int]) -> None:
    with pytest.raises(TypeError), goal.new_file(tmp_path / "x", 9000) as file:
        file.write("no bytes")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
