"""check --full: every shard's bytes against the Hub's record."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from command_line import in_process
from edits import model, split
from hub_server import Hub

import gguftools
import gguftools.hub
from gguftools.errors import HubError, InputError, LoadAborted, NotFound
from gguftools.verbs.check import Report, check

REPO = "org/repo"


def on_hub(hub: Hub, *files: Path, folder: str = "") -> None:
    hub.repos.setdefault(REPO, {}).update({folder + file.name: file.read_bytes() for file in files})


def spoil(path: Path, at: int = -1) -> None:
    """Changes one byte; a link's file too."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def wrong(report: Report) -> dict[str, str]:
    return {rule.name: f"{rule.target}: {rule.effect}" for rule in report.failed() if "SHA" in rule.name}


def test_a_whole_download_is_as_the_hub_has_it(hub: Hub, tmp_path: Path) -> None:
    on_hub(hub, *split(tmp_path / "s"))
    gguftools.hub.download(REPO)
    seen: list[tuple[str, float]] = []
    report = check(REPO, full=True, progress=lambda stage, part: seen.append((stage, part)))
    assert report.verdict == "ok"
    digests = [rule.target for rule in report.rules if rule.name.startswith("SHA-256 of tiny-0000")]
    first = hashlib.sha256(hub.repos[REPO]["tiny-00001-of-00003.gguf"]).hexdigest()
    assert len(digests) == 3
    assert digests[0] == f"{first[:12]}…, as {REPO} has it"
    assert seen == sorted(seen)
    assert seen[-1] == ("hash", 1.0)


def test_one_changed_byte_in_the_last_shard_is_found_and_what_to_do_is_said(hub: Hub, tmp_path: Path) -> None:
    on_hub(hub, *split(tmp_path / "s"))
    first = gguftools.hub.download(REPO)
    spoil(first.with_name("tiny-00003-of-00003.gguf"))
    assert check(REPO).verdict == "ok"  # whose header is right
    report = check(REPO, full=True)
    assert report.verdict == "faulty"
    ((name, why),) = wrong(report).items()
    assert name == "SHA-256 of tiny-00003-of-00003.gguf"
    assert "damaged, edited, or of another version" in why
    assert report.advice[-1] == f"hf download {REPO} tiny-00003-of-00003.gguf --force-download"


def test_offline_the_record_is_the_one_that_the_cache_kept(hub: Hub, tmp_path: Path) -> None:
    on_hub(hub, model(tmp_path / "m.gguf"))
    path = gguftools.hub.download(REPO)
    hub.requests.clear()
    assert check(REPO, full=True, offline=True).verdict == "ok"
    assert check(path, full=True).verdict == "ok"  # a path into the cache says it too
    spoil(path)
    assert wrong(check(REPO, full=True, offline=True))
    report = check(path, full=True)
    assert report.advice[-1] == f"hf download {REPO} m.gguf --force-download"
    assert not hub.requests


def test_what_is_not_in_the_cache_is_not_downloaded_for_it(hub: Hub, tmp_path: Path) -> None:
    on_hub(hub, *split(tmp_path / "s"))
    with pytest.raises(NotFound, match="not in the cache"):
        check(REPO, full=True)
    first = gguftools.hub.download(REPO)
    first.with_name("tiny-00002-of-00003.gguf").unlink()
    report = check(REPO, full=True)
    assert wrong(report) == {
        "SHA-256 of tiny-00002-of-00003.gguf": f"missing: {first.with_name('tiny-00002-of-00003.gguf')}: "
        "the model has more shards than are here"
    }


def test_a_local_file_is_compared_with_the_repo_that_is_named(hub: Hub, tmp_path: Path) -> None:
    shards = split(tmp_path / "s")
    on_hub(hub, *shards, folder="Q8_0/")
    assert check(shards[1], full=True, repo=REPO).verdict == "ok"
    assert check(tmp_path / "s", full=True, repo=f"{REPO}@main").verdict == "ok"
    gguftools.edit(shards[0], in_place=True, set={"general.name": "mine"})
    report = check(shards[0], full=True, repo=REPO)
    assert list(wrong(report)) == ["SHA-256 of tiny-00001-of-00003.gguf"]
    again = f"hf download {REPO} Q8_0/tiny-00001-of-00003.gguf --force-download --local-dir {tmp_path / 's'}"
    assert report.advice[-1] == again


