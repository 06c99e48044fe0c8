"""Session: one conversation's contexts, one request at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .stream import Stream


class Session:
    """Made by Model.session(). generate() and chat() give a Stream; a second call while one runs raises SessionBusy.

    Sampling values of None take the model's own defaults (see Model.sampling).
    """

    n_ctx: int
    draft_n_ctx: int
    has_draft: bool

    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repeat_penalty: float | None = None,
        frequency_penalty: float | None = None,
        presence_penalty: float | None = None,
        repeat_last_n: int | None = None,
        seed: int | None = None,
        grammar: str | None = None,
        stop: str | Sequence[str] | None = None,
        draft_tokens: int | None = None,  # None: 5; 0: without the draft
        draft_p_min: float | None = None,  # None: 0.5
        parse_special: bool = False,  # whether control tokens written out in `prompt` count as such
    ) -> Stream: ...

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],  # {"role", "content", maybe "reasoning_content", "tool_calls"}
        *,
        think: bool | None = None,  # None: as the template has it
        tools: Sequence[Mapping[str, Any]] | None = None,
        **options: Any,  # as generate's
    ) -> Stream: ...

    def close(self) -> None: ...
    def __enter__(self) -> Session: ...
