"""How a request drafts: how many tokens, from which sources, by which rule of acceptance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from .. import _native
from ..errors import InputError
from . import limits

Length = int | Literal["auto"]
Accept = Literal["auto", "match", "coupled", "reject"]

P_MIN = 0.5  # of a fixed length; what pays is AUTO's own affair
ENOUGH = 100  # places that the rules must have been compared at
BETTER = 0.02  # share of the proposals by which another rule must accept more than coupled


@dataclass(frozen=True, slots=True)
class Drafting:
    """length: proposals per round, AUTO for what pays. model, ngram: the sources. compares: see accept.h."""

    length: int
    p_min: float
    model: bool
    ngram: bool
    rule: str
    compares: bool

    @property
    def is_auto(self) -> bool:
        return self.length == _native.AUTO and (self.model or self.ngram)


def drafting(
    length: Length | None,
    p_min: float | None,
    accept: Accept | None,
    *,
    model: bool,
    ngram: bool,
    draws: bool,
    scores: tuple[int, Mapping[str, float]],
) -> Drafting:
    """What the arguments of a request mean. model, ngram: what the session has. draws: its chain is ours, and
    the temperature above 0. scores: what the engine has compared so far. Raises InputError.
    """
    auto = length is None or length == "auto"
    if not auto:
        limits.check("draft_tokens", length)
    if p_min is not None:
        limits.check("draft_p_min", p_min)
    if accept is not None and accept not in get_args(Accept):
        raise InputError(f"accept is {accept!r}", f"it is one of {', '.join(get_args(Accept))}")
    on = auto or length != 0
    return Drafting(
        length=_native.AUTO if auto else int(length or 0),
        p_min=(0.0 if auto else P_MIN) if p_min is None else p_min,
        model=model and on,
        ngram=ngram and on and (auto or not model),  # a fixed length is the model's
        rule=_rule(accept, *scores) if draws else "match",
        compares=draws and model and on and accept == "auto",
    )


def _rule(accept: Accept | None, places: int, shares: Mapping[str, float]) -> str:
    """coupled keeps the text of a seed whatever drafts, so another must be clearly better."""
    if accept != "auto":
        return accept or "coupled"
    best = max(shares, key=lambda rule: shares[rule])
    clear = places >= ENOUGH and shares[best] > shares["coupled"] + BETTER
    return best if clear else "coupled"
