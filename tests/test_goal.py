"""A goal is whole or untouched: exists, disk full before and in the middle, interrupted, replaced."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gguftools import goal
from gguftools.errors import DiskFull, InputError, OutputExists


def foreign(folder: Path) -> str:
    """A stand-in for export's own look: a diary is a person's."""
    return "it holds a diary" if (folder / "diary.txt").exists() else ""


def write_file(path: Path, data: bytes, failure: BaseException | None = None) -> None:
    with goal.new_file(path, len(data), force=True) as file:
        file.write(data)
        if failure:
            raise failure


def write_folder(path: Path, config: str, failure: BaseException | None = None) -> None:
    with goal.new_folder(path, len(config), foreign, force=True) as folder:
        (folder / "config.json").write_text(config)
        if failure:
            raise failure


def test_a_file_appears_whole_and_nothing_else(tmp_path: Path) -> None:
    with goal.new_file(tmp_path / "x.gguf", 3) as file:
        assert not (tmp_path / "x.gguf").exists()
        file.write(b"abc")
    assert [p.name for p in tmp_path.iterdir()] == ["x.gguf"]
    assert (tmp_path / "x.gguf").read_bytes() == b"abc"


def test_an_existing_file_needs_force(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"old")
    with pytest.raises(OutputExists, match="--force"), goal.new_file(path, 3):
        pass
    assert path.read_bytes() == b"old"
    with goal.new_file(path, 3, force=True) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError(), OSError(errno.EIO, "broken")])
def test_what_goes_wrong_leaves_the_old_file_and_no_part(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"old")
    with pytest.raises(type(error)):
        write_file(path, b"new", error)
    assert [p.name for p in tmp_path.iterdir()] == ["x.gguf"]
    assert path.read_bytes() == b"old"


def test_a_disk_that_fills_up_on_the_way_is_said_in_one_message(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(DiskFull, match="No space left on device"):
        write_file(tmp_path / "x.gguf", b"abc", full)
    with pytest.raises(DiskFull, match="No space left on device"):
        write_folder(tmp_path / "folder", "{}", full)
    assert not list(tmp_path.iterdir())


def test_a_file_that_outgrows_the_disk_for_real_is_removed(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(DiskFull, match="nothing was kept"):
            write_file(tmp_path / "x.gguf", bytes(1_000_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())


def test_too_little_free_space_is_found_before_the_first_byte(tmp_path: Path, monkeypatch: Any) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=2_000_000_000))
    with (
        pytest.raises(DiskFull, match=r"3\.00 GB, 2\.00 GB are free"),
        goal.new_file(tmp_path / "x", 3 * 10**9),
    ):
        pass
    assert not list(tmp_path.iterdir())


def test_no_folder_to_write_into_and_a_folder_as_a_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="mkdir"), goal.new_file(tmp_path / "no" / "x.gguf", 3):
        pass
    with pytest.raises(InputError, match="is a folder"), goal.new_file(tmp_path, 3):
        pass
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InputError, match="is a file"), goal.new_folder(tmp_path / "file", 3, foreign):
        pass


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_place_without_permission_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="cannot be written"):
        write_file(tmp_path / "x.gguf", b"abc")


def test_a_folder_that_takes_no_files_is_named_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, _mode: Path(path) != tmp_path)
    for check in (
        lambda: goal.check_file(tmp_path / "x"),
        lambda: goal.check_folder(tmp_path / "x", foreign),
    ):
        with pytest.raises(InputError, match="nothing may be written into") as caught:
            check()
        assert caught.value.hint == "choose another place"


def test_an_error_of_the_new_files_own_name_is_that_it_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(InputError, match="Permission denied"):
        write_file(tmp_path / "x.gguf", b"abc")


def test_a_folder_appears_whole_also_over_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with goal.new_folder(tmp_path / "out", 3, foreign) as folder:
        (folder / "config.json").write_text("{}")
        assert not list((tmp_path / "out").iterdir())
    assert [p.name for p in tmp_path.rglob("*")] == ["out", "config.json"]


def test_a_device_is_refused_and_a_link_stays_a_link(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no ordinary file"):
        write_file(Path(os.devnull), b"abc")
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "x.gguf").write_bytes(b"old")
    (tmp_path / "link.gguf").symlink_to(tmp_path / "far" / "x.gguf")
    write_file(tmp_path / "link.gguf", b"new")
    assert (tmp_path / "link.gguf").is_symlink()
    assert (tmp_path / "far" / "x.gguf").read_bytes() == b"new"


def test_an_empty_folder_may_be_named_as_the_place_where_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    write_folder(Path(), "{}")
    assert [p.name for p in tmp_path.rglob("*")] == ["here", "config.json"]


def test_force_replaces_what_is_ours_but_never_another_folder(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    (ours / "config.json").write_text("old")
    (theirs / "diary.txt").write_text("dear diary")
    with pytest.raises(OutputExists, match="--force"), goal.new_folder(ours, 3, foreign):
        pass
    write_folder(ours, "new")
    assert [(p.name, p.read_text()) for p in ours.iterdir()] == [("config.json", "new")]
    with pytest.raises(OutputExists, match="diary"):
        write_folder(theirs, "new")
    assert (theirs / "diary.txt").read_text() == "dear diary"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ours", "theirs"]


def test_a_persons_file_that_comes_while_a_folder_is_written_is_kept(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_folder(out, "old")
    with pytest.raises(OutputExists, match="diary"), goal.new_folder(out, 3, foreign, force=True):
        (out / "diary.txt").write_text("dear diary")
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["config.json", "diary.txt", "out"]


def write_late(path: Path) -> None:
    """Writes a file or a folder without force, while another writer is quicker."""
    if path.suffix:
        with goal.new_file(path, 3):
            path.write_bytes(b"first")
        return
    with goal.new_folder(path, 3, foreign):
        path.mkdir()
        (path / "config.json").write_text("first")


def test_of_two_writers_without_force_the_later_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputExists, match="by now"):
        write_late(tmp_path / "x.gguf")
    with pytest.raises(OutputExists, match="not empty"):
        write_late(tmp_path / "out")
    assert (tmp_path / "x.gguf").read_bytes() == b"first"
    assert (tmp_path / "out" / "config.json").read_text() == "first"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "x.gguf"]


@pytest.mark.skipif(os.name == "nt", reason="Windows' own rename refuses")
def test_without_links_the_later_of_two_writers_is_refused_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    with goal.new_file(tmp_path / "x.gguf", 3) as file:
        file.write(b"abc")
    with pytest.raises(OutputExists, match="by now"):
        write_late(tmp_path / "y.gguf")
    assert (tmp_path / "x.gguf").read_bytes() == b"abc"
    assert (tmp_path / "y.gguf").read_bytes() == b"first"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.gguf", "y.gguf"]


@pytest.mark.skipif(os.name == "nt", reason="there it is not known who lives")
def test_what_a_killed_process_left_is_removed_by_the_next_and_that_of_a_living_one_kept(
    tmp_path: Path,
) -> None:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    dead, alive = (
        tmp_path / goal._beside(Path("x.gguf")).name.replace(str(os.getpid()), str(pid))
        for pid in (done.pid, os.getppid())
    )
    dead.write_bytes(b"half")
    alive.write_bytes(b"half")
    write_file(tmp_path / "x.gguf", b"abc")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([alive.name, "x.gguf"])


def test_an_interrupted_replacement_keeps_the_old_folder(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "config.json").write_text("old")
    with pytest.raises(KeyboardInterrupt):
        write_folder(out, "new", KeyboardInterrupt())
    assert [(p.name, p.read_text()) for p in out.iterdir()] == [("config.json", "old")]
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
