"""The donor's distribution over the target's tokens: what the draft's should be.

At a place in a text, M(t) is the probability that what the donor writes next begins, in the target's
tokenization, with t. The donor reads the text before as its tokenizer spells it; what it writes is a tree of
its tokens. A path of the tree with the bytes b and the probability p, and a next token y after it:

* y may change what the first target token is when target tokens go on after b and y's bytes agree with one of
  them. Then b + y is a path of its own, finished when no target token goes on after b + y.
* Any other y finishes the path: the first token of b + y by the target's own tokenizer. What is below
  `floor` / 10 is not looked at one by one: it finishes the path with the first token of b alone.

Cut, and reported as left over: paths below `floor` or deeper than DEPTH, finished ones below `floor` / 10
whose y agrees, ends inside a character, control tokens that stand for none of the target's. Taken as exact,
though it is not always so: a finished path's first token stays the first whatever follows (byte-pair merges
further on could reach back; they hardly ever do). What is written is tokenized by itself: the text before it
ends where a token of the target ends.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ....libllama.states import Reader
from ..spelling import ordinary
from ..tokenizing import Tokenizer
from .scoring import Head

DEPTH = 6  # donor tokens of a path
FLOOR = 2e-3


@dataclass(frozen=True, slots=True)
class Marginal:
    """M at one place: target id -> probability; what is left over is 1 minus their sum."""

    mass: Mapping[int, float]
    left_over: float

    @property
    def top(self) -> int:
        """The likeliest id; -1 where all is left over."""
        return max(self.mass, key=lambda i: self.mass[i], default=-1)

    def overlap(self, probabilities: NDArray[np.float32]) -> float:
        """Σ min(M, q) with q [n_tokens]; at most `left_over` too low."""
        return sum(min(mass, float(probabilities[i])) for i, mass in self.mass.items())


class Walker:
    """Walks the tree of what a donor writes. `ends`: donor control id -> the target's id for it.

    `start`: the donor ids that a text begins with.
    """

    def __init__(
        self,
        reader: Reader,
        head: Head,
        donor: Tokenizer,
        target: Tokenizer,
        ends: Mapping[int, int],
        start: Sequence[int],
        floor: float = FLOOR,
    ) -> None:
        self._reader, self._head, self._donor, self._target = reader, head, donor, target
        self._ends, self._start, self._floor = dict(ends), list(start), floor
        self._is_word = ordinary(donor.vocab)
        self._trie = _Agreeing(donor, target)
        self._read: list[int] = []  # ids of text 0 that the reader holds

    def marginals(self, text: str, places: Sequence[int]) -> dict[int, Marginal]:
        """place -> M, for places in bytes of a text; the last ones first, so that little is read twice.

        A place inside a character is left out.
        """
        data, found = text.encode("utf-8", "replace"), {}
        self._read = []
        for place in sorted(places, reverse=True):
            before = _text(data[:place])
            if before is not None:
                ids = [*self._start, *self._donor.encode(before)]
                found[place] = self._walk(len(ids), self._state(ids))
        return found

    def _state(self, ids: list[int]) -> NDArray[np.float32]:
        """[1, n_embd]: the state after these ids; the reader holds them then."""
        same = next((i for i, (a, b) in enumerate(zip(ids, self._read, strict=False)) if a != b), None)
        keep = min(len(ids), len(self._read)) if same is None else same
        keep = min(keep, len(ids) - 1)  # the last is read again, for its state
        self._read = ids
        return self._reader.read(ids[keep:], keep=keep)[-1:]

    def _walk(self, n_read: int, state: NDArray[np.float32]) -> Marginal:
        tree = _Tree(self._floor)
        self._grow(tree, [_Path((), b"", 1.0)], state)
        for _ in range(DEPTH - 1):
            paths, tree.open = tree.open, []
            if not paths:
                break
            for at in range(0, len(paths), 256):
                some = paths[at : at + 256]
                self._grow(tree, some, self._reader.branch(n_read, [path.ids for path in some]))
        total = sum(tree.mass.values())
        return Marginal(tree.mass, max(0.0, 1.0 - total))

    def _grow(self, tree: _Tree, paths: Sequence[_Path], states: NDArray[np.float32]) -> None:
        for at in range(0, len(paths), 64):
            for path, next_ in zip(
                paths[at : at + 64], self._head.probabilities(states[at : at + 64]), strict=True
            ):
                self._split(tree, path, next_)

    def _split(self, tree: _Tree, path: _Path, next_: NDArray[np.float32]) -> None:
        """Shares out the probability of a path among finished ones and those to go on from."""
        after = path.p * next_.astype(np.float64)
        if not path.data:
            for donor, target in self._ends.items():
                tree.add(target, float(after[donor]))
            after[~self._is_word] = 0.0
        agreeing = self._trie.agreeing(path.data)
        first = self._first(path.data)
        rest = float(after.sum() - after[agreeing].sum())
        is_agreeing = np.zeros(len(after), bool)
        is_agreeing[agreeing] = True
        for y in np.flatnonzero(after >= self._floor / 10).tolist():
            p, data = float(after[y]), path.data + (self._donor.bytes[y] if self._is_word[y] else b"")
            if is_agreeing[y] and self._trie.goes_on(data):
                if p >= self._floor:
                    tree.open.append(_Path((*path.ids, y), data, p))
                continue
            token = self._first(data)
            if not is_agreeing[y]:
                rest -= p
                token = first if token is None else token
            tree.add(token, p)
        tree.add(first, rest)

    def _first(self, data: bytes) -> int | None:
        """The first token of these bytes; None where they begin with no whole character."""
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            text = data[: error.start].decode("utf-8")
        ids = self._target.encode(text)
        return ids[0] if ids else None


@dataclass(frozen=True, slots=True)
class _Path:
    ids: tuple[int, ...]
    data: bytes
    p: float


@dataclass(slots=True)
class _Tree:
    floor: float
    mass: dict[int, float] = field(default_factory=dict)
    open: list[_Path] = field(default_factory=list)

    def add(self, token: int | None, p: float) -> None:
        if token is not None and p > 0:
            self.mass[token] = self.mass.get(token, 0.0) + p


class _Agreeing:
    """Of bytes b: the donor tokens y for which b + y and a longer target token agree as far as both go."""

    def __init__(self, donor: Tokenizer, target: Tokenizer) -> None:
        self._theirs = _sorted_words(donor)
        self._names = [data for data, _ in self._theirs]
        self._ids = dict(self._theirs)
        self._ours = [data for data, _ in _sorted_words(target)]
        self._known: dict[bytes, NDArray[np.int64]] = {}

    def goes_on(self, data: bytes) -> bool:
        """Whether a target token begins with these bytes and is longer."""
        at = bisect_left(self._ours, data + b"\0")
        return at < len(self._ours) and self._ours[at].startswith(data)

    def agreeing(self, data: bytes) -> NDArray[np.int64]:
        """Donor ids; all for no bytes."""
        if data not in self._known:
            self._known[data] = np.array(sorted(self._find(data)), np.int64)
        return self._known[data]

    def _find(self, data: bytes) -> set[int]:
        if not data:
            return {i for _, i in self._theirs}
        found: set[int] = set()
        seen: set[bytes] = set()
        for at in range(*_range(self._ours, data)):
            rest = self._ours[at][len(data) :]
            for end in range(1, len(rest)):
                if (part := rest[:end]) not in seen:
                    seen.add(part)
                    if part in self._ids:
                        found.add(self._ids[part])
            if rest:
                found.update(self._theirs[i][1] for i in range(*_range(self._names, rest)))
        return found


def _range(words: Sequence[bytes], start: bytes) -> tuple[int, int]:
    """From where to where the sorted words begin with these bytes."""
    end = start.rstrip(b"\xff")
    after = end[:-1] + bytes([end[-1] + 1]) if end else None
    return bisect_left(words, start), len(words) if after is None else bisect_left(words, after)


def _sorted_words(tokenizer: Tokenizer) -> list[tuple[bytes, int]]:
    ids = np.flatnonzero(ordinary(tokenizer.vocab)).tolist()
    return sorted((tokenizer.bytes[i], i) for i in ids if tokenizer.bytes[i])


def _text(data: bytes) -> str | None:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None
