"""`gguftools convert` and `gguftools export`: streams, exit codes, Ctrl-C in a real process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tiny

from gguftools import arch, cli
from gguftools.cli import ui
from gguftools.header import read_header


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokenizer = tiny.write_tokenizer(tmp_path / "tokenizer")
    return tiny.write_checkpoint(tmp_path / "tiny", tiny.LLAMA, tiny.weights(tiny.LLAMA), tokenizer=tokenizer)


def run(*args: object) -> int:
    ui._console.cache_clear()  # it holds the stream of the test before
    with pytest.raises(SystemExit) as stopped:
        cli.main([str(arg) for arg in args])
    return int(stopped.value.code or 0)


def test_convert_says_what_it_wrote(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("convert", folder, "-o", tmp_path / "m.gguf", "--outtype", "q8_0") == 0
    out, err = capsys.readouterr()
    assert "16 Q8_0" in out
    assert "llama" in out
    assert err == ""
    assert read_header(tmp_path / "m.gguf").architecture == "llama"


def test_json_is_one_object(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("convert", folder, "-o", tmp_path / "m.gguf", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {
        "schema": 1,
        "path": str(tmp_path / "m.gguf"),
        "nbytes": (tmp_path / "m.gguf").stat().st_size,
        "architecture": "llama",
        "types": {"F32": 21},
        "n_tokens": 288,
        "files": [{"path": str(tmp_path / "m.gguf"), "nbytes": (tmp_path / "m.gguf").stat().st_size}],
        "n_kept": 0,
        "dry_run": False,
    }
    assert run("export", tmp_path / "m.gguf", "-o", tmp_path / "back", "--json") == 0
    assert json.loads(capsys.readouterr().out)["architecture"] == "LlamaForCausalLM"


def test_export_and_its_refusal_to_overwrite(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("convert", folder, "-o", tmp_path / "m.gguf")
    assert run("export", tmp_path / "m.gguf", "-o", tmp_path / "back", "--outtype", "bf16") == 0
    assert "1 file" in capsys.readouterr().out
    assert run("export", tmp_path / "m.gguf", "-o", tmp_path / "back") == 1
    assert capsys.readouterr().err.splitlines()[-3:] == [
        f"error: {tmp_path / 'back'} exists and is not empty",
        "  nothing was written",
        "  add --force to replace it",
    ]
    assert run("export", tmp_path / "m.gguf", "-o", tmp_path / "back", "--force") == 0


def test_a_fault_is_three_lines_and_exit_code_one(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "config.json").write_text(json.dumps({**tiny.LLAMA, "architectures": ["MambaForCausalLM"]}))
    assert run("convert", folder, "-o", tmp_path / "m.gguf") == 1
    out, err = capsys.readouterr()
    assert out == ""
    supported = ", ".join(name for model in arch.SUPPORTED for name in model.CLASSES)
    assert err.splitlines() == [
        "error: MambaForCausalLM cannot be converted",
        f"  its tensor names and keys are not known here; supported are {supported}",
        "  llama.cpp's convert_hf_to_gguf.py knows more; --vocab-only takes any architecture",
    ]
    assert run("convert", folder, "-o", tmp_path / "m.gguf", "--outtype", "q2_k") == 2


@pytest.mark.skipif(sys.platform == "win32", reason="signals differ there")
def test_ctrl_c_in_the_middle_ends_with_130_and_leaves_nothing(tmp_path: Path) -> None:
    config = {**tiny.LLAMA, "hidden_size": 512, "intermediate_size": 8192, "num_hidden_layers": 3}
    tokenizer = tiny.write_tokenizer(tmp_path / "tokenizer")
    tiny.write_checkpoint(tmp_path / "m", config, tiny.weights(config), tokenizer=tokenizer)
    (tmp_path / "out").mkdir()
    command = [
        sys.executable,
        "-m",
        "gguftools",
        "convert",
        tmp_path / "m",
        "-o",
        tmp_path / "out" / "m.gguf",
    ]
    process = subprocess.Popen([*command, "--outtype", "q4_0"], stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 30
    while not list((tmp_path / "out").iterdir()) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err.strip() == "error: interrupted"
    assert not list((tmp_path / "out").iterdir())
