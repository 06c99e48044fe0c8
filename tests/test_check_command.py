"""check: several drafts, the Hub, the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hub_server import Hub, serve
from pairs import TOKENS, N, kimi_with, made
from tokenizer_files import spm_model

import gguftools
import gguftools.hub
from gguftools.checkpoint import Checkpoint
from gguftools.errors import FormatError, InputError, NotFound
from gguftools.verbs.check import check
from gguftools.vocab import Vocab

# Several drafts, the Hub, the command


def test_several_drafts_are_ranked_best_first(tmp_path: Path) -> None:
    target = made(tmp_path, "target")
    drafts = {
        "d": made(tmp_path, "d", tokens=[*TOKENS[:50], "other", *TOKENS[51:]]),
        "c": made(tmp_path, "c", tokens=[*TOKENS[:-1], "<|other|>"]),
        "b": made(tmp_path, "b", merges=["t k"]),
        "a": made(tmp_path, "a"),
    }
    reports = gguftools.check(target, *drafts.values())
    assert [Path(str(report.draft)).stem for report in reports] == ["a", "b", "c", "d"]
    assert [r.verdict for r in reports] == ["identical", "compatible", "alignable", "incompatible"]


def test_what_was_read_before_is_taken_as_it_is(tmp_path: Path) -> None:
    path = made(tmp_path, "m")
    header = gguftools.read_header(path)
    assert check(header, Vocab.from_header(header)).verdict == "identical"
    assert check(header).verdict == "ok"


def test_a_pair_on_the_hub_costs_its_headers_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = made(tmp_path, "m", tensors={"token_embd.weight": (N + 3, 8192)}).read_bytes()
    with serve() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        hub.repos["org/big"] = {"big-Q8_0.gguf": data}
        hub.repos["org/small"] = {"small-Q4_0.gguf": data}
        report = check("org/big:Q8_0", "org/small")
        assert (report.verdict, report.target) == ("identical", "org/big:big-Q8_0.gguf")
        assert hub.sent < 2 * (1 << 19) + 4096
        assert len(data) > 9_000_000


@pytest.fixture(scope="module")
def kimi(kimi_folder: Path) -> Vocab:
    return Vocab.from_checkpoint(kimi_folder)


def test_a_checkpoint_on_the_hub_costs_its_tokenizer_alone(
    kimi_folder: Path, kimi: Vocab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {path.name: path.read_bytes() for path in kimi_folder.iterdir()}
    with serve() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        hub.repos["org/kimi"] = {
            **files,
            "model.safetensors": b"\0" * (1 << 23),
            "modeling_kimi.py": b"raise",
        }
        report = check("org/kimi", kimi_folder)
        assert report.verdict == "identical"
        assert hub.sent < sum(map(len, files.values())) + 4096
        hub.repos["org/pickles"] = {"config.json": b"{}", "pytorch_model.bin": b"x"}
        with pytest.raises(InputError, match="no model in it"):
            check("org/pickles")
        with pytest.raises(NotFound):
            check("org/none")


def command(*args: str | Path, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "gguftools", "check", *map(str, args)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == code, done.stderr
    return done.stdout if code != 1 else done.stderr


def test_the_command_exits_3_where_no_draft_can_be_used(tmp_path: Path) -> None:
    target, good = made(tmp_path, "target"), made(tmp_path, "good")
    bad = made(tmp_path, "bad", tokens=[*TOKENS[:50], "other", *TOKENS[51:]])
    assert command(target, good, code=0).startswith("identical")
    assert command(target, bad, code=3).startswith("incompatible")
    both = command(target, bad, good, code=0).splitlines()
    assert [line.split()[0] for line in both[:3]] == ["verdict", "identical", "incompatible"]
    assert both[3].split()[0] == "texts:"
    assert [line.split(":")[0] for line in both if "the vocabularies are" in line] == ["identical"]
    assert "incompatible: the draft cannot serve" not in "\n".join(both)
    assert "incompatible: the draft cannot serve" in command(target, bad, good, "--all", code=0)
    assert command(target).startswith("ok")
    assert command(made(tmp_path, "faulty", pre=None), code=3).startswith("faulty")


def test_the_command_writes_one_json_object(tmp_path: Path) -> None:
    target, draft = made(tmp_path, "target"), made(tmp_path, "draft", tokens=[*TOKENS[:-1], "<|other|>"])
    content = json.loads(command(target, draft, "--json"))
    assert content["schema"] == 1
    (report,) = content["reports"]
    wanted = {"verdict", "target", "draft", "rules", "differences", "shared_fraction", "advice"}
    assert wanted <= set(report)
    assert report["differences"] == [{"id": N + 2, "target": "<|pad|>", "draft": "<|other|>"}]
    failed_json = json.loads(_stdout(tmp_path / "missing.gguf", "--json"))
    assert failed_json["schema"] == 1
    assert failed_json["error"]


def _stdout(*args: str | Path) -> str:
    run = [sys.executable, "-m", "gguftools", "check", *map(str, args)]
    return subprocess.run(run, capture_output=True, text=True, timeout=60, check=False).stdout


def test_an_unreadable_file_is_three_lines_on_stderr(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"")
    lines = command(tmp_path / "m.gguf", code=1).splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("error: ")


def test_a_hostile_token_cannot_command_the_terminal(tmp_path: Path) -> None:
    draft = made(tmp_path, "draft", tokens=[*TOKENS[:-1], "<|\x1b[31mred|>"])
    assert "\x1b" not in command(made(tmp_path, "target"), draft)


def test_a_local_pair_loads_nothing_heavy(tmp_path: Path) -> None:
    path = made(tmp_path, "m")
    code = (
        "import sys; from gguftools.cli.check import command;"
        f"command.main([{str(path)!r}, {str(path)!r}], standalone_mode=False);"
        "print(sorted({'rich','llama_cpp','tiktoken','huggingface_hub','jinja2','gguf'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.skipif(not hasattr(os, "wait4"), reason="the processor time of a child is not to be had")
def test_a_kimi_sized_pair_takes_at_most_half_a_second(kimi: Vocab, tmp_path: Path) -> None:
    merges = list(kimi.merges)
    paths = [str(kimi_with(kimi, {}, tmp_path, name, merges=merges)) for name in ("a", "b")]
    best = 9.0
    for _ in range(3):
        child = subprocess.Popen(
            [sys.executable, "-m", "gguftools", "check", *paths], stdout=subprocess.DEVNULL
        )
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        assert child.returncode == 0
        best = min(best, usage.ru_utime + usage.ru_stime)  # of the processor, other work counts not
    assert best < 0.5


def test_a_draft_that_cannot_be_read_is_ranked_last_and_the_others_judged(tmp_path: Path) -> None:
    target, good = made(tmp_path, "target"), made(tmp_path, "good")
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"<html>")
    reports = check(target, broken, tmp_path / "missing.gguf", good)
    assert [report.verdict for report in reports] == ["identical", "incompatible", "incompatible"]
    assert [report.unreadable for report in reports] == [False, True, True]
    assert {report.draft for report in reports[1:]} == {str(broken), str(tmp_path / "missing.gguf")}
    said = command(target, broken, good, code=0)
    assert said.count(str(broken)) == 1  # the reason does not name it again
    assert "does not begin with the letters GGUF" in " ".join(said.split())  # lines may break anywhere
    assert "no such file" in command(target, broken, tmp_path / "missing.gguf", code=3)
    with pytest.raises(FormatError):
        check(target, broken)


def test_offline_a_pair_is_judged_from_the_cache_and_the_hub_is_not_asked(
    hub: Hub, tmp_path: Path, kimi_folder: Path
) -> None:
    hub.repos["org/gguf"] = {"m.gguf": made(tmp_path, "m").read_bytes()}
    hub.repos["org/folder"] = {path.name: path.read_bytes() for path in kimi_folder.iterdir()}
    with pytest.raises(NotFound, match="not in the cache"):
        check("org/gguf", offline=True)
    gguftools.hub.download("org/gguf")
    Checkpoint.open("org/folder", tensors=False)
    hub.requests.clear()
    assert check("org/gguf", "org/gguf", offline=True).verdict == "identical"
    assert check("org/folder", kimi_folder, offline=True).verdict == "identical"
    assert not hub.requests


def test_a_folder_of_llama_2s_kind_is_checked_by_its_tokenizer_model(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(spm_model())
    hub.repos["org/llama"] = {"tokenizer.model": spm_model()}
    assert check(tmp_path, "org/llama").verdict == "identical"


@pytest.mark.parametrize("given", [(None,), (5,), ("TARGET", 5)])
def test_what_is_no_source_at_all_is_named(given: tuple[object, ...], tmp_path: Path) -> None:
    target = made(tmp_path, "target")
    with pytest.raises(InputError, match="is no model"):
        check(*(target if each == "TARGET" else each for each in given))  # type: ignore[call-overload]
