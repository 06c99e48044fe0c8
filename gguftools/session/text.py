"""Bytes become text: whole code points only, and nothing that may still turn into a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from ..errors import InputError

MAX_STOPS = 64
MAX_STOP_CHARS = 4096


class Utf8Decoder:
    """Incremental UTF-8: holds back up to 3 bytes of a code point, replaces what is invalid by U+FFFD."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, data: bytes) -> str:
        return self._decoder.decode(data)

    def drop(self) -> None:
        """Forgets an unfinished code point."""
        self._decoder.reset()

    def flush(self) -> str:
        """What is left, an unfinished code point as U+FFFD."""
        return self._decoder.decode(b"", final=True)


class StopStrings:
    """Holds back the longest suffix that may begin a stop string.

    push(text) -> (text that is safe to show, whether a stop string was completed). The stop string itself and
    what follows it are never shown. Of several stop strings the one that is complete first wins, of those the
    longest: so it does not matter where token borders are.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""

    def push(self, text: str) -> tuple[str, bool]:
        text = self._held + text
        found = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self._held = ""
            return text[: min(found)[1]], True
        keep = max((overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep], False

    def flush(self) -> str:
        """What was held back: no stop string will come of it."""
        text, self._held = self._held, ""
        return text


def check_stops(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    """The stop strings as a tuple. Raises InputError for an empty one or unreasonable sizes."""
    stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if not all(isinstance(text, str) and text for text in stops):
        raise InputError("a stop string is empty or no text", "it would end every answer at once")
    if len(stops) > MAX_STOPS or any(len(text) > MAX_STOP_CHARS for text in stops):
        raise InputError(
            "too many or too long stop strings",
            f"at most {MAX_STOPS} of at most {MAX_STOP_CHARS:,} characters",
        )
    return stops


def overlap(text: str, stop: str) -> int:
    """Length of the longest suffix of `text` that is a proper prefix of `stop`: ("ab<", "<|") -> 1."""
    for size in range(min(len(text), len(stop) - 1), 0, -1):
        if stop.startswith(text[-size:]):
            return size
    return 0
