"""edit writes whole files or nothing: killed at any moment, on a full disk, beside others, split, shared."""

from __future__ import annotations

import ast
import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from edits import model, only, plain, same_tensors, split
from pairs import N

import gguftools
from gguftools.errors import DiskFull, FormatError, InputError, LoadAborted, NotFound, OutputExists
from gguftools.header import read_header
from gguftools.verbs.edit import commit, move, plan

TESTS = Path(__file__).parent
NAME = {"general.name": "another"}
POSIX = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")


def killed(way: str, folder: Path) -> dict[str, int]:
    """How often the file was the old one and the new one after a kill."""
    done = subprocess.run(
        [sys.executable, str(TESTS / "killed.py"), way, str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS.parent), *sys.path])},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, int] = ast.literal_eval(done.stdout)
    assert found.keys() <= {"old", "new"}
    return found


@POSIX
def test_a_kill_at_any_line_leaves_the_old_file_or_the_new_one_whole(tmp_path: Path) -> None:
    seen = killed("lines", tmp_path)
    assert seen["old"] > 80
    assert seen["new"] > 1


@POSIX
def test_a_kill_at_any_line_leaves_no_folder_or_a_whole_one(tmp_path: Path) -> None:
    seen = killed("folder", tmp_path)
    assert seen["old"] > 80


@POSIX
def test_a_kill_at_any_time_leaves_a_whole_file(tmp_path: Path) -> None:
    assert sum(killed("times", tmp_path).values()) == 40


STEPS = {
    "the header": (Path, "open", None),
    "copying in the kernel": (os, "copy_file_range", "by hand"),
    "bringing it to the disk": (os, "fsync", None),
    "the new name": (Path, "replace", None),
}


