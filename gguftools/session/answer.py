"""Tokens become an answer: bytes, code points, reasoning, stop strings, in this order."""

from __future__ import annotations

from collections.abc import Sequence

from .results import Token
from .text import StopStrings, Utf8Decoder
from .thinking import ThinkSplitter


class Answer:
    """Takes one token after the other and says what text became certain.

    Stop strings are looked for in the answer, not in the reasoning. A token carries text of one kind; what
    follows of the other kind waits for the next token.
    """

    def __init__(self, stops: Sequence[str], thinking: bool = False) -> None:
        self.ids: list[int] = []
        self.stopped = False
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._pending: list[tuple[str, bool]] = []
        self._decoder = Utf8Decoder()
        self._splitter = ThinkSplitter(thinking)
        self._stops = StopStrings(stops)

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def reasoning(self) -> str:
        return "".join(self._reasoning).strip()

    def push(
        self, token: int, piece: bytes, from_draft: bool, is_open_tag: bool = False, last: bool = False
    ) -> list[Token]:
        """The token with its text; the last one, also by a stop string, with all that was held back."""
        self.ids.append(token)
        self._take(self._splitter.push(self._decoder.push(piece), is_open_tag))
        if last and not self.stopped:
            self._drain()
        texts = self._runs() or [("", self._splitter.thinking)]
        if not (last or self.stopped):
            self._pending = texts[1:]
            texts = texts[:1]
        ids = [token, *[-1] * (len(texts) - 1)]
        return [Token(i, text, from_draft, kind) for i, (text, kind) in zip(ids, texts, strict=True)]

    def finish(self) -> list[Token]:
        """What was held back when a request was cut short; an unfinished code point is dropped."""
        self._decoder.drop()
        self._drain()
        return [Token(-1, text, False, kind) for text, kind in self._runs()]

    def _drain(self) -> None:
        self._take(self._splitter.push(self._decoder.flush()))
        self._take(self._splitter.flush())
        if not self.stopped:
            self._add(self._stops.flush(), False)

    def _take(self, pieces: list[tuple[str, bool]]) -> None:
        for text, thinking in pieces:
            if self.stopped:
                return
            if not thinking:
                text, self.stopped = self._stops.push(text)
            self._add(text, thinking)

    def _add(self, text: str, thinking: bool) -> None:
        if text:
            (self._reasoning if thinking else self._text).append(text)
            self._pending.append((text, thinking))

    def _runs(self) -> list[tuple[str, bool]]:
        """Takes what is pending, neighbours of one kind joined."""
        runs: list[tuple[str, bool]] = []
        for text, kind in self._pending:
            if runs and runs[-1][1] == kind:
                runs[-1] = (runs[-1][0] + text, kind)
            else:
                runs.append((text, kind))
        self._pending = []
        return runs
