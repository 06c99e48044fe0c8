"""Pairs of tiny GGUFs, and Kimi-sized ones with other names, for the tests of check."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tiny_gguf import CONTROL, NORMAL, letters, write

from gguftools.verbs.check import Report, check
from gguftools.vocab import Vocab

N = 300
SPECIALS = ["<|end|>", "<|user|>", "<|pad|>"]
TOKENS = [*letters(N), *SPECIALS]
TYPES = [NORMAL] * N + [CONTROL] * 3
BASE: dict[str, Any] = {"tokens": TOKENS, "types": TYPES, "ids": {"bos": N + 1, "eos": N}}


def made(folder: Path, name: str, **change: Any) -> Path:
    return write(folder / f"{name}.gguf", **{**BASE, **change})


def pair(folder: Path, target: dict[str, Any] | None = None, **draft: Any) -> Report:
    return check(made(folder, "target", **(target or {})), made(folder, "draft", **draft))


def failed(report: Report) -> dict[str, str]:
    return {rule.name: rule.mend for rule in report.failed()}


LOOP = "{% for m in messages %}{{ m.content }}"
IF = "{% if add_generation_prompt %}<|user|>{% endif %}"


def kimi_with(vocab: Vocab, names: dict[int, str], folder: Path, name: str, **change: Any) -> Path:
    texts: list[str | bytes] = list(vocab.texts)
    for i, text in names.items():
        texts[i] = text
    ids = {"bos": 163584, "eos": 163586, "eot": 163586}
    how: dict[str, Any] = {
        "types": vocab.types.tolist(),
        "pre": "kimi-k2",
        "ids": ids,
        "merges": None,
        "arch": "deepseek2",
    }
    return write(folder / f"{name}.gguf", texts, **{**how, **change})
