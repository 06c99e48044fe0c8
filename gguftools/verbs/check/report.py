"""What `check` returns: rules with their outcome, differing ids, the verdict and advice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Verdict = Literal["identical", "compatible", "alignable", "incompatible", "ok", "faulty"]
# refused: llama.cpp rejects the pair; fatal: it cannot load a file or ends the process; wrong: bad results;
# note: worth knowing.
Level = Literal["refused", "fatal", "wrong", "note"]

USABLE = ("identical", "compatible", "alignable")
_RANK: Mapping[str, int] = {verdict: i for i, verdict in enumerate((*USABLE, "incompatible"))}


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that was looked at. `target` and `draft` are the values of both (draft None: one file)."""

    name: str
    source: Literal["llama.cpp", "gguftools"]
    passed: bool
    target: str
    draft: str | None = None
    level: Level = "note"
    effect: str = ""  # what happens because it failed
    mend: str = ""  # one a line: keys with their values, or what else to do

    def to_json(self) -> dict[str, Any]:
        """Its fields; the level of one that passed is null."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return {**fields, "level": None if self.passed else self.level}


@dataclass(frozen=True, slots=True)
class Difference:
    """An id whose text differs, shown as text; None where a vocabulary ends before it."""

    id: int
    target: str | None
    draft: str | None

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, "target": self.target, "draft": self.draft}


@dataclass(frozen=True, slots=True, eq=False)
class Exchange:
    """Which ids mean the same token in both vocabularies."""

    to_draft: NDArray[np.int32]  # [n_target]: the id that is fed to the draft for a target's id
    to_target: NDArray[np.int32]  # [n_draft]: the target's id of a drafted id; -1: never drafted


@dataclass(frozen=True, slots=True)
class Report:
    """The findings about a target and a draft, or (draft None) about one file."""

    verdict: Verdict
    target: str
    draft: str | None
    rules: tuple[Rule, ...]
    differences: tuple[Difference, ...]  # the first ones
    n_differences: int  # ids whose texts differ, those that only one side has included
    shared_fraction: float  # of the target's tokens, found byte for byte in the draft
    advice: tuple[str, ...]
    unshared: tuple[int, ...] = field(default=(), repr=False)  # target ids that are never drafted
    exchange: Exchange | None = field(default=None, repr=False, compare=False)  # None: ids are the same

    @property
    def usable(self) -> bool:
        """Whether our loop runs the pair; for one file: whether libllama can load it."""
        if self.draft is None:
            return not any(rule.level == "fatal" for rule in self.failed())
        return self.verdict in USABLE and not any(rule.name == "draft kind" for rule in self.failed())

    @property
    def unreadable(self) -> bool:
        """Whether the draft could not be read, so that nothing else is known."""
        return any(rule.name == "readable" for rule in self.failed())

    def failed(self) -> tuple[Rule, ...]:
        """The rules that did not pass."""
        return tuple(rule for rule in self.rules if not rule.passed)

    def rank(self) -> tuple[int, int, float, int]:
        """Sorts several drafts, best first."""
        order = _RANK.get(self.verdict, 0)
        return (not self.usable, order, -self.shared_fraction, len(self.failed()))

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "target": self.target,
            "draft": self.draft,
            "usable": self.usable,
            "rules": [rule.to_json() for rule in self.rules],
            "differences": [difference.to_json() for difference in self.differences],
            "n_differences": self.n_differences,
            "shared_fraction": self.shared_fraction,
            "advice": list(self.advice),
        }
