"""evaluate: losses, the exact marginal, turn ends, the known tool's rule; and the tokenizer that they use."""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import lowlevel
import numpy as np
import pytest
import tiny
import transplants as tp
import vocabularies as vs
from hypothesis import given, settings

from gguftools import libllama
from gguftools.errors import GGUFToolsError, LoadAborted, Unsupported
from gguftools.header import read_header
from gguftools.intervals import bootstrap, ratio
from gguftools.libllama.states import Reader
from gguftools.verbs.transplant.align import Alignment, align
from gguftools.verbs.transplant.donor import Donor
from gguftools.verbs.transplant.evaluate import Size, evaluate, marginal, scoring, turns
from gguftools.verbs.transplant.evaluate.agreement import sample
from gguftools.verbs.transplant.evaluate.baseline import BaselineRows
from gguftools.verbs.transplant.evaluate.losses import spell_all
from gguftools.verbs.transplant.evaluate.marginal import Walker
from gguftools.verbs.transplant.evaluate.scoring import Head, OwnRows, input_rows
from gguftools.verbs.transplant.evaluate.setup import CPU
from gguftools.verbs.transplant.evaluate.texts import KINDS, answers, held_out
from gguftools.verbs.transplant.number_text import number_text
from gguftools.verbs.transplant.rows import PlainRows
from gguftools.verbs.transplant.special_map import special_map
from gguftools.verbs.transplant.text import Text
from gguftools.verbs.transplant.tokenizing import Tokenizer, start_id
from gguftools.vocab import TokenType, Vocab

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))
import acceptance

IDS = np.random.default_rng(2).integers(0, 261, 40).tolist()


@pytest.fixture(scope="module")
def donor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Donor]:
    model = Donor(read_header(tp.donor_gguf(tmp_path_factory.mktemp("donor"), tiny.QWEN2)))
    yield model
    model.close()


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Vocab:
    return Vocab.from_checkpoint(tp.write_target(tmp_path_factory.mktemp("target")))


@pytest.fixture
def reader(donor: Donor) -> Iterator[Reader]:
    weights = libllama.load(donor.path, CPU, "auto", None)
    with Reader(weights, 200, 1, 5) as made:
        yield made
    weights.close()


def aligned(target: Vocab, donor: Donor) -> tuple[Alignment, Any]:
    mapped = special_map(target, donor.vocab, {})
    return align(target, donor.vocab, {one.target: one for one in mapped}), mapped


# Tokenizers.


def test_ordinary_text_is_spelled_with_offsets_and_a_control_tokens_name_is_text() -> None:
    with Tokenizer(vs.bpe([b"ab", b"abc"], ["<|end|>"])) as tokenizer:
        assert [tokenizer.bytes[i] for i in tokenizer.encode("abcab")] == [b"abc", b"ab"]
        ids, offsets = tokenizer.spell("é<|end|>")
        assert len(ids) == 9
        assert offsets.tolist() == list(range(10))
        assert tokenizer.encode("a<|end|>", parse_special=True) == [97, 258]
        assert tokenizer.encode("") == []


def test_a_users_tag_is_text_and_a_users_run_of_spaces_is_a_token() -> None:
    tokens = [(letter.encode(), int(vs.NORMAL)) for letter in tiny.byte_letters()]
    vocab = vs.make(
        "gpt2", [*tokens, (b"<tool>", int(vs.USER)), (b"   ", int(vs.USER))], merges=["Ġ Ġ".encode()]
    )
    with Tokenizer(vocab) as tokenizer:
        assert 256 not in tokenizer.encode("<tool>")
        assert 257 in tokenizer.encode("a   b")


def test_no_space_is_put_before_a_text_that_sentencepiece_spells() -> None:
    with Tokenizer(vs.spm(["▁", "a", "b", "ab", "▁ab"])) as tokenizer:
        ids, offsets = tokenizer.spell("ab ab\n")
        assert [tokenizer.bytes[i] for i in ids] == [b"ab", b" ab", b"\n"]
        assert offsets.tolist() == [0, 2, 5, 6]


