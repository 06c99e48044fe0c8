"""run: what goes to stdout and what to stderr, where the prompt comes from, seeds."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from command_line import gguftools


@pytest.fixture(scope="module")
def answer(smollm2: Path) -> subprocess.CompletedProcess[str]:
    """A greedy answer of SmolLM2 with itself as the draft."""
    return gguftools("run", str(smollm2), PROMPT, "--draft", str(smollm2), "--draft-tokens", "3", *GREEDY)


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


def test_by_itself_a_draft_is_used_or_it_is_said_that_it_would_not_pay(smollm2: Path) -> None:
    done = gguftools("run", str(smollm2), PROMPT, "--draft", str(smollm2), *GREEDY)
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert ("nothing drafted, since it would not pay" in line) != ("drafted accepted" in line)


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
