"""The findings of a benchmark, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from statistics import fmean
from typing import Any

import numpy as np

from ...intervals import Estimate, geometric_mean
from .measures import Acceptance, Cost, each
from .prompts import Prompt
from .runs import Length, Runs, overall, speeds
from .same import Match


@dataclass(frozen=True, slots=True)
class Side:
    """One way of answering all prompts. name: of the draft, or the server's.

    draft_tokens: the length that was asked for, 0 for none, None where a server decides.
    """

    name: str
    draft_tokens: Length | None
    runs: Runs
    acceptance: Acceptance

    @property
    def tokens_per_second(self) -> float:
        return overall(self.runs)

    @property
    def prompt_ms(self) -> float:
        """Mean time until the prompt was read."""
        return fmean(run.prompt_ms for run in each(self.runs))

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "draft_tokens": self.draft_tokens,
            "tokens_per_second": _round(self.tokens_per_second),
            "prompt_ms": _round(self.prompt_ms),
            "tokens": sum(run.n for run in each(self.runs)),
        }


@dataclass(frozen=True, slots=True)
class Report:
    """plain: without a draft; draft: with one; either may be None. sweep: fixed lengths and what draft took.

    matches: for each prompt, whether both texts are the same; [] where they were not compared.
    settings: what the measurement was made with.
    """

    target: str
    prompts: Sequence[Prompt]
    plain: Side | None
    draft: Side | None
    sweep: Sequence[Side] = ()
    matches: Sequence[Match] = ()
    costs: Sequence[Cost] = ()
    draft_ms: float | None = None
    time_share: Mapping[str, float] | None = None
    length_counts: Mapping[int, int] = field(default_factory=dict)
    lengths_over_time: Sequence[float] = ()
    sources: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    advice: Sequence[str] = ()
    notes: Sequence[str] = ()

    def ratios(self, side: Side | None) -> list[float]:
        """For each prompt, how many times as fast as plain; [] without both."""
        if self.plain is None or side is None:
            return []
        pairs = zip(speeds(side.runs), speeds(self.plain.runs), strict=True)
        return [one / plain for one, plain in pairs if one > 0 and plain > 0]

    def speedup_of(self, side: Side | None) -> Estimate:
        """The geometric mean over prompts and its 95 % bootstrap interval; NaN without both."""
        return geometric_mean(np.array(self.ratios(side)))

    @property
    def speedup(self) -> Estimate:
        return self.speedup_of(self.draft)

    @property
    def speedup_by_kind(self) -> dict[str, float]:
        """The same for each kind of prompt, where there are several."""
        ratios = self.ratios(self.draft)
        kinds = list(dict.fromkeys(prompt.kind for prompt in self.prompts if prompt.kind))
        if len(kinds) < 2 or len(ratios) != len(self.prompts):
            return {}
        pairs = list(zip(self.prompts, ratios, strict=True))
        return {
            kind: geometric_mean(np.array([r for prompt, r in pairs if prompt.kind == kind])).value
            for kind in kinds
        }

    @property
    def same_text(self) -> bool | None:
        """Whether all texts are equal or part at near ties; None where that is not known."""
        verdicts = {match.verdict for match in self.matches}
        if "different" in verdicts:
            return False
        return None if not verdicts or "unknown" in verdicts else True

    @property
    def texts(self) -> dict[str, int]:
        """How many texts are equal, part at a near tie, differ, or could not be compared."""
        verdicts = [match.verdict for match in self.matches]
        return {name: verdicts.count(name) for name in ("equal", "tie", "different", "unknown")}

    def to_json(self) -> dict[str, Any]:
        """Numbers that were not measured are None, lists of them empty."""
        found = self.draft.acceptance if self.draft else Acceptance()
        speedup = self.speedup
        return {
            "target": self.target,
            "plain": self.plain.to_json() if self.plain else None,
            "draft": self.draft.to_json() if self.draft else None,
            "speedup": _round(speedup.value),
            "speedup_interval": _interval(speedup),
            "speedup_by_kind": {kind: _round(value) for kind, value in self.speedup_by_kind.items()},
            "acceptance_rate": _round(found.rate),
            "mean_acceptance_length": _round(found.mean_length),
            "acceptance_by_position": [_round(position.rate) for position in found.positions],
            "proposed_by_position": [position.proposed for position in found.positions],
            "cost_by_width": [
                {
                    "width": cost.width,
                    "rounds": cost.rounds,
                    "target_ms": _round(cost.target_ms),
                    "draft_ms": _round(cost.draft_ms),
                }
                for cost in self.costs
            ],
            "draft_ms_per_token": _round(self.draft_ms),
            "time_share": self.time_share and {name: _round(x) for name, x in self.time_share.items()},
            "draft_length_counts": {str(length): n for length, n in self.length_counts.items()},
            "draft_length_over_time": [_round(length) for length in self.lengths_over_time],
            "sources": {source: dict(counts) for source, counts in self.sources.items()},
            "same_text": self.same_text,
            "texts": self.texts,
            "sweep": [self._swept(side) for side in self.sweep],
            "prompts": [self._prompt(i, prompt) for i, prompt in enumerate(self.prompts)],
            "settings": dict(self.settings),
            "advice": list(self.advice),
            "notes": list(self.notes),
        }

    def _swept(self, side: Side) -> dict[str, Any]:
        speedup = self.speedup_of(side)
        return {
            "draft_tokens": side.draft_tokens,
            "tokens_per_second": _round(side.tokens_per_second),
            "speedup": _round(speedup.value),
            "speedup_interval": _interval(speedup),
            "acceptance_rate": _round(side.acceptance.rate),
            "mean_acceptance_length": _round(side.acceptance.mean_length),
        }

    def _prompt(self, i: int, prompt: Prompt) -> dict[str, Any]:
        sides = {"plain": self.plain, "draft": self.draft}
        found = {name: speeds(side.runs)[i] if side else None for name, side in sides.items()}
        plain, draft = found["plain"], found["draft"]
        match = self.matches[i] if self.matches else None
        return {
            "prompt": prompt.title,
            "kind": prompt.kind,
            "plain": _round(plain),
            "draft": _round(draft),
            "speedup": _round(draft / plain) if plain and draft else None,
            "text": match.verdict if match else None,
            "n_same": match.n_same if match else None,
            "gap": _round(match.gap) if match else None,
        }


def _interval(estimate: Estimate) -> list[float | None] | None:
    return None if isnan(estimate.value) else [_round(estimate.low), _round(estimate.high)]


def _round(value: float | None) -> float | None:
    """Four decimals; None for what was not measured."""
    return None if value is None or isnan(value) else round(value, 4)
