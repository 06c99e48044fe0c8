"""A conversion into shards that is killed: each file is whole at any moment, the same command finishes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from splits import SIZE, content, run, shards_in

from gguftools.errors import OutputExists
from gguftools.verbs.convert import resume

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out" / "m.gguf"


def killed(action: Callable[[], Any]) -> bool:
    """Runs `action` in a copy of this process; whether a SIGKILL ended it."""
    child = os.fork()
    if child == 0:
        try:
            action()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_kill_at_any_moment_of_the_writing_leaves_what_the_same_command_finishes(
    llama: Path, out: Path, whole: list[bytes]
) -> None:
    kept = []
    for part in (0.01, 0.25, 0.5, 0.75, 0.99):

        def progress(_stage: str, fraction: float, part: float = part) -> None:
            if fraction >= part:
                die()

        assert killed(lambda progress=progress: run(llama, out, progress=progress))
        assert not list(out.parent.glob("*.gguf"))
        kept.append(len(shards_in(resume.folder(out))))
    assert kept == sorted(kept)
    assert kept[0] == 0
    assert kept[-1] > 3
    done = run(llama, out)
    assert done.n_kept == kept[-1]
    assert content(done) == whole
    assert not resume.folder(out).exists()


def after(function: Any, n: int) -> Any:
    """`function`, and at the end of its n-th call a kill."""
    calls = 0

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        found = function(*args, **kwargs)
        calls += 1
        if calls == n:
            die()
        return found

    return wrapped


STEPS = {
    "link": (os, "link"),
    "unlink": (Path, "unlink"),
    "replace": (Path, "replace"),
    "mkdir": (Path, "mkdir"),
    "rmdir": (Path, "rmdir"),
}


@pytest.mark.parametrize(
    ("step", "force"), [(s, f) for s in STEPS for f in (False, True) if (s, f) != ("link", True)]
)
def test_a_kill_after_any_step_among_the_files_leaves_whole_ones_and_the_same_command_finishes(
    llama: Path, out: Path, whole: list[bytes], step: str, force: bool
) -> None:
    if force:  # there is a set of as many shards with these names
        run(llama, out, outtype="bf16", split_size=SIZE // 2)
        assert len(list(out.parent.iterdir())) == len(whole)
    old = {path.name: path.read_bytes() for path in out.parent.iterdir()}
    for n in range(1, 60):

        def one(n: int = n) -> None:
            setattr(*STEPS[step], after(getattr(*STEPS[step]), n))
            run(llama, out, force=force)

        was_killed = killed(one)
        files = {path.name: path.read_bytes() for path in sorted(out.parent.glob("*.gguf"))}
        new = {name for name, data in files.items() if data in whole}
        assert all(files[name] == old.get(name) for name in files.keys() - new)  # each whole, old or new
        assert not new or new == files.keys()  # and never both in one set
        if list(files.values()) == whole and not (resume.folder(out) / "record.json").exists() and not force:
            with pytest.raises(OutputExists):  # it was done but for the last tidying
                run(llama, out)
        else:
            assert content(run(llama, out, force=force)) == whole
        assert [path.read_bytes() for path in sorted(out.parent.iterdir())] == whole
        for path in out.parent.iterdir():
            path.unlink()
        for name_, data in old.items():
            (out.parent / name_).write_bytes(data)
        if not was_killed:
            break
    assert n > 1
    assert not was_killed  # every moment was tried
