"""Drafts copied from the text: the longest earlier match of its end goes on."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gguftools._native import NGRAM_LONGEST, NGRAM_LOOKS, EngineError, Ngram

ROOM = 1 << 16  # so many buckets that no two groups of the few ids used here share one


def index(text: Sequence[int], n_max: int = ROOM, eog: bytes | None = None) -> Ngram:
    made = Ngram(n_max, eog)
    made.update(array("i", text), 0)
    return made


def after(text: Sequence[int], n: int, proposed: Sequence[int] = ()) -> list[int]:
    return index(text).next(n + len(proposed), proposed)[0]


def sure(text: Sequence[int]) -> float:
    return index(text).next(1)[1][0]


def common(text: Sequence[int], end: int) -> int:
    """Tokens before `end` that equal those before the end of the text."""
    most = min(end, NGRAM_LONGEST)
    return next((i for i in range(most) if text[end - 1 - i] != text[-1 - i]), most)


class Reference:
    """What ngram.h says, by looking at every end."""

    def __init__(self) -> None:
        self.text: list[int] = []
        self.distance = 0

    def update(self, text: list[int], shared: int) -> None:
        if shared < len(self.text):
            self.distance = 0
        self.text = text

    def found(self, text: list[int]) -> dict[int, int]:
        """Ends that are looked at, in order, and how many tokens match."""
        last = len(text) - self.distance
        ends = {last: common(text, last)} if 0 < last < len(text) and common(text, last) else {}
        for size in (4, 2, 1):
            group = text[-size:] if len(text) >= size else None
            chain = [e for e in range(len(text) - 1, size - 1, -1) if text[e - size : e] == group]
            ends |= {e: common(text, e) for e in chain[:NGRAM_LOOKS] if e not in ends}
            if max(ends.values(), default=0) >= size:
                break
        return ends

    def next(self, n_max: int, proposed: list[int]) -> tuple[list[int], list[float]]:
        text, ids, sures = self.text + proposed, [], []
        ends = self.found(text) if len(proposed) < n_max else {}
        if not ends:
            return [], []
        best = max(ends, key=lambda end: ends[end])  # the first of equal ones
        self.distance = len(text) - best
        while len(proposed) + len(ids) < n_max:
            token = text[best + len(ids)]
            length = ends[best] + len(ids)
            near = {e for e in ends if 2 * (ends[e] + len(ids)) >= length}
            same = {e for e in ends if text[e + len(ids)] == token}
            yes = length * len(near & same)
            sures.append(yes / (yes + 2 * (1 + len(near - same))))
            ids.append(token)
            text.append(token)
            ends = {e: n for e, n in ends.items() if e in same}
        return ids, sures


STEPS = st.lists(
    st.tuples(
        st.integers(0, 60),  # tokens that go from the text's end
        st.lists(st.integers(0, 2), max_size=40),  # those that come
        st.lists(st.integers(0, 2), max_size=4),  # proposals that are there already
        st.integers(0, 9),
    ),
    max_size=12,
)


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_it_proposes_what_a_look_at_every_end_finds(
    steps: list[tuple[int, list[int], list[int], int]],
) -> None:
    text: list[int] = []
    ngram, reference = Ngram(ROOM), Reference()
    for gone, come, proposed, n_max in steps:
        shared = max(len(text) - gone, 0)
        text = text[:shared] + come
        ngram.update(array("i", text), shared)
        reference.update(list(text), shared)
        ids, sures = ngram.next(n_max, proposed)
        expected, expected_sure = reference.next(n_max, proposed)
        assert ids == expected
        assert sures == pytest.approx(expected_sure)
        assert all(0 < s < 1 for s in sures)


@settings(max_examples=200, deadline=None)
@given(STEPS, st.lists(st.integers(0, 2), min_size=1, max_size=30), st.integers(0, 20))
def test_what_was_cut_leaves_no_trace(
    steps: list[tuple[int, list[int], list[int], int]], last: list[int], kept: int
) -> None:
    """With fewer buckets than groups, so that groups share them."""
    text: list[int] = []
    used = Ngram(1000)
    for gone, come, proposed, n_max in steps:
        shared = max(len(text) - gone, 0)
        text = text[:shared] + come
        used.update(array("i", text), shared)
        used.next(n_max, proposed)
    used.update(array("i", [*text, 1]), len(text))
    shared = min(kept, len(text))
    text = text[:shared] + last
    used.update(array("i", text), shared)
    assert used.next(8) == index(text, 1000).next(8)


@given(st.lists(st.integers(-5, 200_000), max_size=40), st.integers(1, 50), st.integers(0, 60))
def test_any_ids_and_sizes_are_fine(text: list[int], room: int, n_max: int) -> None:
    ngram = Ngram(room)
    if len(text) > room:
        with pytest.raises(EngineError):
            ngram.update(array("i", text), 0)
        return
    ngram.update(array("i", text), 0)
    ids, _ = ngram.next(n_max)
    assert len(ids) in (0, min(n_max, room - len(text)))
    assert set(ids) <= set(text)


def test_a_text_without_repetition_gives_nothing() -> None:
    for text in ([], [5], [5, 6, 7, 8]):
        assert after(text, 4) == []


def test_the_longest_match_wins_over_a_newer_one() -> None:
    assert after([1, 2, 3, 40, 9, 3, 50, 1, 2, 3], 1) == [40]


def test_of_equal_matches_the_newest_wins() -> None:
    assert after([1, 2, 40, 8, 1, 2, 50, 9, 1, 2], 2) == [50, 9]


def test_a_period_goes_on_past_its_own_end() -> None:
    assert after([1, 2, 3, 1, 2, 3, 1], 8) == [2, 3, 1, 2, 3, 1, 2, 3]


def test_a_draft_that_is_there_is_extended() -> None:
    assert after([1, 2, 3, 4, 5, 6, 9], 2, [1, 2, 3]) == [4, 5]
    assert after([7], 3, [1, 2, 1]) == [2, 1, 2]


def test_proposals_are_not_part_of_the_text() -> None:
    ngram = index([1, 2, 3, 9])
    ngram.next(8, [1, 2, 7])
    assert ngram.next(3) == ([], [])
    ngram.update(array("i", [1, 2, 3, 9, 2]), 4)
    assert ngram.next(1)[0] == [3]


def test_a_longer_match_is_surer() -> None:
    text = list(range(30))
    grown = [sure([*text, 99, *text[10 - n : 10]]) for n in range(1, 11)]
    assert grown == sorted(set(grown))


def test_ends_that_go_on_differently_make_it_less_sure() -> None:
    alone, agreed, divided = [1, 2, 40, 1, 2], [1, 2, 40, 1, 2, 40, 1, 2], [1, 2, 30, 1, 2, 40, 1, 2]
    assert sure(divided) < sure(alone) < sure(agreed)


def test_the_number_of_matching_tokens_is_told() -> None:
    ngram = index([1, 2, 3, 40, 1, 2, 3])
    ngram.next(1)
    assert ngram.matched == 3
    ngram.update(array("i", [1, 2, 3, 40, 1, 2, 3, 77]), 7)
    ngram.next(1)
    assert ngram.matched == 0


def test_nothing_follows_the_end_of_a_turn() -> None:
    eog = bytes(id == 9 for id in range(10))
    ngram = index([1, 2, 9, 3, 4, 1], eog=eog)
    assert ngram.next(4)[0] == [2, 9]
    assert ngram.next(4, [2, 9]) == ([], [])


def test_a_copy_is_followed_though_many_newer_ends_match() -> None:
    """A chain is looked through only so far; the copy that goes on is known all the same."""
    shared = [1, 2, 3, 4]
    crowd = [token for i in range(NGRAM_LOOKS + 4) for token in (*shared, 100 + i)]
    old = [50, 51, 52, 53, *shared, 60, 61]
    text = [*old, *crowd, *old[:4]]
    ngram = index(text)
    assert ngram.next(2)[0] == [1, 2]
    ngram.update(array("i", [*text, *shared]), len(text))
    assert ngram.next(2)[0] == [60, 61]


def test_proposals_end_where_the_room_ends() -> None:
    assert index([1, 2, 1, 2, 1], n_max=8).next(9)[0] == [2, 1, 2]
    assert index([1, 2, 1, 2, 1], n_max=5).next(9)[0] == []
    assert index([1, 2, 1, 2, 1], n_max=6).next(9, [2, 1, 2]) == ([], [])


def test_a_text_that_does_not_fit_is_refused_and_the_old_one_kept() -> None:
    ngram = index([1, 2, 1], n_max=4)
    with pytest.raises(EngineError, match="GT_E_CONTEXT"):
        ngram.update(array("i", [1, 2, 1, 2, 1]), 3)
    assert ngram.next(1)[0] == [2]


@pytest.mark.parametrize("n_max", [0, -1, 2**31 - 1])
def test_sizes_out_of_range_are_refused(n_max: int) -> None:
    with pytest.raises(EngineError, match="GT_E_ARGUMENT"):
        Ngram(n_max)
