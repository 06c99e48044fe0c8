"""`gguftools transplant`: streams, exit codes, Ctrl-C in a real process; SmolLM2 in Kimi's tokens."""

from __future__ import annotations

import errno
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import tiny
import transplants as tp
from command_line import REPO, gguftools, in_process

from gguftools import Model, transplant
from gguftools.cli import transplant as command
from gguftools.cli import ui
from gguftools.header import read_header


@pytest.fixture(autouse=True)
def streams() -> None:
    ui._console.cache_clear()  # it holds the stream of the test before


def test_it_shows_the_map_on_stderr_and_says_what_it_wrote(
    donor: Path, target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "my draft.gguf"
    code, said, err = in_process(capsys, "transplant", str(donor), str(target), "-o", str(out))
    assert code == 0
    assert [line.split()[0] for line in said.splitlines() if line.startswith("  ") and line[2] != " "] == [
        *("wrote", "size", "tokens", "ties", "coverage", "verdict", "took")
    ]
    assert "identical" in said
    lines = err.splitlines()
    assert lines[0].startswith("Special tokens")
    assert lines[1].split() == ["target", "donor", "role", "use"]
    assert any("<|im_end|>" in line and "drafted" in line for line in lines)
    assert lines[-1] == f"Next: gguftools chat TARGET.gguf --draft '{out}'"


def test_json_is_the_report_alone(
    donor: Path, target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "d.gguf"
    code, said, _ = in_process(capsys, "transplant", str(donor), str(target), "-o", str(out), "--json")
    assert code == 0
    assert json.loads(said) == json.loads((tmp_path / "d.gguf.transplant.json").read_text("utf-8"))


def test_options_reach_the_verb(
    donor: Path, target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["transplant", str(donor), str(target), "-o", str(tmp_path / "d.gguf")]
    more = ["--layers", "1", "--context", "1000", "--outtype", "f16", "--hf-out", str(tmp_path / "hf")]
    code, *_ = in_process(capsys, *args, *more)
    assert code == 0
    header = read_header(tmp_path / "d.gguf")
    assert (header.keys["llama.block_count"], header.keys["llama.context_length"]) == (1, 1000)
    assert next(t.type for t in header.tensors if t.name == "output.weight") == 1
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert (config["num_hidden_layers"], config["torch_dtype"]) == (1, "float16")
    code, _, err = in_process(capsys, *args)
    assert code == 1
    assert err.splitlines()[-1] == "  add --force to replace it"


def test_the_map_of_a_person_wins_and_that_of_the_line_over_that_of_the_file(
    donor: Path, target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "map.json"
    own.write_text(json.dumps({"<|im_user|>": "the", "[BOS]": "\n"}))
    args = ["transplant", str(donor), str(target), "-o", str(tmp_path / "d.gguf"), "--json"]
    more = ["--map-file", str(own), "--map", "<|im_user|>=<|im_start|>", "--map", "<|im_end|>=a=b"]
    code, said, _ = in_process(capsys, *args, *more)
    assert code == 0
    report = json.loads(said)
    assert report["options"]["map"] == {"<|im_user|>": "<|im_start|>", "[BOS]": "\n", "<|im_end|>": "a=b"}
    found = {one["target_text"]: one["donor_text"] for one in report["special_map"]}
    assert report["options"]["map"].items() <= found.items()


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        ([], 2, "no output: give -o DRAFT.gguf, or --hf-out DIR"),
        (["-o", "d.gguf", "--map", "<|im_end|>"], 2, "give it as TOKEN=TEXT"),
        (["-o", "d.gguf", "--map", "=x"], 2, "give it as TOKEN=TEXT"),
        (["-o", "d.gguf", "--map", "a=x", "--map", "a=y"], 2, "--map gives a two meanings: x and y"),
        (["-o", "d.gguf", "--context", "0"], 2, "--context"),
        (["-o", "d.gguf", "--context", "3000000000"], 2, "--context"),
        (["-o", "d.gguf", "--outtype", "q2_k"], 2, "--outtype"),
        (["-o", ""], 2, "the name is empty"),
        (["-o", "d.gguf", "--layers", "9"], 1, "layers '9' cannot be kept"),
        (["-o", "d.gguf", "--map-file", "none.json"], 1, "none.json: no such file"),
    ],
)
def test_a_mistake_in_the_options_is_said(
    donor: Path,
    target: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    given: list[str],
    code: int,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    found, out, err = in_process(capsys, "transplant", str(donor), str(target), *given)
    assert (found, out) == (code, "")
    assert said in err
    assert sorted(tmp_path.iterdir()) == before


def test_a_map_file_may_begin_with_a_byte_order_mark_and_a_turn_without_an_end_is_warned_of(
    donor: Path, target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "map.json"
    own.write_bytes(b"\xef\xbb\xbf" + json.dumps({"<|im_end|>": "a"}).encode())
    out = tmp_path / "d.gguf"
    code, _, err = in_process(
        capsys, "transplant", str(donor), str(target), "-o", str(out), "--map-file", str(own)
    )
    assert code == 0
    assert "the end of a turn, <|im_end|>, can never be drafted" in err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_stdout_that_takes_nothing_is_said_on_stderr(donor: Path, target: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gguftools", "check", str(donor), str(target), "--json"],
            stdout=full, stderr=subprocess.PIPE, text=True, cwd=REPO, timeout=60,
        )  # fmt: skip
    assert done.returncode == 1
    assert "nothing can be written to stdout" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("content", ["{", "[]", '{"a": 1}'])
def test_a_map_file_that_is_no_map_is_said(
    donor: Path, target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    own = tmp_path / "map.json"
    own.write_text(content)
    out = str(tmp_path / "d.gguf")
    args = ["transplant", str(donor), str(target), "-o", out, "--map-file", str(own)]
    code, _, err = in_process(capsys, *args)
    assert code == 1
    assert "map.json" in err.splitlines()[0]
    assert err.splitlines()[-1] == '  write {"TOKEN": "TEXT"}'


@pytest.mark.parametrize(
    ("kind", "said"),
    [("folder", "map is a folder"), ("missing", "no such file"), ("unreadable", "cannot be read")],
)
def test_a_map_file_that_cannot_be_read_is_said_with_a_way_out(
    donor: Path,
    target: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    said: str,
) -> None:
    def refuse(path: Path, *_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    own = tmp_path / "map"
    if kind == "folder":
        own.mkdir()
    elif kind == "unreadable":
        own.write_text("{}")
        monkeypatch.setattr(Path, "read_text", refuse)
    out = tmp_path / "d.gguf"
    args = ["transplant", str(donor), str(target), "-o", str(out), "--map-file", str(own)]
    code, _, err = in_process(capsys, *args)
    assert code == 1
    assert said in err
    assert len(err.splitlines()) == 3
    assert not out.exists()


def test_the_kinds_of_tokens_are_told_one_by_one() -> None:
    classes = {"exact": 3, "pieces": 4, "special": 1, "reserved": 2, "unreachable": 0}
    text = "3 one token of the donor byte for byte (30.0%), 4 several, 1 special, 2 reserved"
    assert command._classes(classes, 10) == text
    assert (command._tied(0), command._tied(1)[:6], command._tied(2)[:6]) == ("", " pair ", " pairs")


@pytest.mark.skipif(sys.platform == "win32", reason="signals differ there")
@pytest.mark.parametrize("checkpoint", [False, True])
def test_ctrl_c_in_the_middle_ends_with_130_and_leaves_nothing(
    target: Path, tmp_path: Path, checkpoint: bool
) -> None:
    config = {**tiny.LLAMA, "hidden_size": 512, "intermediate_size": 8192, "num_hidden_layers": 3}
    donor = tp.donor_gguf(tmp_path, config) if not checkpoint else tp.write_donor(tmp_path, config)[0]
    folder = tmp_path / "out"
    folder.mkdir()
    command: list[Any] = [sys.executable, "-m", "gguftools", "transplant", donor, target]
    command += ["-o", folder / "d.gguf", "--hf-out", folder / "hf"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=REPO)
    until = time.monotonic() + 30
    while not list(folder.iterdir()) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert err.strip().endswith("error: interrupted")
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
    assert not (folder / "hf").exists()


@pytest.fixture(scope="module")
def kimi(
    smollm2: Path, kimi_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    """SmolLM2 with Kimi-K2's vocabulary, and the report."""
    out = tmp_path_factory.mktemp("kimi-draft") / "kimi.gguf"
    done = gguftools("transplant", str(smollm2), str(kimi_folder), "-o", str(out), "--json")
    assert done.returncode == 0, done.stderr
    return out, json.loads(done.stdout)


def test_smollm2_takes_kimis_vocabulary_in_less_than_a_gigabyte(kimi: tuple[Path, dict[str, Any]]) -> None:
    _, report = kimi
    assert report["verdict"] == "identical"
    assert report["n_tokens"] == 163840
    assert report["classes"]["exact"] == 39165
    assert sum(report["classes"].values()) == 163840
    assert report["peak_bytes"] is None or report["peak_bytes"] < 500e6
    assert report["seconds"] < 40  # 5 on an idle machine


def test_the_kimi_draft_writes_sense_in_kimis_tokens(
    kimi: tuple[Path, dict[str, Any]], smollm2: Path, kimi_folder: Path
) -> None:
    out, _ = kimi
    short = out.with_name("short.gguf")
    transplant(smollm2, kimi_folder, short, layers="0-9")
    with Model.load(out, short, threads=1) as model, model.session(n_ctx=256) as session:
        result = session.generate(
            "The capital of France is", max_tokens=12, temperature=0, draft_tokens=5, draft_p_min=0.0
        ).result()
    assert "Paris" in result.text
    assert all(token < 163584 for token in result.tokens)
    assert result.stats.draft_n > 0
