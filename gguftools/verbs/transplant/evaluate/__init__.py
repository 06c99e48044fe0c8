"""Measures of a draft beside the known tool's rule and the donor itself, made without writing a draft.

All rows are fed to the donor as input rows; its final states times the head rows are the scores.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ....errors import TemplateError
from ....intervals import ratio
from ....vocab import Vocab
from ..align import Alignment, Kind
from ..donor import Donor, Progress
from ..draft import teller
from ..rows import NewRows
from ..special_map import Mapped
from ..spelling import ordinary
from ..text import Text
from . import turns
from .agreement import Agreement, Place, compare, resolve, sample
from .baseline import BaselineRows
from .losses import Judged, Spelled, accuracy, gap, judge, nats_per_byte
from .marginal import FLOOR
from .results import Evaluation as Evaluation
from .results import KindMeasures, TurnEnds
from .scoring import Head, OwnRows
from .setup import Setup
from .texts import KINDS, answers, held_out

SEED = 3
DRAFTS = ("draft", "baseline")

Tell = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured: bytes of each kind, places of each for the marginal, and answers."""

    nbytes: int = 1500
    places: int = 24
    floor: float = 2 * FLOOR
    answers: int = 24


def evaluate(
    donor: Donor,
    target: Vocab,
    alignment: Alignment,
    mapped: Sequence[Mapped],
    rows: NewRows,
    *,
    size: Size = Size(),
    given: Mapping[str, Sequence[Text]] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Measures `rows` on the package's texts, which no draft is calibrated on, or on `given` ones by kind.

    Raises LoadAborted when progress("evaluate", fraction) returns False; LoadError; Unsupported for a
    vocabulary that cannot encode.
    """
    began, tell = time.perf_counter(), teller(progress, "evaluate")
    tell(0.0)
    texts = given or {kind: held_out(kind, size.nbytes) for kind in KINDS}
    with Setup.open(donor, target, alignment, mapped, threads) as setup:
        found = _Found(setup, size)
        found.spell(texts)
        found.donor(_part(tell, 0.0, 0.6))
        found.draft("draft", rows, _part(tell, 0.6, 0.8))
        found.draft("baseline", BaselineRows(target, donor, setup.theirs), _part(tell, 0.8, 1.0))
        return found.evaluation(time.perf_counter() - began)


def _part(tell: Tell, lo: float, hi: float) -> Tell:
    return lambda fraction: tell(lo + (hi - lo) * fraction)


@dataclass(slots=True)
class _Found:
    """What was measured so far. One head is in memory at a time."""

    setup: Setup
    size: Size
    ours: dict[str, list[Spelled]] = field(default_factory=dict)
    theirs: dict[str, list[Spelled]] = field(default_factory=dict)
    judged: dict[tuple[str, str], list[Judged]] = field(default_factory=dict)  # (side, kind)
    places: dict[str, list[Place]] = field(default_factory=dict)
    agreement: dict[tuple[str, str], Agreement] = field(default_factory=dict)
    ends: dict[str, list[bool]] = field(default_factory=dict)  # side -> whether each answer is ended

    def spell(self, texts: Mapping[str, Sequence[Text]]) -> None:
        """Texts that either vocabulary does not spell are left out for both."""
        for kind, some in texts.items():
            ours, theirs = (
                {one.text.name: one for one in self.setup.spell(tokenizer, some)}
                for tokenizer in (self.setup.ours, self.setup.theirs)
            )
            names = [text.name for text in some if text.name in ours and text.name in theirs]
            self.ours[kind] = [ours[name] for name in names]
            self.theirs[kind] = [theirs[name] for name in names]

    def donor(self, tell: Tell) -> None:
        """The donor reading its own tokens, and its marginals over the target's."""
        rows = OwnRows(self.setup.donor)
        head = Head(rows)
        self._read("donor", rows, head, self.theirs, _part(tell, 0.0, 0.3))
        walker, n = self.setup.walker(head, self.size.floor), len(self.ours)
        for i, (kind, some) in enumerate(self.ours.items()):
            share = _part(tell, 0.3 + 0.7 * i / n, 0.3 + 0.7 * (i + 1) / n)
            self.places[kind] = resolve(walker, some, sample(some, self.size.places, SEED), share)

    def draft(self, side: str, rows: NewRows, tell: Tell) -> None:
        """A draft reading the target's tokens; after `donor`."""
        head = Head(rows)
        self._read(side, rows, head, self.ours, tell)
        for kind, places in self.places.items():
            readings = [one.reading for one in self.judged[side, kind]]
            self.agreement[side, kind] = compare(places, readings, head)

    def _read(
        self, side: str, rows: NewRows, head: Head, texts: Mapping[str, list[Spelled]], tell: Tell
    ) -> None:
        for i, (kind, some) in enumerate(texts.items()):
            readings = self.setup.read(rows, some, _part(tell, i / len(texts), (i + 1) / len(texts)))
            self.judged[side, kind] = judge(readings, head)
        tokenizer = self.setup.theirs if side == "donor" else self.setup.ours
        try:
            asked = turns.written(tokenizer, answers()[: self.size.answers])
        except TemplateError:
            asked = None
        if asked is not None:
            found = turns.tops(self.setup.reader, rows, head, asked)
            self.ends[side] = (found == asked.end).tolist()

    def evaluation(self, seconds: float) -> Evaluation:
        control = ~ordinary(self.setup.target)
        none = np.empty(0, np.int32)
        tops = {
            side: np.concatenate([none, *(one.top for kind in self.ours for one in self.judged[side, kind])])
            for side in DRAFTS
        }
        return Evaluation(
            {kind: self._kind(kind) for kind in self.ours},
            self._turn_ends(),
            len(tops["draft"]),
            {side: int(np.count_nonzero(control[top.astype(np.intp)])) for side, top in tops.items()},
            seconds,
        )

    def _turn_ends(self) -> TurnEnds | None:
        if len(self.ends) < 3:
            return None
        asked = self.ends["donor"]
        both = {
            side: sum(theirs and ours for theirs, ours in zip(asked, self.ends[side], strict=True))
            for side in DRAFTS
        }
        return TurnEnds(len(asked), sum(asked), both)

    def _kind(self, kind: str) -> KindMeasures:
        sides = {side: self.judged[side, kind] for side in ("donor", *DRAFTS)}
        drafts = {side: self.agreement[side, kind] for side in DRAFTS}
        places = self.places[kind]
        several = [place.marginal.top for place in places]
        kinds = self.setup.alignment.kind
        multi = np.array([top >= 0 and kinds[top] == Kind.PIECES for top in several], bool)
        ours, theirs = drafts["draft"], drafts["baseline"]
        return KindMeasures(
            texts=len(self.ours[kind]),
            nbytes=sum(one.nbytes for one in self.ours[kind]),
            nats_per_byte={side: nats_per_byte(judged) for side, judged in sides.items()},
            accuracy={side: accuracy(judged) for side, judged in sides.items()},
            gap=gap(sides["draft"], sides["baseline"], sides["donor"]),
            places=len(places),
            left_over=float(np.mean([place.marginal.left_over for place in places] or [np.nan])),
            agreement={side: ratio(one.agrees) for side, one in drafts.items()},
            agreement_gain=ratio(ours.agrees.astype(float) - theirs.agrees),
            overlap={side: ratio(one.overlap) for side, one in drafts.items()},
            overlap_gain=ratio(ours.overlap - theirs.overlap),
            multi_wanted=int(np.count_nonzero(multi)),
            multi_hit={side: int(np.count_nonzero(one.agrees & multi)) for side, one in drafts.items()},
        )
