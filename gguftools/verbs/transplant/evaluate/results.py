"""What `evaluate` returns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ....intervals import Estimate


@dataclass(frozen=True, slots=True)
class KindMeasures:
    """Of one kind of text; mappings are by side: "donor", "draft", "baseline".

    gap: (draft - donor) / (baseline - donor) in nats. agreement (top-1) and overlap (Σ min) are with the
    exact marginal, of which the share `left_over` is not resolved; a gain is draft - baseline at the same
    places.
    multi_wanted: places where the marginal's top has several donor tokens; multi_hit: where it is proposed.
    """

    texts: int
    nbytes: int
    nats_per_byte: Mapping[str, float]
    accuracy: Mapping[str, float]
    gap: Estimate
    places: int
    left_over: float
    agreement: Mapping[str, Estimate]
    agreement_gain: Estimate
    overlap: Mapping[str, Estimate]
    overlap_gain: Estimate
    multi_wanted: int
    multi_hit: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TurnEnds:
    """donor_ends: answers after which the donor's top is its own end of turn; ends: of these, where a side's
    top is the target's."""

    answers: int
    donor_ends: int
    ends: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Measures of a draft. control: tops in plain text that are no ordinary tokens, of `positions` tokens.

    turn_ends is None where one of the two vocabularies has no template.
    """

    kinds: Mapping[str, KindMeasures]
    turn_ends: TurnEnds | None
    positions: int
    control: Mapping[str, int]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """The same as plain JSON values; null for what could not be measured."""
        found: dict[str, Any] = _finite(asdict(self))
        return found


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
