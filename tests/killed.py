"""Edits files in processes that end by SIGKILL: at each line of the code that writes, or after a while.

Run as `python killed.py lines|folder|times FOLDER`. Prints how often the goal was the old file, the new one,
or neither afterwards.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from edits import model, split

from gguftools.verbs.edit import Plan, commit, move, plan

WATCHED = ("goal.py", "write.py", "move.py")
ROUNDS = 40


def dies_at(line: int, action: Callable[[], object]) -> bool:
    """Whether a child that does `action` came to the `line`th line of the watched files and was killed."""
    pid = os.fork()
    if pid == 0:
        left = [line]

        def trace(frame: FrameType, event: str, _arg: Any) -> Any:
            if Path(frame.f_code.co_filename).name not in WATCHED:
                return None
            if event == "line":
                left[0] -= 1
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)
            return trace

        sys.settrace(trace)
        action()
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def change(path: Path, name: str) -> Plan:
    return plan(path, set={"general.name": name})


def written(old: Path, out: Path | None, name: str) -> bytes:
    """The bytes that an edit leads to."""
    commit(change(old, name), out, in_place=out is None, force=True)
    return (out or old).read_bytes()


def at_each_line(folder: Path) -> Counter[str]:
    """In place, and to another name that is taken."""
    seen: Counter[str] = Counter()
    source = model(folder / "m.gguf")
    old = source.read_bytes()
    for out in (None, folder / "out.gguf"):
        goal = out or source
        source.write_bytes(old)
        goal.write_bytes(old)
        new = written(source, out, "another")
        line = 1
        while True:
            source.write_bytes(old)
            goal.write_bytes(old)
            planned = change(source, "another")
            died = dies_at(line, lambda p=planned, o=out: commit(p, o, in_place=o is None, force=True))
            state = {old: "old", new: "new"}.get(goal.read_bytes(), "neither")
            if not died:
                assert state == "new"
                break
            seen[state] += 1
            line += 1
    written(source, None, "a third")  # which also removes what the killed ones left
    written(source, folder / "out.gguf", "a fourth")
    assert sorted(path.name for path in folder.iterdir()) == ["m.gguf", "out.gguf"]
    return seen


def folder_at_each_line(folder: Path) -> Counter[str]:
    """A split model: the new folder is not there, or whole."""
    import shutil

    seen: Counter[str] = Counter()
    shards = split(folder / "s")
    old = [path.read_bytes() for path in shards]
    out, line, died = folder / "out", 1, True
    planned = change(shards[0], "another")
    while died:
        shutil.rmtree(out, ignore_errors=True)
        died = dies_at(line, lambda: commit(planned, out))
        assert [path.read_bytes() for path in shards] == old
        if out.exists():
            assert len(list(out.iterdir())) == len(shards)
            assert all(path.stat().st_size for path in out.iterdir())
        seen["new" if out.exists() else "old"] += died
        line += 1
    return seen


def at_any_time(folder: Path) -> Counter[str]:
    """A child edits a file of 4 MB in place, to and fro, until it is killed."""
    seen: Counter[str] = Counter()
    source = model(folder / "m.gguf")
    with source.open("ab") as file:
        file.write(os.urandom(1 << 22))
    states = {source.read_bytes(): "old"}
    states[written(source, None, "another")] = "new"
    rng = random.Random(1)
    for _ in range(ROUNDS):
        pid = os.fork()
        if pid == 0:
            while True:
                for name in ("tiny", "another"):
                    written(source, None, name)
        time.sleep(rng.uniform(0.01, 0.08))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        seen[states.get(source.read_bytes(), "neither")] += 1
    return seen


if __name__ == "__main__":
    move.PIECE = 1 << 13
    os.fsync = lambda _file: None  # a killed process's writes are not lost; a power cut is not tested
    ways = {"lines": at_each_line, "folder": folder_at_each_line, "times": at_any_time}
    print(dict(ways[sys.argv[1]](Path(sys.argv[2]))))
