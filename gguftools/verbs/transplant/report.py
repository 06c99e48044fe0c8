"""What `transplant` returns, and writes beside the draft as OUT.transplant.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .special_map import Mapped

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class TransplantReport:
    """A draft and how it came to be.

    `classes`: ids of the target by how the donor spells them (exact, pieces, special, reserved,
    unreachable), `draftable` those that may be drafted. `ties`: pairs of these with the same score for every
    state. `coverage`: share of the calibration text's tokens by class, None without one. `seconds` of the
    whole; `peak_bytes` of memory of this process so far, None where the system does not say it.
    """

    out: str | None
    hf_out: str | None
    nbytes: int  # of the GGUF; of --hf-out alone, of its weights
    donor: str
    target: str
    architecture: str
    n_tokens: int
    classes: Mapping[str, int]
    draftable: int
    ties: int
    coverage: Mapping[str, float] | None
    special_map: tuple[Mapped, ...]
    verdict: str
    evaluation: Mapping[str, Any] | None
    options: Mapping[str, Any]
    digests: Mapping[str, str]
    seconds: float
    peak_bytes: int | None

    def to_json(self) -> dict[str, Any]:
        """The same as plain JSON values."""
        return {"schema": SCHEMA, **asdict(self), "special_map": [asdict(one) for one in self.special_map]}
