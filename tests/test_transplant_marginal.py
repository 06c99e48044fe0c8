"""evaluate: the donor's exact distribution over the target's tokens."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import vocabularies as vs

from gguftools.verbs.transplant.evaluate import marginal
from gguftools.verbs.transplant.evaluate.agreement import sample
from gguftools.verbs.transplant.evaluate.losses import spell_all
from gguftools.verbs.transplant.evaluate.marginal import Walker
from gguftools.verbs.transplant.text import Text
from gguftools.verbs.transplant.tokenizing import Tokenizer

ALPHABET = [b"a", b"b", b"c", b" ", b"ab", b"cb", b" a"]


class Chain:
    """A donor whose next token depends on the last alone: its states are those tokens' numbers, one-hot."""

    def __init__(self, n: int, used: Sequence[int]) -> None:
        self.table = np.zeros((n, n), np.float32)
        drawn = np.random.default_rng(4).dirichlet(np.full(len(used), 0.7), n)
        self.table[:, used] = drawn
        self.kept: list[int] = []

    def _states(self, last: Sequence[int]) -> Any:
        return np.eye(len(self.table), dtype=np.float32)[list(last)]

    def read(self, ids: Sequence[int], *, keep: int = 0) -> Any:
        self.kept = [*self.kept[:keep], *ids]
        return self._states(ids)

    def branch(self, keep: int, tails: Sequence[Sequence[int]]) -> Any:
        assert keep == len(self.kept)
        return self._states([tail[-1] for tail in tails])

    def probabilities(self, states: Any) -> Any:
        return states @ self.table


@pytest.fixture
def chained() -> Iterator[tuple[Chain, Tokenizer, Tokenizer, list[int]]]:
    theirs = Tokenizer(vs.bpe([b"ab", b"cb", b" a"], ["<|end|>"]))
    ours = Tokenizer(vs.bpe([b" b", b"ba", b"bac"], ["<|fin|>"]))
    used = [theirs.bytes.index(data) for data in ALPHABET]
    with theirs, ours:
        yield Chain(len(theirs.bytes), used), theirs, ours, used


def test_the_marginal_is_that_of_all_texts_the_donor_could_write(
    chained: tuple[Chain, Tokenizer, Tokenizer, list[int]],
) -> None:
    chain, theirs, ours, used = chained
    walker: Any = Walker(chain, chain, theirs, ours, {}, [0], floor=1e-12)  # type: ignore[arg-type]
    found = walker.marginals("ab c", [0, 1, 4])
    for place, before in ((0, 0), (1, 97), (4, theirs.encode("c")[0])):
        wanted: dict[int, float] = {}
        for tail in itertools.product(used, repeat=5):
            p = math.prod(float(chain.table[a, b]) for a, b in itertools.pairwise((before, *tail)))
            text = b"".join(theirs.bytes[i] for i in tail).decode()
            first = ours.encode(text)[0]
            wanted[first] = wanted.get(first, 0.0) + p
        assert found[place].left_over < 1e-5
        for i in wanted.keys() | found[place].mass.keys():
            assert found[place].mass.get(i, 0.0) == pytest.approx(wanted.get(i, 0.0), abs=1e-5), ours.bytes[i]
        assert found[place].top == max(wanted, key=wanted.__getitem__)


def test_what_is_cut_is_left_over_and_nothing_is_counted_twice(
    chained: tuple[Chain, Tokenizer, Tokenizer, list[int]],
) -> None:
    chain, theirs, ours, _ = chained
    exact: Any = Walker(chain, chain, theirs, ours, {}, [0], floor=1e-12)  # type: ignore[arg-type]
    coarse: Any = Walker(chain, chain, theirs, ours, {}, [0], floor=0.05)  # type: ignore[arg-type]
    (whole,), (part,) = (walker.marginals("", [0]).values() for walker in (exact, coarse))
    assert 0 < part.left_over < 1
    assert sum(part.mass.values()) + part.left_over == pytest.approx(1)
    assert all(mass <= whole.mass[i] + 1e-6 for i, mass in part.mass.items())
    q = np.zeros(len(ours.bytes), np.float32)
    q[part.top] = 1
    assert part.overlap(q) == pytest.approx(part.mass[part.top])


def test_the_donors_end_is_the_targets_and_another_control_token_is_left_over(
    chained: tuple[Chain, Tokenizer, Tokenizer, list[int]],
) -> None:
    chain, theirs, ours, _ = chained
    end, fin = theirs.bytes.index(b"<|end|>"), ours.bytes.index(b"<|fin|>")
    chain.table *= 0.75
    chain.table[:, end] = 0.25
    for ends, mass, left in (({end: fin}, 0.25, 0.0), ({}, 0.0, 0.25)):
        walker: Any = Walker(chain, chain, theirs, ours, ends, [0], floor=1e-12)  # type: ignore[arg-type]
        found = walker.marginals("", [0])[0]
        assert found.mass.get(fin, 0.0) == pytest.approx(mass, abs=1e-6)
        assert found.left_over == pytest.approx(left, abs=1e-5)


def test_a_place_inside_a_character_is_left_out_and_none_is_drawn(
    chained: tuple[Chain, Tokenizer, Tokenizer, list[int]],
) -> None:
    chain, theirs, ours, _ = chained
    walker: Any = Walker(chain, chain, theirs, ours, {}, [0])  # type: ignore[arg-type]
    assert list(walker.marginals("aé", [1, 2])) == [1]
    spelled = spell_all(ours, [Text("x", "x", "aé中b")], 100)
    assert [i for _, i in sample(spelled, 100, 0)] == [0, 1, 3, 6]
    assert sample(spelled, 2, 1) == sample(spelled, 2, 1)


def test_depth_and_floor_bound_the_tree() -> None:
    assert marginal.DEPTH >= 3  # three digits of a donor are one token of Kimi's
    assert 0 < marginal.FLOOR < 0.01