@pytest.mark.parametrize("name", STEPS)
def test_an_error_at_any_step_keeps_the_old_file_and_no_part(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, function, instead = STEPS[name]
    if not hasattr(where, function):
        pytest.skip("not on this system")
    file = model(tmp_path / "m.gguf")
    old = file.read_bytes()
    planned = plan(file, set=NAME)
    real = getattr(where, function)

    def fail(*args: Any, **kwargs: Any) -> Any:
        if function == "open" and args[1:] != ("xb",):
            return real(*args, **kwargs)
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(where, function, fail)
    if instead:
        commit(planned, in_place=True)
        assert read_header(file).get_str("general.name") == "another"
    else:
        with pytest.raises(OSError, match="broken"):
            commit(planned, in_place=True)
        assert file.read_bytes() == old
    assert only(tmp_path) == ["m.gguf"]


def test_a_disk_that_fills_up_for_real_keeps_the_old_file(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    file = model(tmp_path / "m.gguf")
    old = file.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit in (1_000, len(old) - 1_000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try:
            with pytest.raises(DiskFull, match="nothing was kept"):
                gguftools.edit(file, in_place=True, set=NAME)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert (file.read_bytes(), only(tmp_path)) == (old, ["m.gguf"])


def test_too_little_room_is_found_before_the_first_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    file = model(tmp_path / "m.gguf")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=file.stat().st_size))
    monkeypatch.setattr(move, "block_to_share", lambda *_: 0)
    with pytest.raises(DiskFull, match="does not fit"):
        gguftools.edit(file, in_place=True, set=NAME)
    assert only(tmp_path) == ["m.gguf"]


def test_progress_goes_from_0_to_1_and_stops_the_edit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(move, "PIECE", 1 << 12)
    file = model(tmp_path / "m.gguf")
    seen: list[float] = []
    gguftools.edit(file, tmp_path / "a.gguf", set=NAME, progress=lambda _stage, part: seen.append(part))
    assert seen == sorted(seen)
    assert (len(seen) > 8, seen[-1]) == (True, 1.0)
    with pytest.raises(LoadAborted, match="stopped"):
        gguftools.edit(file, in_place=True, set=NAME, progress=lambda _stage, part: part < 0.5)
    assert read_header(file).get_str("general.name") == "tiny"
    assert only(tmp_path) == ["a.gguf", "m.gguf"]


def test_a_file_that_another_program_changes_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    file = model(tmp_path / "m.gguf")
    planned = plan(file, set=NAME)
    model(file, {"general.name": "a third, of another length"})
    with pytest.raises(InputError, match="changed meanwhile"):
        commit(planned, in_place=True)

    def meddle(_stage: str, _part: float) -> None:
        os.utime(file, ns=(1, 1))

    with pytest.raises(InputError, match="changed meanwhile"):
        gguftools.edit(file, in_place=True, set=NAME, progress=meddle)
    assert read_header(file).get_str("general.name") == "a third, of another length"
    assert only(tmp_path) == ["m.gguf"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    file = model(tmp_path / "m.gguf")
    (tmp_path / "taken.gguf").write_bytes(b"x")
    planned = plan(file, set=NAME)
    with pytest.raises(InputError, match="no output"):
        commit(planned)
    with pytest.raises(InputError, match="one place"):
        commit(planned, tmp_path / "o.gguf", in_place=True)
    with pytest.raises(InputError, match="is the file itself"):
        commit(planned, tmp_path / "." / "m.gguf", force=True)
    with pytest.raises(OutputExists, match="taken"):
        commit(planned, tmp_path / "taken.gguf")
    with pytest.raises(NotFound):
        plan(tmp_path / "none.gguf", set=NAME)
    (tmp_path / "broken.gguf").write_bytes(file.read_bytes()[:-3000])
    with pytest.raises(FormatError, match="incomplete"):
        gguftools.edit(tmp_path / "broken.gguf", in_place=True, set=NAME)
    assert commit(planned, tmp_path / "taken.gguf", force=True).path == tmp_path / "taken.gguf"


def test_permissions_stay_a_link_stays_and_the_hubs_cache_is_left_alone(tmp_path: Path) -> None:
    file = model(tmp_path / "m.gguf")
    file.chmod(0o640)
    link = tmp_path / "link.gguf"
    link.symlink_to(file)
    gguftools.edit(link, in_place=True, set=NAME)
    assert link.is_symlink()
    assert read_header(file).get_str("general.name") == "another"
    if os.name == "posix":
        assert file.stat().st_mode & 0o777 == 0o640
    cache = tmp_path / "models--org--repo"
    (cache / "blobs").mkdir(parents=True)
    (cache / "snapshots").mkdir()
    (cache / "blobs" / ("a" * 64)).write_bytes(file.read_bytes())
    cached = cache / "snapshots" / "m.gguf"
    cached.symlink_to(cache / "blobs" / ("a" * 64))
    with pytest.raises(InputError, match="the Hub's cache"):
        gguftools.edit(cached, in_place=True, set={"general.name": "third"})
    gguftools.edit(cached, tmp_path / "out.gguf", set={"general.name": "third"})
    assert read_header(tmp_path / "out.gguf").get_str("general.name") == "third"


def test_of_a_split_model_in_place_the_first_shard_alone_is_written(tmp_path: Path) -> None:
    shards = split(tmp_path / "s")
    before = [path.stat() for path in shards]
    gguftools.edit(tmp_path / "s", in_place=True, set=NAME, set_token={N: "<|stop|>"})
    header = read_header(shards[2])
    assert header.get_str("general.name") == "another"
    assert len(header.tensors) == 3
    after = [path.stat() for path in shards]
    assert after[0].st_ino != before[0].st_ino
    assert [(s.st_ino, s.st_mtime_ns) for s in after[1:]] == [(s.st_ino, s.st_mtime_ns) for s in before[1:]]


@pytest.mark.parametrize("links", [True, False])
def test_a_split_model_is_written_to_a_folder_whose_other_shards_are_linked(
    tmp_path: Path, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = split(tmp_path / "s")
    out = tmp_path / "out"
    if not links:

        def refuse(*_: object) -> None:
            raise PermissionError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(os, "link", refuse)
    done = gguftools.edit(shards[0], out, set=NAME)
    assert done.path == out / shards[0].name
    assert only(out) == [path.name for path in shards]
    assert plain(read_header(out))["general.name"] == ("another", 8)
    assert same_tensors(shards[0], done.path)
    assert (out / shards[1].name).samefile(shards[1]) == links
    assert read_header(shards[0]).get_str("general.name") == "tiny"


def test_a_split_model_goes_into_no_file_and_no_folder_with_something_in_it(tmp_path: Path) -> None:
    shards = split(tmp_path / "s")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_bytes(b"x")
    with pytest.raises(InputError, match="give -o FOLDER"):
        gguftools.edit(shards[0], tmp_path / "out.gguf", set=NAME)
    with pytest.raises(OutputExists):
        gguftools.edit(shards[0], tmp_path / "full", set=NAME, force=True)
    (tmp_path / "s" / shards[1].name).unlink()
    with pytest.raises(NotFound, match="shards are missing"):
        gguftools.edit(shards[0], in_place=True, set=NAME)
    assert only(tmp_path) == ["full", "s"]


def test_a_source_that_becomes_shorter_is_said(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    with (
        (tmp_path / "a").open("rb") as source,
        (tmp_path / "b").open("xb") as goal,
        pytest.raises(FormatError, match="shorter"),
    ):
        move.copy(source, 0, goal, 0, 5, lambda _done: None)