def test_a_download_that_broke_off_is_named_although_its_header_cannot_be_used(
    hub: Hub, tmp_path: Path
) -> None:
    file = model(tmp_path / "m.gguf")
    on_hub(hub, file)
    whole = file.read_bytes()
    for size in (len(whole) - 100, 1000):
        file.write_bytes(whole[:size])
        report = check(file, full=True, repo=REPO)
        assert report.verdict == "faulty"
        assert not report.usable
        assert wrong(report) == {
            "SHA-256 of m.gguf": f"{size:,} bytes, on record {len(whole):,}: {file}: "
            "the download is incomplete"
        }
        assert report.failed()[0].name == "readable"


def test_a_missing_shard_is_one_of_the_findings(hub: Hub, tmp_path: Path) -> None:
    shards = split(tmp_path / "s")
    on_hub(hub, *shards)
    shards[1].unlink()
    report = check(shards[0], full=True, repo=REPO)
    assert [rule.name for rule in report.failed()] == ["readable", "SHA-256 of tiny-00002-of-00003.gguf"]


def test_the_note_that_a_download_leaves_beside_a_file_is_a_record(tmp_path: Path) -> None:
    file = model(tmp_path / "m.gguf")
    with pytest.raises(InputError, match="no record"):
        check(file, full=True)
    note = tmp_path / ".cache" / "huggingface" / "download" / "m.gguf.metadata"
    note.parent.mkdir(parents=True)
    note.write_text(f"{'0' * 40}\n{hashlib.sha256(file.read_bytes()).hexdigest()}\n1700000000.0\n")
    assert check(file, full=True).verdict == "ok"
    spoil(file)
    assert wrong(check(file, full=True))
    note.write_text("0\n")
    with pytest.raises(InputError, match="no record"):
        check(file, full=True)


def test_of_several_files_with_one_name_the_folder_tells_which(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    file = model(tmp_path / "b" / "m.gguf")
    on_hub(hub, model(tmp_path / "m.gguf", {"general.name": "another"}), folder="a/")
    on_hub(hub, file, folder="b/")
    assert check(file, full=True, repo=REPO).verdict == "ok"
    with pytest.raises(InputError, match=r"a/m\.gguf, b/m\.gguf"):
        check(tmp_path / "m.gguf", full=True, repo=REPO)
    with pytest.raises(NotFound, match="no file"):
        check(model(tmp_path / "other.gguf"), full=True, repo=REPO)


def test_where_there_is_no_record_it_is_said(hub: Hub, tmp_path: Path) -> None:
    file = model(tmp_path / "m.gguf")
    hub.large = False
    on_hub(hub, file)
    with pytest.raises(InputError, match="no SHA-256 on record"):
        check(file, full=True, repo=REPO)
    with pytest.raises(InputError, match="needs the Hub"):
        check(file, full=True, repo=REPO, offline=True)
    with pytest.raises(NotFound):
        check(file, full=True, repo="org/none")
    hub.refuse[REPO] = (429, "")
    with pytest.raises(HubError, match="pause"):
        check(file, full=True, repo=REPO)


def test_it_stops_when_it_is_told_to(hub: Hub, tmp_path: Path) -> None:
    file = model(tmp_path / "m.gguf")
    on_hub(hub, file)
    with pytest.raises(LoadAborted, match="stopped"):
        check(file, full=True, repo=REPO, progress=lambda _stage, _part: False)


def test_it_is_about_one_file(hub: Hub, tmp_path: Path) -> None:
    file = model(tmp_path / "m.gguf")
    with pytest.raises(InputError, match="about one file"):
        check(file, file, full=True)
    with pytest.raises(InputError, match="about one file"):
        check(file, repo=REPO)
    with pytest.raises(InputError, match="no file here"):
        check("org/none", full=True, repo=REPO)


def test_the_command_exits_3_for_what_differs(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = model(tmp_path / "m.gguf")
    on_hub(hub, file)
    code, text, _ = in_process(capsys, "check", str(file), "--full", "--repo", REPO, "--json")
    rules = json.loads(text)["reports"][0]["rules"]
    assert (code, rules[-1]["name"], rules[-1]["passed"]) == (0, "SHA-256 of m.gguf", True)
    spoil(file)
    code, text, _ = in_process(capsys, "check", str(file), "--full", "--repo", REPO)
    assert code == 3
    assert "SHA-256 of m.gguf" in text
    assert f"hf download {REPO} m.gguf" in text
    for args in (["--full", str(file)], ["--repo", REPO]):
        code, _, _ = in_process(capsys, "check", str(file), *args)
        assert code == 2
