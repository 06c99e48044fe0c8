"""How the rows of a new vocabulary are made: shares, joined inputs, the lens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tiny
import vocabularies as vs
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gguftools.verbs.transplant import inputs, lens, prior
from gguftools.verbs.transplant.align import Alignment, align
from gguftools.verbs.transplant.rows import MadeRows, numbers, read_as_last
from gguftools.verbs.transplant.text import Text
from gguftools.verbs.transplant.tokenizing import Tokenizer
from gguftools.verbs.transplant.walk import walk
from gguftools.vocab import Vocab

# Shares.

N = 24
Group = tuple[Any, Any, Any, Any]
groups = st.tuples(
    arrays(np.int32, N, elements=st.integers(0, 5)),  # first pieces
    arrays(np.bool_, N),  # several
    arrays(np.bool_, N),  # draftable
    arrays(np.float64, N, elements=st.floats(0, 1e6)),  # counts
)


@settings(max_examples=100, deadline=None)
@given(groups)
def test_the_shares_of_the_tokens_that_begin_with_a_piece_sum_to_one(group: Group) -> None:
    first, several, draftable, counts = group
    bias = prior.log_shares(first, several, draftable, counts)
    assert (bias[~draftable] == prior.NEVER).all()
    share = np.where(draftable, np.exp(bias - prior.SEVERAL * several), 0)
    for d in np.unique(first[draftable]):
        assert share[first == d].sum() == pytest.approx(1, abs=1e-4)


@settings(max_examples=60, deadline=None)
@given(groups, st.integers(0, N - 1))
def test_a_token_that_is_met_more_often_has_a_larger_share_and_its_neighbours_smaller_ones(
    group: Group, i: int
) -> None:
    first, several, draftable, counts = group
    draftable[i] = True
    counts = np.minimum(counts, 100)
    more = counts.copy()
    more[i] += 50
    before, after = (prior.log_shares(first, several, draftable, n) for n in (counts, more))
    beside = draftable & (first == first[i])
    beside[i] = False
    assert after[i] > before[i] or not beside.any()
    assert (after[beside] < before[beside]).all()
    assert (after[first != first[i]] == before[first != first[i]]).all()


def test_without_counts_the_order_of_ids_decides_and_the_whole_piece_comes_first() -> None:
    first, several = np.zeros(4, np.int32), np.array([True, True, False, True])
    bias = prior.log_shares(first, several, np.ones(4, bool), None)
    assert bias.argmax() == 2
    assert bias[0] > bias[1] > bias[3]


@settings(max_examples=100, deadline=None)
@given(groups, st.sampled_from([0.0, 1e-6, 1.0]))
def test_biases_of_a_group_are_told_apart_in_their_order(group: Group, spread: float) -> None:
    first, several, draftable, counts = group
    bias = (-(counts % 7) * spread - several).astype(np.float32)
    found = prior.apart(bias, first, draftable)
    assert (found[~draftable] == bias[~draftable]).all()
    assert (found <= bias + 1e-6).all()
    for d in np.unique(first[draftable]):
        ids = np.flatnonzero(draftable & (first == d))
        order = ids[np.lexsort((ids, -bias[ids]))]
        assert (np.diff(found[order]) < -0.9 * prior.STEP).all()
    far = prior.apart(np.arange(N, dtype=np.float32), first, draftable)
    assert (far == np.arange(N)).all()


# Rows of tokens that the donor spells with several.


class Rows:
    """A donor of two matrices alone."""

    def __init__(self, vocab: Vocab, n_embd: int, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        self.vocab, self.n_embd, self.output_bias = vocab, n_embd, None
        self.matrix = random.normal(size=(vocab.n_tokens, n_embd)).astype("f4")
        self.out = random.normal(size=(vocab.n_tokens, n_embd)).astype("f4")

    def embedding(self, ids: Any) -> Any:
        return self.matrix[ids]

    def head(self, ids: Any) -> Any:
        return self.out[ids]


def merged(vocab: Vocab, n_embd: int) -> tuple[Any, Any]:
    """A donor whose longer tokens' rows are a linear function of their halves', and that function."""
    donor = Rows(vocab, n_embd)
    turn = np.random.default_rng(1).normal(size=(2 * n_embd, n_embd)).astype("f4") * 0.2
    for left, right, whole in inputs._merges(vocab):
        donor.matrix[whole] = np.concatenate([donor.matrix[left], donor.matrix[right]]) @ turn
    return donor, turn


LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOP"
PAIRS = [(a + b).encode() for a in LETTERS for b in LETTERS if a + b not in ("xy", "yz")]


def test_how_two_rows_become_one_is_found_in_the_donors_own_merges() -> None:
    donor, turn = merged(vs.bpe(PAIRS), 16)
    found = inputs.fit(donor)
    assert found is not None
    assert np.abs(found - turn).max() < 0.05


def test_too_few_merges_are_no_evidence() -> None:
    assert inputs.fit(merged(vs.bpe(PAIRS[:60]), 16)[0]) is None
    assert inputs.fit(Rows(vs.bpe([]), 4)) is None  # type: ignore[arg-type]


def test_a_joined_row_is_made_from_left_to_right_and_as_long_as_the_last_pieces() -> None:
    donor, turn = merged(vs.bpe(PAIRS), 16)
    target = vs.bpe([b"xy", b"xyz", b"abxyz", b"ab"])
    alignment = align(target, donor.vocab, {})
    joiner = inputs.Joiner(donor, alignment, turn)
    ids = np.array([target.id_of(data) for data in (b"xy", b"abxyz", b"xyz")], np.int64)
    found = joiner.rows(ids)
    row = donor.matrix
    for i, data in zip(range(3), (["x", "y"], ["ab", "x", "y", "z"], ["x", "y", "z"]), strict=True):
        pieces = [donor.vocab.id_of(piece.encode()) for piece in data]
        wanted = row[pieces[0]]
        for piece in pieces[1:]:
            wanted = np.concatenate([wanted, row[piece]]) @ turn
        assert found[i] @ wanted / np.linalg.norm(found[i]) / np.linalg.norm(wanted) > 0.9999
        assert np.linalg.norm(found[i]) == pytest.approx(np.linalg.norm(row[pieces[-1]]), rel=1e-4)
    assert np.allclose(joiner.rows(ids[::-1].copy())[::-1], found, atol=1e-5)


def test_a_vocabulary_that_lists_no_merges_is_cut_where_both_parts_came_first() -> None:
    vocab = vs.spm(["a", "b", "ab", "aba", "ba", "b" * 3])
    found = {tuple(vocab.tokens[i] for i in row) for row in inputs._merges(vocab).tolist()}
    assert found == {(b"a", b"b", b"ab"), (b"ab", b"a", b"aba"), (b"b", b"a", b"ba")}


def test_alignments_of_no_pieces_join_nothing() -> None:
    donor, turn = merged(vs.bpe(PAIRS), 16)
    alignment = align(vs.bpe([b"ab"]), donor.vocab, {})
    assert isinstance(alignment, Alignment)
    assert inputs.Joiner(donor, alignment, turn).rows(np.empty(0, np.int64)).shape == (0, 16)


def test_the_word_for_a_role_is_read_as_its_last_piece_since_joined_rows_end_the_turn() -> None:
    donor, turn = merged(vs.bpe(PAIRS), 16)
    donor.twins = lambda: np.arange(donor.vocab.n_tokens, dtype=np.int32)
    target = vs.bpe([b"assistant", b"assist"])
    words = read_as_last(target)
    assert [target.tokens[i] for i in words] == [b"assistant"]
    alignment = align(target, donor.vocab, {})
    rows = MadeRows(alignment, donor, joint=turn, unjoined=words)
    last = donor.embedding(alignment.of(words[0])[-1:])
    assert (rows.input_rows(words[0], words[0] + 1) == last).all()
    other = target.id_of(b"assist")
    assert (rows.input_rows(other, other + 1) != donor.embedding(alignment.of(other)[-1:])).any()


def test_a_number_is_read_as_half_of_its_joined_row_and_half_of_the_sum_of_its_digits() -> None:
    donor, turn = merged(vs.bpe(PAIRS), 16)
    donor.twins = lambda: np.arange(donor.vocab.n_tokens, dtype=np.int32)
    target = vs.bpe([b"12", b"123", b"assist"])
    ids = numbers(target)
    assert {target.tokens[i] for i in ids} >= {b"1", b"12", b"123"}
    alignment = align(target, donor.vocab, {})
    joined = MadeRows(alignment, donor, joint=turn)
    rows = MadeRows(alignment, donor, joint=turn, numbers=ids)
    for token in (b"12", b"123"):
        i = target.id_of(token)
        total = donor.embedding(alignment.of(i)).sum(0)
        half = (joined.input_rows(i, i + 1)[0] + total) / 2
        np.testing.assert_allclose(rows.input_rows(i, i + 1)[0], half, rtol=1e-5, atol=1e-6)
    for token in (b"1", b"assist"):
        i = target.id_of(token)
        assert (rows.input_rows(i, i + 1) == joined.input_rows(i, i + 1)).all()


# The lens.


@pytest.fixture(scope="module")
def read() -> tuple[Any, list[lens.Passage], Any]:
    """A donor whose next state is a linear function of the last and of the token between; texts; that A."""
    donor, random = Rows(vs.bpe([]), 16), np.random.default_rng(3)
    donor.out *= 0.3
    turn = np.linalg.qr(random.normal(size=(16, 16)))[0] * 0.8
    read = random.normal(size=(16, 16)) * 0.1
    passages = []
    for _ in range(60):
        ids = random.integers(0, 40, 100).astype(np.int32)
        states = [random.normal(size=16)]
        for i in ids[:-1]:
            states.append(turn @ states[-1] + donor.matrix[i] @ read + 0.5 * random.normal(size=16))
        passages.append(lens.Passage(ids, np.array(states, np.float32)))
    return donor, passages, turn


def test_a_state_says_which_second_piece_follows(read: tuple[Any, list[lens.Passage], Any]) -> None:
    donor, passages, turn = read
    found = lens.fit(donor, passages, np.array([3, 5, 99], np.int32))
    assert found is not None
    assert np.abs(found.turn - lens.GAIN * turn).max() < 0.05
    states, second = passages[0].states, np.arange(60, dtype=np.int32)
    for first in (3, 99):  # one that the texts have, and one that they lack
        scores = states @ found.rows(donor, np.full(60, first, np.int32), second).T
        wanted = states @ turn.T @ donor.out[second].T
        assert np.mean(scores.argmax(1) == wanted.argmax(1)) > 0.8


def test_the_lens_leaves_a_tokens_share_as_it_was(read: tuple[Any, list[lens.Passage], Any]) -> None:
    donor, passages, _ = read
    found = lens.fit(donor, passages, np.arange(8, dtype=np.int32))
    assert found is not None
    first, second = np.repeat(np.arange(8, dtype=np.int32), 4), np.tile(np.arange(50, 54, dtype=np.int32), 8)
    rows, bias = found.rows(donor, first, second), found.bias(donor, first, second)
    assert np.abs(bias).max() > 0.05
    ids = np.concatenate([one.ids for one in passages])
    states = np.concatenate([one.states for one in passages])
    for d, row, b in zip(first, rows, bias, strict=True):
        before = states[ids == d]
        assert np.exp(before @ row + b).mean() == pytest.approx(1, abs=0.25)


def test_a_short_text_and_a_vocabulary_without_pieces_give_no_lens(
    read: tuple[Any, list[lens.Passage], Any],
) -> None:
    donor, passages, _ = read
    short = [lens.Passage(passages[0].ids[:160], passages[0].states[:160])]
    assert lens.enough(donor) == 160  # states: of 160 tokens the last one foretells nothing
    assert lens.fit(donor, short, np.array([1], np.int32)) is None
    assert lens.fit(donor, passages, np.array([], np.int32)) is None
    assert lens.fit(donor, [], np.array([1], np.int32)) is None


# Two tokenizations side by side.


def test_a_walk_pairs_what_begins_at_the_same_byte_and_says_how_they_lie() -> None:
    with Tokenizer(vs.bpe([b"ab", b"ef"])) as theirs, Tokenizer(vs.bpe([b"cd", b"ef"])) as ours:
        found = walk([Text("x", "x", "abcdef")], ours, theirs)
        assert found.shapes == {"same": 1, "several": 1, "prefix": 1, "inside": 1}
        assert [ours.bytes[i] for i in found.target] == [b"a", b"cd", b"ef"]
        assert [theirs.bytes[i] for i in found.donor] == [b"ab", b"c", b"ef"]
        alignment = align(ours.vocab, theirs.vocab, {})
        counts = found.counts(alignment.pieces[alignment.starts[:-1]])
        assert {ours.bytes[i]: counts[i] for i in np.flatnonzero(counts)} == {b"cd": 1, b"ef": 1}
        more = walk([Text("x", "x", text) for text in ("é, 12", "", "abab\n\ncdcd")], ours, theirs)
        assert more.n_texts == 3
        assert sum(more.coverage().values()) == pytest.approx(1, abs=1e-4)
        assert walk([], ours, theirs).coverage() == dict.fromkeys(found.shapes, 0.0)


def test_a_text_that_one_of_the_two_does_not_spell_is_skipped() -> None:
    letters = [(letter.encode(), int(vs.NORMAL)) for letter in tiny.byte_letters() if letter != "q"]
    lacking = vs.make("gpt2", letters, merges=[b"a b"])
    done: list[int] = []
    with Tokenizer(vs.bpe([b"xy"])) as theirs, Tokenizer(lacking) as ours:
        texts = [Text("x", "x", "quiet"), Text("x", "x", "still")]
        found = walk(texts, ours, theirs, done.append)
    assert (found.n_texts, found.n_skipped, len(found.target)) == (2, 1, 5)
    assert done == [5, 10]
