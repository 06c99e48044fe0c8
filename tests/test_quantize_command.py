"""`gguftools quantize`: what is printed where, JSON, exit codes, Ctrl-C in a real process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import command_line
import pytest
import quantized

from gguftools.cli import ui
from gguftools.header import read_header
from gguftools.libllama import mixes

Captured = pytest.CaptureFixture[str]


def in_process(capsys: Captured, *args: str) -> tuple[int, str, str]:
    ui._console.cache_clear()  # it holds the stream of the call before
    return command_line.in_process(capsys, *args)


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The types are found in this process: a new one each time takes half a second."""
    monkeypatch.setattr(mixes, "APART", False)


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return quantized.narrow(tmp_path_factory.mktemp("narrow") / "m.gguf")


def test_it_says_what_it_wrote_and_warns_on_stderr(narrow: Path, tmp_path: Path, capsys: Captured) -> None:
    out = tmp_path / "q.gguf"
    code, stdout, stderr = in_process(capsys, "quantize", str(narrow), "-o", str(out), "--type", "q4_k_m")
    assert code == 0
    assert "Q4_K_M" in stdout
    assert str(out) in stdout
    assert "Q5_0" in stdout
    assert stderr.startswith("warning: ")
    assert "Q4_K → Q5_0" in stderr
    assert read_header(out).keys["general.file_type"] == 15


def test_a_dry_run_lists_each_tensor_and_the_bytes(narrow: Path, tmp_path: Path, capsys: Captured) -> None:
    code, stdout, _ = in_process(capsys, "quantize", str(narrow), "--type", "q8_0", "--dry-run")
    assert code == 0
    names = [line.split()[0] for line in stdout.splitlines()]
    assert set(names) >= {info.name for info in read_header(narrow).tensors}
    code, _, _ = in_process(capsys, "quantize", str(narrow), "--type", "q8_0", "-o", str(tmp_path / "q.gguf"))
    assert f"{(tmp_path / 'q.gguf').stat().st_size:,} bytes" in stdout


def test_json_is_one_object(narrow: Path, tmp_path: Path, capsys: Captured) -> None:
    code, stdout, _ = in_process(capsys, "quantize", str(narrow), "--type", "Q8_0", "--dry-run", "--json")
    found = json.loads(stdout)
    assert code == 0
    assert found["path"] is None
    assert found["type"] == "Q8_0"
    assert found["tensors"][0] == {
        "name": "token_embd.weight",
        "shape": [320, 40],
        "source": "F16",
        "type": "Q8_0",
        "nbytes": 40 * 320 // 32 * 34,
        "wished": None,
    }


@pytest.mark.parametrize(
    ("args", "code", "what"),
    [
        (["--type", "q8_0"], 2, "-o"),
        (["-o", "q.gguf"], 2, "--type"),
        (["--type", "q9", "--dry-run"], 1, "type 'q9' is unknown"),
        (["--type", "q8_0", "--dry-run", "--threads", "0"], 2, "threads"),
        (["--type", "iq1_s", "--dry-run"], 1, "--imatrix"),
    ],
)
def test_what_cannot_be_is_said_in_three_lines(
    narrow: Path, capsys: Captured, args: list[str], code: int, what: str
) -> None:
    found, stdout, stderr = in_process(capsys, "quantize", str(narrow), *args)
    assert found == code
    assert stdout == ""
    assert what in stderr


def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    src = quantized.wide(tmp_path / "m.gguf", n_layer=40)
    out = tmp_path / "out"
    out.mkdir()
    command = [sys.executable, "-m", "gguftools", "quantize", str(src), "-o", str(out / "q.gguf")]
    process = subprocess.Popen(
        [*command, "--type", "iq4_nl", "--threads", "1"], stderr=subprocess.PIPE, text=True
    )
    end = time.monotonic() + 60
    while not any(out.iterdir()) and time.monotonic() < end and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in stderr
    assert not list(out.iterdir())