def test_sentencepiece_without_all_bytes_is_refused_before_libllama_ends_the_process() -> None:
    vocab = vs.make("llama", [(b"<unk>", int(vs.UNKNOWN)), (b"a", int(vs.NORMAL))], scores=[0.0, 0.0])
    with pytest.raises(Unsupported, match="not all bytes"):
        Tokenizer(vocab)


def test_a_text_is_spelled_or_is_none_but_never_wrong() -> None:
    tokens = [(letter.encode(), int(vs.NORMAL)) for letter in tiny.byte_letters() if letter != "q"]
    with Tokenizer(vs.make("gpt2", tokens, merges=[b"a b"])) as tokenizer:
        assert tokenizer.spell("quiet") is None
        assert tokenizer.spell("no such letter") is not None


@settings(max_examples=60, deadline=None)
@given(vs.vocabularies())
def test_no_vocabulary_ends_the_process(vocab: Vocab) -> None:
    try:
        tokenizer = Tokenizer(vocab)
    except GGUFToolsError:
        return
    with tokenizer:
        spelled = tokenizer.spell("A test, with 123 and 中文.\n")
        assert spelled is None or spelled[1][-1] == len("A test, with 123 and 中文.\n".encode())


# Scores.


@pytest.mark.parametrize("block", [7, 100, 8192])
def test_scores_made_in_blocks_are_those_of_libllama(
    donor: Donor, reader: Reader, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(scoring, "BLOCK", block)
    monkeypatch.setattr(scoring, "N_STATES", 13)
    own = OwnRows(donor)
    head = Head(own)
    states = reader.read(input_rows(own, IDS))
    wanted = lowlevel.logits(donor.path, IDS).astype(float)
    assert np.abs(head.logits(states) - wanted).max() < 0.05
    nats, top = head.judge(states[:-1], np.array(IDS[1:], np.int32))
    logs = wanted - np.log(np.exp(wanted).sum(1, keepdims=True))
    assert np.abs(nats + logs[np.arange(len(IDS) - 1), IDS[1:]]).max() < 0.05
    assert (top == head.logits(states)[:-1].argmax(1)).all()
    half = head.probabilities(states, 0.5)
    assert np.abs(half.sum(1) - 1).max() < 1e-5
    assert np.abs(np.log(half) - (2 * wanted - np.log(np.exp(2 * wanted).sum(1, keepdims=True)))).max() < 0.1


def test_a_large_head_is_held_in_half_the_bits_and_scores_alike(donor: Donor, reader: Reader) -> None:
    own = OwnRows(donor)
    states = reader.read(input_rows(own, IDS))
    small = Head(own, most=1000)
    assert small.matrix.dtype == np.float16
    assert np.abs(small.logits(states) - Head(own).logits(states)).max() < 0.05


def test_branches_are_what_reading_on_gives_and_leave_the_text_as_it_is(reader: Reader) -> None:
    tails = [[1, 2, 3], [4], [5, 6], [7], [8, 9], [1], [250]]  # more than the reader has places for
    reader.read(IDS)
    found = reader.branch(30, tails)
    assert found.shape == (7, reader.n_embd)
    for tail, state in zip(tails, found, strict=True):
        assert np.abs(reader.read([*IDS[:30], *tail])[-1] - state).max() < 0.02
    reader.read(IDS)
    reader.branch(30, tails)
    after = reader.read(IDS[30:], keep=30)
    assert np.abs(reader.read(IDS)[30:] - after).max() < 0.02
    assert reader.branch(30, []).shape == (0, reader.n_embd)


def test_several_texts_grow_beside_each_other(reader: Reader) -> None:
    reader.go_on([(1, 0, IDS[:10]), (2, 0, IDS[5:30])])
    found = reader.go_on([(2, 25, IDS[30:33]), (1, 10, IDS[10:11])])
    assert np.abs(found[0] - reader.read(IDS[5:33])[-1]).max() < 0.02
    assert np.abs(found[1] - reader.read(IDS[:11])[-1]).max() < 0.02


def test_a_text_begins_after_the_token_that_the_donor_begins_texts_with() -> None:
    names = ["<s>", "</s>", "<|endoftext|>"]
    assert start_id(vs.bpe([], names, special={"bos": 256}, add_bos=True)) == 256
    assert start_id(vs.bpe([], names, special={"bos": 256})) == 258
    assert start_id(vs.bpe([], names[:2], special={"eos": 257})) in (11, 257)  # libllama's own bos is 11


# The known tool's rule.


def test_the_baseline_reads_the_last_piece_and_scores_the_decayed_mean(donor: Donor) -> None:
    vocab = vs.bpe([b"xyz"], ["[EOS]", "[GAP]"], special={"eos": 257})
    types = vocab.types.copy()
    types[258] = TokenType.UNUSED
    vocab = Vocab(
        **{name: getattr(vocab, name) for name in Vocab.__slots__ if name not in ("types", "_cache")},
        types=types,
    )
    with Tokenizer(donor.vocab) as spelling:
        rows = BaselineRows(vocab, donor, spelling)
        x, y, z = (spelling.encode(letter)[0] for letter in "xyz")
        strange = spelling.encode("\ufffd")
    i = vocab.id_of(b"xyz")
    wanted = (donor.head(np.array([x, y, z])) * [[1], [0.5], [0.25]]).sum(0) / 1.75
    assert np.allclose(rows.head_rows(i, i + 1)[0], wanted, atol=1e-6)
    assert np.array_equal(rows.input_rows(i, i + 1), donor.embedding(np.array([z])))
    assert np.allclose(rows.head_rows(0, 259)[i], wanted, atol=1e-6)
    # Faults of the rule: bytes that are no text share a row; eos alone is mapped; nothing is kept back.
    assert np.array_equal(rows.head_rows(0x80, 0x81), rows.head_rows(0xFF, 0x100))
    assert rows.pieces[rows.starts[0x80] : rows.starts[0x81]].tolist() == strange
    assert rows.pieces[rows.starts[257] : rows.starts[258]].tolist() == [donor.vocab.special["eos"]]
    assert not rows.head_rows(258, 259).any()
    assert not rows.input_rows(258, 259).any()
    assert not rows.bias.any()


# The exact marginal.

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


# Turn ends.


def test_a_conversation_stops_where_its_answer_is_complete_and_its_end_is_the_templates(
    target: Vocab,
) -> None:
    with Tokenizer(target) as tokenizer:
        found = turns.written(tokenizer, [("Why?", "Because.")])
        assert found is not None
        text = b"".join(tokenizer.bytes[i] for i in found.conversations[0])
        system = turns.SYSTEM.encode()
        assert text == b"<|im_user|>" + system + b"<|im_end|><|im_user|>Why?<|im_end|><|im_user|>Because."
        assert tokenizer.bytes[found.end] == b"<|im_end|>"


def test_kimis_and_qwens_conversations_are_written_in_their_own_templates() -> None:
    with Tokenizer(Vocab.from_gguf(vs.real_gguf(vs.QWEN))) as tokenizer:
        found = turns.written(tokenizer, answers()[:2])
        assert found is not None
        text = b"".join(tokenizer.bytes[i] for i in found.conversations[0])
        assert text.endswith(b"Norway?<|im_end|>\n<|im_start|>assistant\nThe capital of Norway is Oslo.")
        assert tokenizer.bytes[found.end] == b"<|im_end|>"


def test_a_vocabulary_without_a_template_has_no_turn_ends() -> None:
    with Tokenizer(vs.bpe([b"ab"])) as tokenizer:
        assert turns.written(tokenizer, answers()) is None


# Texts.


def test_what_is_measured_on_comes_with_the_package_and_is_no_calibration_text() -> None:
    for kind in KINDS:
        some, more = held_out(kind, 1000), held_out(kind, 4000)
        assert 1000 <= sum(len(text.text.encode()) for text in some) < 3000
        assert more[: len(some)] == some or kind == "numbers"
        assert len({text.name for text in more}) == len(more) > len(some)
    numbers = {text.text for text in held_out("numbers", 4000)}
    assert not numbers & set(number_text(200_000))
    assert len(answers()) == 40
    assert all(question and answer and "\n\n" not in answer for question, answer in answers())


# Intervals and acceptance.


def test_an_interval_holds_the_mean_of_what_it_was_drawn_from() -> None:
    values = np.random.default_rng(0).normal(5, 1, 200)
    found = ratio(values)
    assert found.value == pytest.approx(values.mean())
    assert found.low < found.value < found.high
    assert 0.2 < found.high - found.low < 0.4  # 2 · 1.96 · σ / √n is 0.28
    assert ratio(np.full(5, 2.0), np.full(5, 4.0)) == ratio(np.ones(3), np.full(3, 2.0))
    assert math.isnan(bootstrap(0, lambda w: w.sum(1)).value)


def test_rounds_end_with_a_token_of_the_target() -> None:
    def of(text: str) -> tuple[float, int]:
        found = acceptance.rounds(np.array([letter == "1" for letter in text]))
        return found.tokens, found.rounds

    assert of("110100") == (6, 3)
    assert of("11111") == (5, 1)
    assert of("1111011111") == (10, 2)
    assert of("000") == (3, 3)


def test_the_expected_length_is_that_of_simulated_rounds() -> None:
    rng = np.random.default_rng(1)
    p, q = rng.dirichlet(np.ones(4), 4), rng.dirichlet(np.ones(4), 4)
    n = 100_000
    text = np.stack([rng.choice(4, n, p=row) for row in p], 1)  # what the target writes
    at = np.arange(4)
    overlap = np.minimum(p, q).sum(1)
    lengths = np.mean(
        [acceptance.expected(np.minimum(1, q[at, row] / p[at, row]), overlap).tokens for row in text[:20_000]]
    )
    drafted = np.stack([rng.choice(4, n, p=row) for row in q], 1)
    kept = rng.random((n, 4)) < p[at, drafted] / q[at, drafted]
    simulated = 1 + np.cumprod(kept, 1).sum(1).mean()
    assert lengths == pytest.approx(simulated, abs=0.02)


# All together.


def test_an_evaluation_has_all_measures_and_is_plain_json(donor: Donor, target: Vocab) -> None:
    seen: list[tuple[str, float]] = []
    alignment, mapped = aligned(target, donor)
    size = Size(nbytes=120, places=4, floor=0.02, answers=3)
    found = evaluate(
        donor,
        target,
        alignment,
        mapped,
        PlainRows(alignment, donor),
        size=size,
        threads=1,
        progress=lambda *state: seen.append(state),
    )
    assert list(found.kinds) == list(KINDS)
    for one in found.kinds.values():
        assert one.nbytes >= 120
        assert one.places == 4
        assert 0 <= one.left_over < 1
        assert all(0 < value < 20 for value in one.nats_per_byte.values())
        assert set(one.overlap) == {"draft", "baseline"}
    assert found.positions > 300
    data = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert set(data) == {"kinds", "turn_ends", "positions", "control", "seconds"}
    fractions = [fraction for stage, fraction in seen if stage == "evaluate"]
    assert fractions == sorted(fractions)
    assert (fractions[0], fractions[-1]) == (0.0, 1.0)


def test_it_stops_when_it_is_told_to(donor: Donor, target: Vocab) -> None:
    alignment, mapped = aligned(target, donor)
    rows = PlainRows(alignment, donor)
    with pytest.raises(LoadAborted):
        evaluate(donor, target, alignment, mapped, rows, threads=1, progress=lambda *_: False)
    size = Size(nbytes=100, places=1, floor=0.05, answers=1)
    with pytest.raises(LoadAborted):
        evaluate(donor, target, alignment, mapped, rows, size=size, threads=1, progress=lambda _, f: f < 0.5)


def test_a_text_that_one_vocabulary_cannot_spell_is_left_out_for_both(donor: Donor, target: Vocab) -> None:
    alignment, mapped = aligned(target, donor)
    found = evaluate(
        donor,
        target,
        alignment,
        mapped,
        PlainRows(alignment, donor),
        size=Size(places=2, floor=0.05, answers=1),
        given={"own": [Text("own", "one", "Some text."), Text("own", "empty", "")], "none": []},
        threads=1,
    )
    assert found.kinds["own"].texts == 1
    assert found.kinds["none"].texts == 0
    assert found.to_json()["kinds"]["none"]["gap"]["value"] is None


def test_depth_and_floor_bound_the_tree() -> None:
    assert marginal.DEPTH >= 3  # three digits of a donor are one token of Kimi's
    assert 0 < marginal.FLOOR < 0.01
