"""Nats per byte and top-1 accuracy: tokens differ between vocabularies, the bytes of a text do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ....intervals import Estimate, bootstrap
from ....libllama.states import Reader
from ..rows import NewRows
from ..text import Text
from ..tokenizing import Tokenizer
from .scoring import Head, read_text


@dataclass(frozen=True, slots=True)
class Spelled:
    """A text as a vocabulary's tokens."""

    text: Text
    ids: NDArray[np.int32]  # [n], at least one
    offsets: NDArray[np.int64]  # [n + 1] in bytes

    @property
    def nbytes(self) -> int:
        return int(self.offsets[-1])


@dataclass(frozen=True, slots=True)
class Reading:
    """A text as a model has read it: `states[i]` is what `ids[i]` is predicted from."""

    spelled: Spelled
    states: NDArray[np.float32]  # [n, n_embd]


@dataclass(frozen=True, slots=True)
class Judged:
    """What a head makes of a Reading."""

    reading: Reading
    nats: NDArray[np.float32]  # [n]
    top: NDArray[np.int32]  # [n] the id that it gives most

    @property
    def right(self) -> int:
        """Tokens that were given most."""
        return int(np.count_nonzero(self.top == self.reading.spelled.ids))


def spell_all(tokenizer: Tokenizer, texts: Sequence[Text], most: int) -> list[Spelled]:
    """Texts as tokens, at most `most` of each; those that the tokens do not spell are left out."""
    found = [(text, tokenizer.spell(text.text)) for text in texts]
    return [
        Spelled(text, spelled[0][:most], spelled[1][: most + 1])
        for text, spelled in found
        if spelled is not None and len(spelled[0])
    ]


def read_all(
    reader: Reader,
    rows: NewRows,
    texts: Sequence[Spelled],
    start: NDArray[np.float32],
    tell: Callable[[float], None],
) -> list[Reading]:
    """The readings of texts, each after the rows `start` [k, n_embd]."""
    found = []
    for i, text in enumerate(texts):
        found.append(Reading(text, read_text(reader, rows, text.ids, start)))
        tell((i + 1) / len(texts))
    return found


def judge(readings: Sequence[Reading], head: Head) -> list[Judged]:
    """All readings, scored together."""
    if not readings:
        return []
    states = np.concatenate([reading.states for reading in readings])
    nats, top = head.judge(states, np.concatenate([reading.spelled.ids for reading in readings]))
    cuts = np.cumsum([len(reading.spelled.ids) for reading in readings])[:-1]
    parts = zip(readings, np.split(nats, cuts), np.split(top, cuts), strict=True)
    return [Judged(*part) for part in parts]


def nats_per_byte(judged: Sequence[Judged]) -> float:
    """NaN without texts."""
    nbytes = sum(one.reading.spelled.nbytes for one in judged)
    return sum(float(one.nats.sum()) for one in judged) / nbytes if nbytes else float("nan")


def accuracy(judged: Sequence[Judged]) -> float:
    """Share of tokens that were given most. Not comparable between vocabularies."""
    n_tokens = sum(len(one.nats) for one in judged)
    return sum(one.right for one in judged) / n_tokens if n_tokens else float("nan")


def gap(draft: Sequence[Judged], baseline: Sequence[Judged], donor: Sequence[Judged]) -> Estimate:
    """(draft - donor) / (baseline - donor) in nats, over the same texts in the same order."""
    sums = [np.array([one.nats.sum() for one in side], float) for side in (draft, baseline, donor)]
    ours, theirs = sums[0] - sums[2], sums[1] - sums[2]
    return bootstrap(len(ours), lambda w: (w @ ours) / (w @ theirs))
