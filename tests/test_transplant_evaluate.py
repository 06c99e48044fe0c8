"""evaluate: losses, turn ends, the known tool's rule, all measures together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import lowlevel
import numpy as np
import pytest
import tiny
import transplants as tp
import vocabularies as vs

from gguftools import libllama
from gguftools.errors import LoadAborted
from gguftools.header import read_header
from gguftools.libllama.states import Reader
from gguftools.verbs.transplant.align import Alignment, align
from gguftools.verbs.transplant.donor import Donor
from gguftools.verbs.transplant.evaluate import Size, evaluate, scoring, turns
from gguftools.verbs.transplant.evaluate.baseline import BaselineRows
from gguftools.verbs.transplant.evaluate.scoring import Head, OwnRows, input_rows
from gguftools.verbs.transplant.evaluate.setup import CPU
from gguftools.verbs.transplant.evaluate.texts import KINDS, answers, held_out
from gguftools.verbs.transplant.number_text import number_text
from gguftools.verbs.transplant.rows import PlainRows
from gguftools.verbs.transplant.special_map import special_map
from gguftools.verbs.transplant.text import Text
from gguftools.verbs.transplant.tokenizing import Tokenizer
from gguftools.vocab import TokenType, Vocab

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
