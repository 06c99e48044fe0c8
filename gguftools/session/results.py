"""What a request gives: Token by token, then Result and Stats. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["stop", "length", "cancelled"]
DraftSource = Literal["", "model", "ngram", "both"]


@dataclass(frozen=True, slots=True)
class Token:
    """One token of an answer.

    text: what became certain with it (may be empty while a code point, a tag or a stop string is pending).
    from_draft: proposed by the draft and accepted by the target. thinking: text belongs to the reasoning.
    id: the target's token id; -1 for text that was held back when the last token had already been handed out.
    logprob, and top_logprobs as (id, logprob), the likeliest first: natural logarithms of what the target's
    own row gave, before penalties, truncation and temperature; None and empty where nobody asked for them.
    """

    id: int
    text: str
    from_draft: bool = False
    thinking: bool = False
    logprob: float | None = None
    top_logprobs: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Round:
    """One round: what was proposed and verified, what of it was kept, and where its time went.

    source: who proposed, "" where nothing was. Times are microseconds inside llama_decode, and of drawing.
    """

    n_draft: int
    n_accepted: int
    source: DraftSource
    target_us: int
    draft_us: int
    select_us: int


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts and times of one request, named as in llama.cpp's timings. Times are milliseconds."""

    cache_n: int = 0  # prompt tokens found in the target's cache
    prompt_n: int = 0  # prompt tokens decoded
    prompt_ms: float = 0.0
    predicted_n: int = 0  # tokens emitted, an end token included
    predicted_ms: float = 0.0
    draft_n: int = 0  # tokens proposed by the draft
    draft_n_accepted: int = 0
    ngram_n: int = 0  # of draft_n: copied from the text, not from a draft model
    ngram_n_accepted: int = 0
    verify_steps: int = 0  # rounds: target decodes after the prompt
    accept: str = ""  # the rule that kept proposals; empty for greedy requests, grammars and without a draft
    seed: int | None = None  # None for greedy requests
    sampling_source: str = ""  # where each sampling value came from
    draft_failed: str = ""  # why the draft was switched off; empty when it was not

    @property
    def acceptance_rate(self) -> float:
        """Accepted share of the drafted tokens, 0 when nothing was drafted."""
        return self.draft_n_accepted / self.draft_n if self.draft_n else 0.0

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens per verify step, 1 when there was none."""
        return 1.0 + (self.draft_n_accepted / self.verify_steps if self.verify_steps else 0.0)

    @property
    def tokens_per_second(self) -> float:
        """Emitted tokens per second after the prompt."""
        return 1000.0 * self.predicted_n / self.predicted_ms if self.predicted_ms else 0.0

    @property
    def prompt_per_second(self) -> float:
        """Decoded prompt tokens per second; 0 when the cache held them all."""
        return 1000.0 * self.prompt_n / self.prompt_ms if self.prompt_n > 1 and self.prompt_ms else 0.0

    def to_json(self) -> dict[str, object]:
        """Fields and the derived figures under their own names."""
        values: dict[str, object] = {name: getattr(self, name) for name in self.__slots__}
        for name in ("acceptance_rate", "mean_acceptance_length", "tokens_per_second", "prompt_per_second"):
            values[name] = round(getattr(self, name), 4)
        return values


@dataclass(frozen=True, slots=True)
class Result:
    """The whole answer. `text` lacks reasoning and stop string; `tokens` are all ids, end token included."""

    text: str
    reasoning: str
    tokens: tuple[int, ...]
    finish_reason: FinishReason
    stats: Stats
