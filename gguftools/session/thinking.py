"""Keeps reasoning apart from the answer: <think>…</think> at the beginning of what a model writes."""

from __future__ import annotations

from .text import overlap

OPEN = "<think>"
CLOSE = "</think>"


class ThinkSplitter:
    """push(text) -> pieces (text, is it reasoning). The tags and the white space around them are dropped.

    Reasoning begins where the prompt ended inside it (`inside`), where the output begins with the tag, or at
    the model's own tag token; a tag written out later is ordinary text. A tag that has begun is held back.
    """

    def __init__(self, inside: bool = False) -> None:
        self._state = "lead" if inside else "start"  # start -> (lead -> think -> gap ->) answer
        self._held = ""

    @property
    def thinking(self) -> bool:
        return self._state in ("lead", "think")

    def push(self, text: str, is_open_tag: bool = False) -> list[tuple[str, bool]]:
        if is_open_tag and self._state in ("gap", "answer"):
            self._state, text = "lead", text.removeprefix(OPEN)
        self._held += text
        pieces: list[tuple[str, bool]] = []
        while step := getattr(self, "_" + self._state)():
            pieces += step
        return [piece for piece in pieces if piece[0]]

    def flush(self) -> list[tuple[str, bool]]:
        """What was held back."""
        text, self._held = self._held, ""
        if self._state == "gap" or (self._state == "lead" and not text.strip()):
            return []
        return [(text, self.thinking)] if text else []

    # Each state takes what it can from _held and returns its pieces; an empty list says that it waits for
    # more. A state that only hands over to the next one returns one empty piece.

    def _start(self) -> list[tuple[str, bool]]:
        text = self._held.lstrip()
        if text.startswith(OPEN):
            self._state, self._held = "lead", text[len(OPEN) :]
        elif OPEN.startswith(text):
            return []
        else:
            self._state = "answer"
        return [("", False)]

    def _lead(self) -> list[tuple[str, bool]]:
        self._held = self._held.lstrip()
        if not self._held:
            return []
        self._state = "think"
        return [("", True)]

    def _think(self) -> list[tuple[str, bool]]:
        text, tag, rest = self._held.partition(CLOSE)
        if tag:
            self._state, self._held = "gap", rest
            return [(text, True)]
        keep = overlap(text, CLOSE)
        self._held = text[len(text) - keep :]
        return [(text[: len(text) - keep], True)] if keep < len(text) else []

    def _gap(self) -> list[tuple[str, bool]]:
        self._held = self._held.lstrip()
        if not self._held:
            return []
        self._state = "answer"
        return [("", False)]

    def _answer(self) -> list[tuple[str, bool]]:
        text, self._held = self._held, ""
        return [(text, False)] if text else []
