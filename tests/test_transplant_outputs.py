"""transplant: what it writes over, and that nothing is left behind when it is stopped or the disk is full."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
import transplants as tp

from gguftools import goal, transplant
from gguftools.errors import DiskFull, InputError, LoadAborted, OutputExists


def test_what_is_read_is_never_replaced(tmp_path: Path, target: Path) -> None:
    donor = tp.donor_gguf(tmp_path)
    other = tmp_path / "target.gguf"
    transplant(donor, target, other)
    before = donor.read_bytes(), other.read_bytes()
    for kept in (donor, other):
        with pytest.raises(InputError, match="holds what is read"):
            transplant(donor, other, kept, force=True)
    transplant(donor, target, hf_out=tmp_path / "hf")
    with pytest.raises(InputError, match="holds what is read"):
        transplant(tmp_path / "hf", other, hf_out=tmp_path / "hf", force=True)
    with pytest.raises(InputError, match="holds what is read"):
        transplant(tmp_path / "hf", other, tmp_path / "hf" / "model.safetensors", force=True)
    assert (donor.read_bytes(), other.read_bytes()) == before
    transplant(tmp_path / "hf", other, tmp_path / "hf" / "draft.gguf")


def test_outputs_are_kept_without_force_and_one_is_needed(donor: Path, target: Path, out: Path) -> None:
    out.write_bytes(b"mine")
    with pytest.raises(OutputExists):
        transplant(donor, target, out)
    assert out.read_bytes() == b"mine"
    transplant(donor, target, out, force=True)
    with pytest.raises(OutputExists, match="not replaced"):
        transplant(donor, target, hf_out=donor.parent, force=True)
    with pytest.raises(InputError, match="no output"):
        transplant(donor, target)
    with pytest.raises(InputError, match="cannot be both"):
        transplant(donor, target, out.with_name("a"), hf_out=out.with_name("a"))


@pytest.mark.parametrize("hf", [False, True])
@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
def test_a_full_disk_or_ctrl_c_at_any_stage_leaves_nothing_behind(
    donor: Path, target: Path, out: Path, failure: BaseException, checkpoint: bool, hf: bool
) -> None:
    given = donor.parent / "donor" if checkpoint else donor
    goals: dict[str, Any] = {"hf_out": out.with_name("hf")} if hf else {"out": out}
    moments: list[str] = []
    transplant(given, target, **goals, force=True, progress=lambda stage, _: moments.append(stage.split()[0]))
    assert set(moments) >= {"read", "align", "rows", "check"} | ({"convert"} if checkpoint else set())
    for path in [path for path in out.parent.iterdir() if path.is_file()]:
        path.unlink()
    for at in range(1, len(moments) + 1, max(len(moments) // 12, 1)):
        calls = 0

        def progress(_stage: str, _part: float, at: int = at) -> None:
            nonlocal calls
            calls += 1
            if calls == at:
                raise failure

        before = sorted(path.name for path in out.parent.rglob("*"))
        with pytest.raises((DiskFull, OSError) if isinstance(failure, OSError) else KeyboardInterrupt):
            transplant(given, target, **goals, force=True, progress=progress)
        assert sorted(path.name for path in out.parent.rglob("*")) == before


def test_false_stops_it_at_every_stage_and_fractions_rise_to_one(
    donor: Path, target: Path, out: Path
) -> None:
    seen: dict[str, list[float]] = {}
    transplant(donor, target, out, progress=lambda stage, part: seen.setdefault(stage, []).append(part))
    assert list(seen) == ["read", "align", "count", "join", "donor reads", "rows", "check"]
    assert all(parts == sorted(parts) and parts[-1] == 1.0 for parts in seen.values())
    before = out.read_bytes()
    for stop in seen:
        with pytest.raises(LoadAborted, match="stopped"):
            transplant(donor, target, out, force=True, progress=lambda stage, part, stop=stop: stage != stop)
        assert out.read_bytes() == before


def test_too_little_space_is_noticed_before_the_first_byte(
    donor: Path, target: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = goal.shutil.disk_usage(out.parent)._replace(free=1_100_000)
    monkeypatch.setattr(goal.shutil, "disk_usage", lambda _path: free)
    shown: list[Any] = []
    with pytest.raises(DiskFull, match="are free"):
        transplant(donor, target, out, on_map=shown.append)
    assert not shown
    assert not list(out.parent.iterdir())


def test_the_room_for_all_that_lies_on_the_disk_at_once_is_looked_for_before_the_map_is_shown(
    donor: Path, target: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a folder too: its own files and the GGUF that it is made from, beside the draft."""
    both: dict[str, Any] = {"out": out, "hf_out": out.with_name("hf")}
    asked: list[tuple[Path, int]] = []
    most = 0

    def look(*_: object) -> None:
        nonlocal most
        most = max(most, sum(path.stat().st_size for path in out.parent.rglob("*") if path.is_file()))

    with monkeypatch.context() as patch:
        patch.setattr(goal, "check_room", lambda *one: asked.append(one))
        transplant(donor, target, **both, progress=look)
    (one, first), (other, second) = asked[:2]
    assert (one, first, other) == (out, out.stat().st_size, both["hf_out"])
    assert 0.6 * second < most <= second
    free = goal.shutil.disk_usage(out.parent)._replace(free=second + goal._SPARE - 1)
    monkeypatch.setattr(goal.shutil, "disk_usage", lambda _path: free)
    shown: list[Any] = []
    with pytest.raises(DiskFull, match="hf does not fit on its disk"):
        transplant(donor, target, **both, force=True, on_map=shown.append)
    assert not shown
    with monkeypatch.context() as patch:
        patch.setattr(goal, "same_disk", lambda *_: False)
        transplant(donor, target, **both, force=True)


def test_a_disk_that_fills_up_at_any_time_is_told_of_the_folder_that_was_asked_for(
    donor: Path, target: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither of the scratch GGUFs, of the draft and of a donor that is a checkpoint, nor of a part."""
    hf, usage, looks = out.with_name("hf"), goal.shutil.disk_usage(out.parent), 0
    source, told = donor.parent / "donor", []
    for last in range(20):
        looks = 0

        def free(_path: object, last: int = last) -> Any:
            nonlocal looks
            looks += 1
            return usage if looks <= last else usage._replace(free=0)

        with monkeypatch.context() as patch:
            patch.setattr(goal.shutil, "disk_usage", free)
            try:
                transplant(source, target, hf_out=hf, force=True)
            except DiskFull as error:
                told.append(error)
            else:
                break
    assert len(told) > 4
    assert {error.what.split(" ")[0] for error in told} <= {str(hf), f"{hf}.transplant.json"}
    assert not [error for error in told if ".part" in str(error) or "-o" in error.hint]
