"""A scratch folder beside a goal: it goes whatever happens, and what goes wrong in it is told of the goal."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gguftools import goal
from gguftools.errors import DiskFull, InputError


def foreign(folder: Path) -> str:
    """A stand-in for export's own look: a diary is a person's."""
    return "it holds a diary" if (folder / "diary.txt").exists() else ""


def test_a_scratch_folder_goes_with_its_content_whatever_happens(tmp_path: Path) -> None:
    def use(error: BaseException | None) -> None:
        with (
            goal.scratch(tmp_path / "x.gguf", "donor") as folder,
            goal.new_file(tmp_path / "x.gguf", 3) as file,
        ):
            assert folder.parent == tmp_path
            (folder / "deep").mkdir()
            (folder / "deep" / "file").write_bytes(b"abc")
            file.write(b"abc")
            if error:
                raise error

    with pytest.raises(KeyboardInterrupt):
        use(KeyboardInterrupt())
    assert not list(tmp_path.iterdir())
    use(None)
    assert [path.name for path in tmp_path.iterdir()] == ["x.gguf"]


def test_what_goes_wrong_in_a_scratch_folder_or_a_part_is_told_of_the_goal(tmp_path: Path) -> None:
    out = tmp_path / "my draft"

    def too_large(folder: Path) -> None:
        with goal.new_file(folder / "draft.gguf", 1 << 62):
            pass

    for place in (goal.scratch(out, "draft"), goal.new_folder(out, 0, foreign)):
        with pytest.raises(DiskFull) as caught, place as folder:
            too_large(folder)
        assert caught.value.what == f"{out} does not fit on its disk"
        assert ".part" not in str(caught.value)
    with pytest.raises(InputError) as refused, goal.scratch(out, "draft") as folder:
        goal.check_file(folder / "no" / "draft.gguf")
    assert ".part" not in str(refused.value)


def test_a_full_disk_is_one_also_where_the_part_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, *_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(DiskFull, match="No space left"), goal.scratch(tmp_path / "x", "draft"):
        pass


@pytest.mark.skipif(os.name == "nt", reason="there it is not known who lives")
def test_the_scratch_folder_of_a_killed_process_is_removed_by_the_next(tmp_path: Path) -> None:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    dead = goal._beside(tmp_path / "x.gguf.donor")
    dead = dead.with_name(dead.name.replace(str(os.getpid()), str(done.pid)))
    dead.mkdir()
    with goal.scratch(tmp_path / "x.gguf", "draft"):
        assert dead.is_dir()
    with goal.scratch(tmp_path / "x.gguf", "donor"):
        assert not dead.exists()
