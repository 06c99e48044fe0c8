"""Alignment: bytes and not text, twins, what the donor cannot spell, what may never be drafted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from alignments import FUZZ, check_laws
from hypothesis import given
from hypothesis import strategies as st
from vocabularies import CONTROL, NORMAL, UNUSED, USER, bpe, make, spm, vocabularies

from gguftools import errors
from gguftools.verbs.transplant import spelling as spelling_module
from gguftools.verbs.transplant.align import Alignment, Kind, align, looks_reserved
from gguftools.verbs.transplant.spelling import is_text, ordinary, speller, token_bytes
from gguftools.vocab import Vocab


@dataclass(frozen=True)
class Wish:
    """What align needs of a mapped token."""

    donor: tuple[int, ...]
    draftable: bool


def said(alignment: Alignment, donor: Vocab, target: int) -> tuple[Kind, bytes, bool]:
    """(kind, the bytes of the donor's pieces, draftable) of a target id."""
    data = donor.decode(alignment.of(target).tolist())
    return Kind(alignment.kind[target]), data, bool(alignment.draftable[target])


def test_pieces_have_the_bytes_of_a_token_that_is_no_text() -> None:
    target = bpe([b"\xe4\xb8", b"a\xff\xfe", b"\xff\xfe"])
    donor = bpe([b"\xe4\xb8"])
    found = align(target, donor, {})
    assert said(found, donor, 256) == (Kind.EXACT, b"\xe4\xb8", True)
    assert said(found, donor, 257) == (Kind.PIECES, b"a\xff\xfe", True)
    assert found.of(257).tolist() == [ord("a"), 255, 254]
    check_laws(found, target, donor)


def test_of_two_tokens_with_the_same_bytes_only_the_one_that_is_emitted_can_be_drafted() -> None:
    donor = bpe([b"ab"])
    twice = make("gpt2", [(b"ab", NORMAL), (b"b", NORMAL), (b"ab", NORMAL)])
    found = align(twice, donor, {})
    assert [said(found, donor, i)[::2] for i in (0, 2)] == [(Kind.EXACT, True), (Kind.UNREACHABLE, False)]
    spaces = spm(["\n", "▁"])
    found = align(spaces, donor, {})
    newline, space = 3 + ord("\n"), 3 + ord(" ")
    assert [Kind(found.kind[i]) for i in (newline, space)] == [Kind.UNREACHABLE] * 2
    assert [said(found, donor, i) for i in (259, 260)] == [
        (Kind.EXACT, b"\n", True),
        (Kind.EXACT, b" ", True),
    ]
    check_laws(found, spaces, donor)


def test_specials_and_reserved_places_are_never_drafted_unless_mapped() -> None:
    target = bpe([b"ab"], ["<|im_end|>", "<|reserved_token_258|>", "<|unmapped|>"])
    donor = bpe([b"ab"], ["<|im_end|>"])
    found = align(target, donor, {257: Wish((257,), True)})
    assert said(found, donor, 257) == (Kind.SPECIAL, b"<|im_end|>", True)
    assert said(found, donor, 258) == (Kind.RESERVED, b"\n", False)
    assert said(found, donor, 259) == (Kind.SPECIAL, b"\n", False)
    check_laws(found, target, donor)


def test_a_mapped_token_does_not_tie_with_an_ordinary_one() -> None:
    target, donor = bpe([b"ab"], ["<tool>"]), bpe([b"ab"])
    found = align(target, donor, {257: Wish((256,), True)})
    assert said(found, donor, 256) == (Kind.EXACT, b"ab", True)
    assert said(found, donor, 257) == (Kind.SPECIAL, b"ab", False)


def test_empty_tokens_and_holes_are_unreachable_or_reserved() -> None:
    target = make("gpt2", [(b"", NORMAL), (b"", CONTROL), (b"[PAD2]", UNUSED), (b"x", UNUSED), (b"", UNUSED)])
    found = align(target, bpe(), {})
    kinds = [Kind.UNREACHABLE, Kind.UNREACHABLE, Kind.RESERVED, Kind.RESERVED, Kind.UNREACHABLE]
    assert [Kind(kind) for kind in found.kind] == kinds
    assert not found.draftable.any()
    empty = align(make("gpt2", []), make("gpt2", []), {})
    assert (empty.counts(), empty.starts.tolist()) == (dict.fromkeys(empty.counts(), 0), [0])


def test_a_sentencepiece_token_keeps_its_leading_space() -> None:
    donor = bpe([b" the", b"the"])
    found = align(spm(["▁the", "the", "▁the▁the"]), donor, {})
    assert [said(found, donor, i) for i in (259, 260, 261)] == [
        (Kind.EXACT, b" the", True),
        (Kind.EXACT, b"the", True),
        (Kind.PIECES, b" the the", True),
    ]
    back = align(donor, spm(["▁", "▁the", "the"]), {})
    assert back.of(256).tolist() == [260]


def test_what_the_donor_cannot_spell_is_unreachable() -> None:
    donor = make("gpt2", [(b"a", NORMAL), (b"ab", NORMAL), (b"b", CONTROL)])
    found = align(bpe([b"aa", b"ab", b"aab", b"ba"]), donor, {})
    assert [Kind(found.kind[i]) for i in (256, 257, 258, 259, ord("b"))] == [
        Kind.PIECES,
        Kind.EXACT,
        Kind.UNREACHABLE,
        Kind.UNREACHABLE,
        Kind.UNREACHABLE,
    ]


def test_user_defined_tokens_are_text_unless_they_look_like_a_tag() -> None:
    text = [b"  ", b"\n\n\n", b"<h1>", b"</table>", "ü".encode(), b"<", b"[1"]
    tags = [b"<think>", b"</tool_call>", b"<|x|>", b"[INST]", b"<s>", b"</s>", b"<start_of_turn>", b""]
    assert [is_text(data) for data in text + tags] == [True] * len(text) + [False] * len(tags)
    donor = bpe([b"  "])
    found = align(make("llama", [(b"  ", USER), (b"<think>", USER), ("▁▁".encode(), NORMAL)]), donor, {})
    assert said(found, donor, 0) == (Kind.EXACT, b"  ", True)
    assert Kind(found.kind[1]) == Kind.SPECIAL
    assert Kind(found.kind[2]) == Kind.UNREACHABLE  # the tokenizer looks for user-defined tokens first


def test_names_of_reserved_places_are_known() -> None:
    reserved = ["<|reserved_token_7|>", "<|reserved_special_token_0|>", "<unused3>", "[PAD151665]", "<pad>"]
    reserved += ["<|extra_0|>", "<extra_id_0>", "<SPECIAL_12>", "<｜place▁holder▁no▁0｜>", "<|padding|>"]
    real = ["<|im_end|>", "[UNK]", "<|fim_pad|>", "<repo_name>", "<|image_pad|>", "<tool_call>", "[EOS]"]
    assert [looks_reserved(name) for name in reserved + real] == [True] * len(reserved) + [False] * len(real)


def test_a_byte_level_donor_merges_the_lowest_rank_first_and_of_several_the_leftmost() -> None:
    tokens = [(text, int(NORMAL)) for text in (b"a", b"b", b"c", b"aa", b"bc", b"ab")]
    spelling = speller(make("gpt2", tokens, merges=[b"b c", b"a b", b"a a", b"a b"]))
    assert spelling.spell(b"abc") == [0, 4]  # not ab + c
    assert spelling.spell(b"aaa") == [3, 0]
    assert spelling.spell(b"aab") == [0, 5]
    assert spelling.spell(b"abd") is None


def test_a_merged_part_that_is_no_token_is_spelled_byte_by_byte() -> None:
    tokens = [(text, int(NORMAL)) for text in (b"a", b"b", b"abb")]
    assert speller(make("gpt2", tokens, merges=[b"a b"])).spell(b"ab") == [0, 1]


def test_a_sentencepiece_donor_merges_by_score_and_falls_back_to_bytes() -> None:
    spelling = speller(spm(["▁t", "he", "▁the", "▁", "t", "h", "e"]))
    t, he, the, space = 259, 260, 261, 262
    assert spelling.spell(b" the") == [the]
    assert spelling.spell(b" thehe") == [the, he]
    assert spelling.spell(b" t t") == [t, t]
    assert spelling.spell("é▁".encode()) == [3 + byte for byte in "é▁".encode()]  # a real ▁ is no space
    assert spelling.spell(b" \xe4\xb8t") == [space, 3 + 0xE4, 3 + 0xB8, 263]


def test_special_names_in_a_donor_text_are_special_tokens() -> None:
    donor = bpe([b"user", b"user\n"], ["<|im_start|>", "<|im_start|>x"])
    spelling = speller(donor)
    assert spelling.encode("<|im_start|>user\n") == [258, 257]
    assert spelling.encode("a<|im_start|>x") == [ord("a"), 259]
    assert spelling.encode("") == []
    assert speller(make("gpt2", [(b"a", NORMAL)])).encode("ab") is None


def test_a_very_long_token_is_unreachable_and_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    merged, merge = [], spelling_module._merge
    monkeypatch.setattr(
        spelling_module, "_merge", lambda who, parts: merged.append(len(parts)) or merge(who, parts)
    )
    target = bpe([], [])
    long = make("gpt2", [(b"a" * 1_000_000, NORMAL), (b"ab" * 900, NORMAL)])
    found = align(long, target, {})
    assert [Kind(kind) for kind in found.kind] == [Kind.UNREACHABLE, Kind.PIECES]
    assert merged == [1800]  # merging is quadratic: the long one was never tried


def test_other_kinds_of_vocabularies_are_refused() -> None:
    for model in ("bert", "t5", ""):
        other = make(model, [(b"a", NORMAL)])
        with pytest.raises(errors.Unsupported, match="not known"):
            align(other, bpe(), {})
        with pytest.raises(errors.Unsupported, match="not known"):
            align(bpe(), other, {})


@FUZZ
@given(target=vocabularies(), donor=vocabularies(), data=st.data())
def test_no_pair_of_vocabularies_breaks_a_law(target: Vocab, donor: Vocab, data: st.DataObject) -> None:
    ids = st.integers(0, max(donor.n_tokens - 1, 0))
    wishes = st.builds(Wish, st.lists(ids, max_size=3).map(tuple), st.just(False))
    some = st.integers(0, max(target.n_tokens - 1, 0))
    mapped = data.draw(st.dictionaries(some, wishes, max_size=4))
    if not target.n_tokens or not donor.n_tokens:
        mapped = {}
    check_laws(align(target, donor, mapped), target, donor)


@FUZZ
@given(vocab=vocabularies())
def test_a_vocabulary_spells_its_own_tokens(vocab: Vocab) -> None:
    found = align(vocab, vocab, {})
    plain, tokens = ordinary(vocab), token_bytes(vocab)
    twins = {tokens[i] for i in np.flatnonzero(plain) if tokens[i]}
    assert found.counts()["exact"] == len(twins)
    assert found.counts()["pieces"] == 0


@FUZZ
@given(vocab=vocabularies(), data=st.binary(max_size=24), text=st.text(max_size=8))
def test_what_is_spelled_has_the_bytes(vocab: Vocab, data: bytes, text: str) -> None:
    spelling, tokens = speller(vocab), token_bytes(vocab)
    ids = spelling.spell(data)
    assert ids is None or b"".join(tokens[i] for i in ids) == data
    ids = spelling.encode(text)
    assert ids is None or b"".join(tokens[i] for i in ids) == text.encode("utf-8", "replace")
