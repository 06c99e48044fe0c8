"""Text of the user's own to calibrate on: a file or a folder of UTF-8 text, source code, or conversations."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...errors import InputError, NotFound
from .text import Text

MIN_CHARS = 2_000
MAX_BYTES = 64_000_000  # in all; what lies beyond is not read
GOOD_CHARS = "100,000 characters fill the usual pass"
FIELDS = ("text", "turns", "messages", "conversations")
UTF_16 = (b"\xff\xfe", b"\xfe\xff")

log = logging.getLogger("gguftools.verbs.transplant")


def user_texts(path: Path) -> list[Text]:
    """One Text per file. A folder gives all its text files, in the order of their names, without hidden ones.

    Lines of a .jsonl hold {"text": …}, or {"turns": […]}, {"messages": […]} or {"conversations": […]} of
    texts or of objects with "content" or "value". At most MAX_BYTES are read; a warning says so.
    Raises NotFound, InputError (not UTF-8, binary, no such field, below MIN_CHARS characters in all).
    """
    if not path.exists():
        raise NotFound(f"there is no {path}", "a text to calibrate on was looked for there", "check the name")
    texts = list(_of_folder(path)) if path.is_dir() else [_of_file(path, MAX_BYTES)]
    n_chars = sum(len(text.text) for text in texts)
    if n_chars < MIN_CHARS:
        characters = f"{n_chars:,} character{'s' * (n_chars > 1)}"
        what = f"{path} holds {characters if n_chars else 'no text'}"
        why = f"calibration needs {MIN_CHARS:,} or more; {GOOD_CHARS}"
        raise InputError(what, why, 'give more text, or "auto" for the text that comes with gguftools')
    return texts


def _of_folder(folder: Path) -> Iterator[Text]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    room, skipped = MAX_BYTES, []
    for path in files:
        if any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        if room < 1:
            log.warning("only the first %d MB of %s are read", MAX_BYTES // 1_000_000, folder)
            return
        if _is_binary(path):
            skipped.append(path.name)
            continue
        text = _of_file(path, room)
        room -= len(text.text.encode())
        if text.text:
            yield text
    if skipped:
        more = f" and {len(skipped) - 1} more" if len(skipped) > 1 else ""
        log.warning("skipped in %s, as no text: %s%s", folder, skipped[0], more)


def _is_binary(path: Path) -> bool:
    """Whether its first 8 KB hold a zero byte or are no UTF-8, as git decides it."""
    with _opened(path) as file:
        data = file.read(8192)
    try:
        _decoded(data, path, len(data) == 8192)
    except InputError:
        return True
    return False


def _of_file(path: Path, room: int) -> Text:
    with _opened(path) as file:
        data = file.read(room + 1)
    is_cut = len(data) > room
    if is_cut:
        data = data[: data.rfind(b"\n", 0, room) + 1] or data[:room]
        log.warning("only the first %.1f MB of %s are read", len(data) / 1e6, path)
    text = _decoded(data, path, is_cut)
    if path.suffix.lower() == ".jsonl":
        text = "\n\n".join(_records(text, path))
    # Models write \n alone. A lone surrogate, which only JSON can spell, has no UTF-8.
    text = text.replace("\r\n", "\n").replace("\r", "\n").encode("utf-8", "replace").decode()
    return Text("user", str(path), text.strip())


def _opened(path: Path) -> Any:
    try:
        return path.open("rb")
    except OSError as error:
        raise InputError(
            f"{path} cannot be read", error.strerror or str(error), "check its rights"
        ) from error


def _decoded(data: bytes, path: Path, is_cut: bool) -> str:
    """is_cut: the data may end within a code point."""
    if data.startswith(UTF_16):
        hint = f"convert it: iconv -f UTF-16 -t UTF-8 {path.name} > utf8.txt"
        raise InputError(f"{path} is UTF-16", "text to calibrate on must be UTF-8", hint)
    if b"\0" in data:
        why = f"it holds a zero byte at {data.index(0)}"
        raise InputError(f"{path} is no text", why, "give a UTF-8 text file, .jsonl, or a folder of them")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if is_cut and error.start >= len(data) - 3 and error.reason == "unexpected end of data":
            return data[: error.start].decode("utf-8-sig")
        hint = "save it as UTF-8; for Western text: iconv -f CP1252 -t UTF-8 OLD > NEW"
        raise InputError(f"{path} is not UTF-8", f"byte {error.start}: {error.reason}", hint) from error


def _records(text: str, path: Path) -> Iterator[str]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield from _of_record(json.loads(line))
            except (ValueError, RecursionError) as error:
                why = str(error) or type(error).__name__
                hint = 'each line is one object: {"text": "…"}, or {"messages": [{"content": "…"}]}'
                raise InputError(f"{path}: line {number} cannot be used", why, hint) from error


def _of_record(record: Any) -> Iterator[str]:
    """The texts of one object. Raises ValueError, which says what is missing."""
    field = next((name for name in FIELDS if isinstance(record, dict) and record.get(name)), None)
    if field is None:
        raise ValueError(f"it has none of the fields {', '.join(FIELDS)}")
    value = record[field]
    for turn in value if isinstance(value, list) else [value]:
        if isinstance(turn, dict):
            turn = turn.get("content", turn.get("value"))
        # A message may consist of parts, of which only some are text.
        for part in turn if isinstance(turn, list) else [turn]:
            said = part.get("text") if isinstance(part, dict) else part
            if isinstance(said, str):
                yield said
