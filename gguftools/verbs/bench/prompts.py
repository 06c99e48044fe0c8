"""The prompts of a benchmark: our own, or those of a file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ... import recipes
from ...errors import FormatError, InputError, NotFound

MAX_BYTES = 64 << 20

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Prompt:
    """messages: {"role", "content"} each. kind: results are also given per kind; may be empty."""

    messages: tuple[Message, ...]
    kind: str = ""

    @property
    def text(self) -> str:
        """The content of all messages, as a model without a chat template gets it."""
        return "\n\n".join(str(message.get("content") or "") for message in self.messages)

    @property
    def title(self) -> str:
        """Its last message in a few words."""
        words = str(self.messages[-1].get("content") or "").split()
        line = " ".join(words)
        return line if len(line) <= 48 else line[:47].rstrip() + "…"


def asked(text: str, kind: str = "") -> Prompt:
    """A prompt of one message."""
    return Prompt(({"role": "user", "content": text},), kind)


def own() -> list[Prompt]:
    """Eight prompts, half code, half prose."""
    return [asked(entry["text"].strip(), entry["kind"]) for entry in recipes.load("bench")["prompt"]]


def read(path: Path) -> list[Prompt]:
    """The prompts of a file: JSON lines where its name ends with .jsonl, else a prompt a line.

    A JSON line holds {"turns": [text, …]} (the first is asked), {"prompt": text} or {"messages": […]}, and
    maybe a "kind" (or "category"). Raises NotFound, FormatError, InputError (no prompt in it).
    """
    lines = _text(path).splitlines()
    is_json = path.suffix.lower() in (".jsonl", ".ndjson")
    found = [
        _from_json(path, number, line) if is_json else asked(line.strip())
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]
    if not found:
        raise InputError(f"{path} holds no prompt", "a prompt a line, or JSON lines in a file named *.jsonl")
    return found


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise NotFound(f"{path}: no such file", "it is the one of --prompts") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read", error.strerror or "", "give a file of prompts") from error
    if len(data) > MAX_BYTES:
        raise InputError(f"{path} is larger than {MAX_BYTES >> 20} MB", "it should hold prompts, one a line")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FormatError(path, error.start, "it is not UTF-8", "save it as UTF-8") from None


def _from_json(path: Path, number: int, line: str) -> Prompt:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _wrong(path, number, f"it is no JSON ({type(error).__name__})") from None
    if not isinstance(entry, dict):
        raise _wrong(path, number, "it is no JSON object")
    kind = entry.get("kind") or entry.get("category")
    kind = kind if isinstance(kind, str) else ""
    if isinstance(messages := entry.get("messages"), list):
        return Prompt(_checked(path, number, messages), kind)
    turns = entry.get("turns")
    text = turns[0] if isinstance(turns, list) and turns else entry.get("prompt")
    if not isinstance(text, str) or not text.strip():
        raise _wrong(path, number, 'it has no text under "turns", "prompt" or "messages"')
    return asked(text, kind)


def _checked(path: Path, number: int, messages: Sequence[Any]) -> tuple[Message, ...]:
    for message in messages:
        if not isinstance(message, dict) or not all(
            isinstance(message.get(name), str) for name in ("role", "content")
        ):
            raise _wrong(path, number, 'a message has no "role" and "content" that are texts')
    if not messages:
        raise _wrong(path, number, '"messages" is empty')
    return tuple(messages)


def _wrong(path: Path, number: int, why: str) -> FormatError:
    return FormatError(path, None, f"line {number}: {why}", 'write {"prompt": "TEXT"}, one a line')
