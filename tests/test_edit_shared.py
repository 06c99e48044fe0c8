"""edit where two files can share their blocks: no data is copied, the header takes its place in a block."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from edits import P, model, only, same_tensors
from pairs import N

import gguftools
from gguftools.header import read_header
from gguftools.verbs.edit import move
from gguftools.verbs.edit.keys import FILLER


def share(calls: list[int], block: int) -> Any:
    """A file system that shares blocks, as Linux's are: it refuses what is not at a block's beginning."""

    def clone(source: int, start: int, nbytes: int, goal: int, at: int) -> None:
        if start % block or at % block or nbytes % block:
            raise OSError(errno.EINVAL, "Invalid argument")
        data = os.pread(source, nbytes or 1 << 30, start)
        os.pwrite(goal, data, at)
        calls.append(len(data))

    return clone


@pytest.mark.skipif(sys.platform != "linux", reason="blocks are shared on Linux")
@pytest.mark.parametrize("alignment", [32, 8192])
def test_where_blocks_are_shared_only_the_header_is_written_and_a_filler_keeps_the_place(
    tmp_path: Path, alignment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    fillers = 0
    monkeypatch.setattr(move, "_clone", share(calls, 4096))
    monkeypatch.setattr(move, "WORTH", 1)
    file = model(tmp_path / "m.gguf", {"general.alignment": alignment}, alignment=alignment)
    first = file.read_bytes()
    place = read_header(file).data_offset % 4096
    for i, text in enumerate(("b", "long " * 300, "c", "longer " * 2000)):
        calls.clear()
        done = gguftools.edit(file, in_place=True, set={"general.name": text}, set_token={7: f"seven{i}"})
        header = read_header(file)
        assert done.data == "shared"
        assert header.data_offset % 4096 == place
        fillers += FILLER in header.keys
        assert calls[-1] > 30_000  # after a trial
        assert not any(change.key == FILLER for change in done.changes)
    assert fillers == (2 if alignment == 32 else 0)  # the short names take the room of "tiny"
    (tmp_path / "old.gguf").write_bytes(first)
    assert same_tensors(file, tmp_path / "old.gguf")
    says = pytest.importorskip("libllama_says")
    says.quiet()
    said = says.ask(file)
    assert said
    assert said.texts[7] == b"seven3"


def test_without_sharing_the_data_is_copied_and_no_filler_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(move, "_clone", refuse)
    monkeypatch.setattr(move, "WORTH", 1)
    file = model(tmp_path / "m.gguf")
    done = gguftools.edit(file, tmp_path / "out.gguf", set={P + "eos_token_id": N + 2})
    assert done.data == "copied"
    assert FILLER not in read_header(tmp_path / "out.gguf").keys
    assert same_tensors(file, tmp_path / "out.gguf")
    assert only(tmp_path) == ["m.gguf", "out.gguf"]
