"""check: templates made to keep it busy are judged in a moment."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pairs import made

from gguftools.verbs.check import check
from gguftools.verbs.check.templates import markers, prompt_inside_loop


@pytest.mark.parametrize(
    "template",
    [
        "{% if x" * 300_000,
        "{%" + " " * 1_000_000,
        "{% for m in messages %}" * 100_000,
        "{% if add_generation_prompt %}" * 100_000,
        "<|" * 1_000_000,
        "<|" + "a" * 1_000_000,
        "{%-" * 500_000 + "%}",
    ],
)
def test_any_template_takes_a_moment(template: str) -> None:
    start = time.process_time()
    markers(template)
    prompt_inside_loop(template)
    assert time.process_time() - start < 2


def test_a_template_with_many_markers_takes_a_moment(tmp_path: Path) -> None:
    template = "".join(f"<|{i}|>" for i in range(100_000))
    path = made(tmp_path, "m", keys={"tokenizer.chat_template": template})
    start = time.process_time()
    assert check(path, path).verdict == "identical"
    assert check(path).verdict == "faulty"
    assert time.process_time() - start < 4
