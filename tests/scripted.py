"""A chat's session without a model: it answers by a script."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gguftools.cli.commands import Chat
from gguftools.session.results import Result, Stats, Token


class ScriptedStream:
    """Gives its tokens one by one; `cancel` ends it early, as the real one does."""

    def __init__(self, tokens: Sequence[Token], on_token: Callable[[], None] = lambda: None) -> None:
        self.tokens = list(tokens)
        self.given: list[Token] = []
        self.cancelled = False
        self.on_token = on_token

    def __enter__(self) -> ScriptedStream:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __iter__(self) -> Iterator[Token]:
        for token in self.tokens:
            if self.cancelled:
                return
            self.given.append(token)
            yield token
            self.on_token()

    def cancel(self) -> None:
        self.cancelled = True

    def result(self) -> Result:
        text = "".join(token.text for token in self.given if not token.thinking)
        reasoning = "".join(token.text for token in self.given if token.thinking)
        ids = tuple(token.id for token in self.given)
        stats = Stats(
            predicted_n=len(ids), predicted_ms=100.0 * len(ids), draft_n=4, draft_n_accepted=3, verify_steps=1
        )
        return Result(text, reasoning, ids, "cancelled" if self.cancelled else "stop", stats)


class ScriptedSession:
    """Answers each chat with the next script and remembers what it was asked."""

    has_draft = True
    before: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self, *answers: str | Exception | ScriptedStream) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[list[Mapping[str, Any]], dict[str, Any]]] = []

    def chat(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> ScriptedStream:
        self.before()
        self.asked.append(([dict(message) for message in messages], options))
        answer = self.answers.pop(0) if self.answers else "ok"
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, ScriptedStream):
            return answer
        return ScriptedStream([Token(i, part) for i, part in enumerate(re.findall(r"\S+\s*", answer))])


def scripted(*answers: str | Exception | ScriptedStream, **request: Any) -> tuple[Chat, ScriptedSession]:
    session = ScriptedSession(*answers)
    return Chat(session, request), session  # type: ignore[arg-type]
