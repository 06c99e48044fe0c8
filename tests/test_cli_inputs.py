"""The command line's inputs: numbers out of range, empty names and prompts, closed standard streams."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import in_process

from gguftools import errors, libllama
from gguftools.cli import kinds, options
from gguftools.session.limits import LIMITS, check

REPO = Path(__file__).resolve().parent.parent


def shell(line: str) -> subprocess.CompletedProcess[str]:
    """`line` in a shell, where $G is the command and $M a model."""
    env = {**os.environ, "G": f"{sys.executable} -m gguftools"}
    return subprocess.run(["bash", "-c", line], env=env, capture_output=True, text=True, cwd=REPO, timeout=60)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["-o", "threads=99999"], "threads=99999: must be a whole number from 1 to 512"),
        (["-o", "threads=0"], "threads=0: must be"),
        (["-o", "n_ctx=-1"], "n_ctx=-1: must be a whole number from 1"),
        (["-o", "max_tokens=0", "--max-tokens", "4"], "max_tokens=0: must be a whole number from 1"),
        (["--max-tokens", "0"], "0 is not a whole number from 1"),
        (["--draft-tokens", "17"], "draft_tokens=17: must be a whole number from 0 to 16, or auto"),
        (["--draft-tokens", "-1"], "draft_tokens=-1: must be a whole number from 0 to 16, or auto"),
        (["-o", "temperature=-1"], "must be a number from 0 to 100"),
        (["-o", "top_p=nan"], "must be a number from 0 to 1"),
        (["--seed", "4294967295"], "is not a whole number from 0"),
        (["-o", "tensor_split=a"], "must be numbers with commas between them"),
        (["-o", "override_tensor=foo"], "override_tensor=foo: must be REGEX=BUFFER"),
    ],
)
def test_a_value_out_of_range_is_a_usage_error_whichever_way_it_is_given(
    args: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = in_process(capsys, "run", "no.gguf", "prompt", *args)
    assert (code, out) == (2, "")
    assert words in err


def test_python_and_the_command_line_have_the_same_limits() -> None:
    assert set(LIMITS) - {"draft_tokens", "logprobs"} == {
        key for key, read in options.LOAD.items() if isinstance(read, kinds.Number)
    } | {key for key, read in options.REQUEST.items() if isinstance(read, kinds.Number)}
    assert LIMITS["threads"].high == libllama.MAX_THREADS
    for value in (0, 513, 1.5, True, "4", None):
        with pytest.raises(errors.InputError, match="it takes a whole number from 1 to 512"):
            check("threads", value)
    with pytest.raises(errors.InputError, match="frequency_penalty"):
        check("frequency_penalty", float("inf"))


@pytest.mark.parametrize(
    "args",
    [
        ["run", "", "hi"],
        ["run", "m.gguf", "hi", "--draft", ""],
        ["run", "m.gguf", "-f", ""],
        ["chat", ""],
        ["check", ""],
        ["check", "m.gguf", ""],
        ["convert", "", "-o", "x"],
        ["convert", "x", "-o", ""],
        ["convert", "x", "-o", "y", "--tokenizer", ""],
        ["export", "", "-o", "x"],
        ["export", "x", "-o", ""],
        ["demo", "--folder", ""],
    ],
)
def test_an_empty_name_is_no_folder_but_a_usage_error(
    args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = in_process(capsys, *args)
    assert (code, out) == (2, "")
    assert "the name is empty" in err


@pytest.mark.parametrize("line", ["$G run m.gguf ''", "$G run m.gguf </dev/null", "echo | $G run m.gguf"])
def test_an_empty_prompt_is_a_usage_error(line: str) -> None:
    done = shell(line)
    assert done.returncode == 2
    assert done.stderr.startswith("error: the prompt is empty")


def test_closed_standard_streams_end_nothing_with_a_traceback(smollm2: Path) -> None:
    run = f"$G run '{smollm2}' --max-tokens 2 --n-ctx 256 -o threads=1"
    for line, code in (
        (f"{run} <&-", 2),
        (f"{run} hi >&- 2>&-", 0),
        (f"$G chat '{smollm2}' --n-ctx 256 <&-", 0),
        (f"$G check '{smollm2}' >&-", 0),
        ("$G check no.gguf 2>&-", 1),
    ):
        done = shell(line)
        assert done.returncode == code, line
        assert "Traceback" not in done.stderr, line


@pytest.mark.parametrize("args", [["run", "m.gguf", "-f", "."], ["run", "m.gguf", "hi", "-o", "grammar=@."]])
def test_a_folder_in_place_of_a_text_file_is_called_a_folder(
    args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = in_process(capsys, *args)
    assert code == 1
    assert err.startswith("error: . is a folder")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root reads every file")
@pytest.mark.parametrize("args", [["check"], ["run", "hi"], ["export", "-o", "x"]])
def test_a_file_that_may_not_be_read_is_the_same_failure_for_every_verb(
    args: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF")
    path.chmod(0)
    assert in_process(capsys, args[0], str(path), *args[1:])[0] == 1


def test_with_json_a_number_out_of_range_is_an_object_too(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = in_process(capsys, "run", "no.gguf", "hi", "--json", "-o", "threads=0")
    assert (code, json.loads(out)["error"]["kind"]) == (2, "UsageError")
