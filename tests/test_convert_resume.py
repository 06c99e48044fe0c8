"""A conversion into shards that was stopped goes on where it was; what differs never mixes with it."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from splits import SIZE, begin, content, run, shards_in

import gguftools
from gguftools import gguf_write, goal
from gguftools.errors import DiskFull, GGUFToolsError, InputError, OutputExists
from gguftools.header import read_header
from gguftools.verbs.convert import convert, resume, stream


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out" / "m.gguf"


def test_what_was_stopped_is_kept_visibly_and_the_same_command_goes_on_there(
    llama: Path, out: Path, whole: list[bytes]
) -> None:
    folder = begin(llama, out)
    kept = shards_in(folder)
    assert folder.name == "m.gguf.unfinished"
    assert 0 < len(kept) < len(whole)
    assert [path.name for path in out.parent.iterdir()] == [folder.name]  # nothing under the goal's names
    record = json.loads((folder / "record.json").read_text())
    assert list(record["shards"]) == kept
    assert record["plan"]["version"] == gguftools.__version__
    assert "Run the same command again" in record["note"]
    inodes = [(folder / name).stat().st_ino for name in kept]
    seen: list[float] = []
    done = run(llama, out, progress=lambda stage, part: seen.append(part))
    assert done.n_kept == len(kept)
    assert content(done) == whole
    assert [(out.parent / name).stat().st_ino for name in kept] == inodes
    assert seen[0] > 0.3  # progress begins where it stopped
    assert sorted(path.name for path in out.parent.iterdir()) == [file.path.name for file in done.files]


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "another type": ({"outtype": "q8_0"}, "--outtype"),
    "another size": ({"split_size": SIZE + 50_000}, "--split-size"),
}


def other_weights(folder: Path) -> None:
    tensors = {name: t + np.float32(1) for name, t in tiny.weights(tiny.LLAMA).items()}
    tiny.write_shard(folder / "model.safetensors", tensors)  # same size, same table


def other_config(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "rope_theta": 20000.0}))


def other_tokens(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("another template")


SOURCES: dict[str, tuple[Callable[[Path], None], str]] = {
    "other weights": (other_weights, "source"),
    "another config": (other_config, "config.json"),
    "other tokens": (other_tokens, "keys or tensors"),
}


@pytest.mark.parametrize("change", [*CHANGES, *SOURCES, "another version"])
def test_what_was_begun_of_something_else_is_refused_and_named_and_force_begins_anew(
    llama: Path, out: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = begin(llama, out)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    options, word = CHANGES.get(change, ({}, "version of gguftools"))
    if change in SOURCES:
        alter, word = SOURCES[change]
        alter(llama)
    if change == "another version":
        monkeypatch.setattr(stream, "__version__", "0.0.0")
    with pytest.raises(OutputExists, match=f"differs in: .*{word}") as caught:
        run(llama, out, **options)
    assert str(folder) in caught.value.hint
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    done = run(llama, out, force=True, **options)
    assert done.n_kept == 0
    assert not folder.exists()
    again = convert(llama, out.parent / "n.gguf", **{"split_size": SIZE, **options})
    assert content(done) == content(again)


def grown(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def other_header(path: Path) -> None:
    facts = path.stat()
    data = bytearray(path.read_bytes())
    data[data.index(b"split.no")] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def touched(path: Path) -> None:
    os.utime(path, ns=(0, 0))


@pytest.mark.parametrize("harm", [grown, cut, other_header, touched, Path.unlink])
def test_a_kept_shard_that_is_not_as_it_was_closed_is_written_again(
    llama: Path, out: Path, whole: list[bytes], harm: Callable[[Path], None]
) -> None:
    folder = begin(llama, out)
    kept = shards_in(folder)
    harm(folder / kept[1])
    done = run(llama, out)
    assert done.n_kept == len(kept) - 1
    assert content(done) == whole


def test_a_file_with_a_shards_name_alone_is_not_trusted(llama: Path, out: Path, whole: list[bytes]) -> None:
    folder = begin(llama, out, 0.3)
    name = f"m-{len(whole):05}-of-{len(whole):05}.gguf"
    (folder / name).write_bytes(whole[-1][:-1] + b"x")
    assert content(run(llama, out)) == whole


@pytest.mark.parametrize("record", ["", "[]", "{", '{"plan": 1, "shards": []}', '{"plan": {}}'])
def test_a_record_that_says_nothing_makes_a_new_beginning(
    llama: Path, out: Path, whole: list[bytes], record: str
) -> None:
    (begin(llama, out) / "record.json").write_text(record)
    done = run(llama, out)
    assert done.n_kept == 0
    assert content(done) == whole


def test_a_record_cannot_make_us_remove_a_file_elsewhere(llama: Path, out: Path) -> None:
    folder = begin(llama, out)
    precious = out.parent / "m-00001-of-00009.gguf"
    precious.write_bytes(b"mine")
    record = json.loads((folder / "record.json").read_text())
    record["shards"] = {f"../{precious.name}": {}}
    (folder / "record.json").write_text(json.dumps(record))
    (folder / "notes.txt").write_text("mine too")
    run(llama, out)
    assert precious.read_bytes() == b"mine"
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def full_at(n: int, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """The n-th tensor that is written meets `error`."""
    calls = 0
    write = gguf_write.write_tensor

    def failing(*args: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == n:
            raise error
        write(*args)

    monkeypatch.setattr(gguf_write, "write_tensor", failing)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_full_disk_or_ctrl_c_says_what_is_kept_and_the_same_command_goes_on(
    llama: Path,
    out: Path,
    whole: list[bytes],
    error: BaseException,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with monkeypatch.context() as patch:
        full_at(15, patch, error)
        with pytest.raises((DiskFull, KeyboardInterrupt)) as caught:
            run(llama, out)
    text = str(caught.value) if isinstance(error, OSError) else caplog.text
    kept = shards_in(resume.folder(out))
    assert f"{len(kept)} of {len(whole)} shards are kept in {resume.folder(out)}" in text
    assert "the same command goes on there" in text
    assert "nothing was kept" not in text
    assert not list(resume.folder(out).glob(".*"))
    assert content(run(llama, out)) == whole


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_before_the_first_shard_is_whole_nothing_is_left_behind(
    llama: Path, out: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    full_at(1, monkeypatch, error)
    with pytest.raises((DiskFull, KeyboardInterrupt)):
        run(llama, out)
    assert not list(out.parent.iterdir())


def test_bad_input_in_a_late_shard_leaves_nothing_behind(llama: Path, out: Path) -> None:
    tensors = tiny.weights(tiny.LLAMA)
    tensors["model.layers.1.mlp.down_proj.weight"].flat[-1] = np.nan
    tiny.write_shard(llama / "model.safetensors", tensors)
    with pytest.raises(InputError, match="holds a NaN"):
        run(llama, out)
    assert not list(out.parent.iterdir())


@pytest.mark.parametrize("split_size", [None, SIZE])
def test_a_source_that_changes_while_it_is_read_is_refused(
    llama: Path, out: Path, split_size: int | None
) -> None:
    def progress(_stage: str, fraction: float) -> None:
        if fraction > 0.5:
            other_weights(llama)

    with pytest.raises(InputError, match="changed while it was read"):
        run(llama, out, progress=progress, split_size=split_size)
    assert not list(out.parent.iterdir())


def test_space_is_needed_only_for_what_is_not_there_yet(
    llama: Path, out: Path, whole: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = begin(llama, out)
    left = sum(map(len, whole[len(shards_in(folder)) :]))
    usage = shutil.disk_usage(out.parent)

    def free(nbytes: int) -> None:
        monkeypatch.setattr(goal.shutil, "disk_usage", lambda _path: usage._replace(free=nbytes))

    before = sorted(folder.iterdir())
    free(left + (1 << 20) - 1)
    with pytest.raises(DiskFull, match="are free"):
        run(llama, out)
    assert sorted(folder.iterdir()) == before
    free(left + (1 << 20))
    assert content(run(llama, out)) == whole


def test_space_is_looked_for_before_the_first_byte(
    llama: Path, out: Path, whole: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(out.parent)._replace(free=sum(map(len, whole)) + 1000)
    monkeypatch.setattr(goal.shutil, "disk_usage", lambda _path: usage)
    with pytest.raises(DiskFull, match="are free"):
        run(llama, out)
    assert not list(out.parent.iterdir())


def test_two_at_once_cannot_write_the_same_output(llama: Path, out: Path, whole: list[bytes]) -> None:
    caught: list[GGUFToolsError] = []

    def progress(_stage: str, _fraction: float) -> None:
        if not caught:
            with pytest.raises(InputError, match="is being written") as error:
                run(llama, out)
            caught.append(error.value)

    assert content(run(llama, out, progress=progress)) == whole
    assert caught


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_strangers_file_or_folder_with_that_name_is_left_alone(llama: Path, out: Path, kind: str) -> None:
    place = resume.folder(out)
    if kind == "folder":
        place.mkdir()
    mine = place if kind == "file" else place / "m-00001-of-00002.gguf"
    mine.write_bytes(b"mine")
    for force in (False, True):
        with pytest.raises(InputError, match="is no unfinished conversion"):
            run(llama, out, force=force)
    assert mine.read_bytes() == b"mine"


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_a_link_among_the_shards_names_stays_a_link(llama: Path, out: Path, whole: list[bytes]) -> None:
    first = out.with_name(f"m-00001-of-{len(whole):05}.gguf")
    (out.parent.parent / "far.gguf").write_bytes(b"old")
    first.symlink_to(out.parent.parent / "far.gguf")
    done = run(llama, out, force=True)
    assert first.is_symlink()
    assert content(done) == whole
    assert len(read_header(first).tensors) == 21
