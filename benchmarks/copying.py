"""Twelve prompts whose answers repeat much of them: functions to rewrite, pages to quote and to summarise."""

from __future__ import annotations

import difflib
import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path

from gguftools.verbs.bench.prompts import Prompt, asked

FUNCTIONS: tuple[tuple[Callable[..., object], str], ...] = (
    (textwrap.dedent, "Rename the variable `margin` to `common` in this function and give it back in full."),
    (textwrap.indent, "Add type annotations to this function and give it back in full."),
    (difflib.get_close_matches, "Remove the docstring of this function and give the rest back unchanged."),
    (inspect.cleandoc, "Rename this function to `clean` and give it back in full, with no other change."),
)
TASKS = (
    "Repeat the following text word for word, but begin each sentence on a new line:",
    "List the sentences of this text that contain a number or an amount, exactly as they are written:",
)


def prompts() -> list[Prompt]:
    """Four functions to rewrite; four pages, each with two tasks."""
    code = [
        asked(f"{task}\n\n```python\n{textwrap.dedent(inspect.getsource(function))}```", "code")
        for function, task in FUNCTIONS
    ]
    text = Path(__file__).with_name("pages.txt").read_text("utf-8")
    pages = [" ".join(page.split()) for page in text.split("\n\n")]
    return code + [asked(f"{task}\n\n{page}", "prose") for page in pages for task in TASKS]
