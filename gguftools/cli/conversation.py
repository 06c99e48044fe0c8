"""A conversation as data: its messages, and the JSON file that `/save` writes and `/load` reads."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import InputError, NotFound, OutputExists

SCHEMA = 1
MAX_BYTES = 64 << 20
ROLES = ("system", "user", "assistant")
_TEXTS = {"role", "content", "reasoning_content"}

Message = dict[str, str]


@dataclass(slots=True)
class Conversation:
    """`system` is "" when the template's own shall stand; `messages` alternate user and assistant."""

    system: str = ""
    messages: list[Message] = field(default_factory=list)

    def request(self) -> list[Message]:
        """What the template gets: the system message, when there is one, and all others."""
        first: list[Message] = [{"role": "system", "content": self.system}] if self.system else []
        return first + self.messages

    def save(self, path: Path, *, force: bool = False) -> None:
        """Writes the JSON file beside its goal, then renames it. Raises InputError, OutputExists."""
        if path.exists() and not force:
            raise OutputExists(
                f"{path}: exists", "/save keeps what it has not written", "choose another name"
            )
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        if not path.parent.is_dir():
            raise InputError(
                f"{path} cannot be written", f"there is no folder {path.parent}", "choose another place"
            )
        try:
            content = {"schema": SCHEMA, "messages": self.request()}
            part.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", "utf-8")
            part.replace(path)
        except OSError as error:
            what = f"{path} cannot be written"
            raise InputError(what, error.strerror or "", "choose another place") from error
        finally:
            part.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: Path) -> Conversation:
        """The conversation in the JSON file `path`. Raises NotFound, or InputError saying what is wrong."""
        messages = _messages(_read(path), path)
        system = ""
        if messages and messages[0]["role"] == "system":
            system = messages.pop(0)["content"]
        for i, message in enumerate(messages):
            expected = ("user", "assistant")[i % 2]
            if message["role"] != expected:
                raise _wrong(path, f"message {i + bool(system)} is from {message['role']}, not {expected}")
        if len(messages) % 2:
            raise _wrong(path, "the last message has no answer")
        return cls(system, messages)


def read_text(path: Path) -> str:
    """The UTF-8 text of a file of at most MAX_BYTES. Raises NotFound or InputError."""
    if path.is_dir():
        raise InputError(f"{path} is a folder", "one file is read", "give a file of it")
    if not path.exists():
        raise NotFound(f"{path}: no such file", f"looked for in {Path.cwd()}", "check the spelling")
    if path.stat().st_size > MAX_BYTES:
        raise InputError(
            f"{path}: too large", f"at most {MAX_BYTES >> 20} MiB are read", "give a smaller one"
        )
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: not a text file", f"byte {error.start} is not UTF-8", "save it as UTF-8"
        ) from None
    except OSError as error:
        why = error.strerror or str(error)
        raise InputError(f"{path}: cannot be read", why, "check its permissions") from None


def _read(path: Path) -> Any:
    try:
        return json.loads(read_text(path))
    except (json.JSONDecodeError, RecursionError) as error:
        raise _wrong(path, f"not JSON: {error}") from None


def _messages(content: Any, path: Path) -> list[Message]:
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise _wrong(path, f'no object with "schema": {SCHEMA}')
    messages = content.get("messages")
    if not isinstance(messages, list):
        raise _wrong(path, '"messages" is not a list')
    for i, message in enumerate(messages):
        if not isinstance(message, dict) or not {"role", "content"} <= message.keys() <= _TEXTS:
            raise _wrong(path, f"message {i} does not have the keys role and content")
        if not all(isinstance(value, str) for value in message.values()) or message["role"] not in ROLES:
            raise _wrong(path, f"message {i} has a role or a content that is no text")
    return messages


def _wrong(path: Path, why: str) -> InputError:
    return InputError(f"{path}: not a saved conversation", why, "load a file that /save wrote")
