"""The tokenizer that calibration and evaluation use."""

from __future__ import annotations

import pytest
import tiny
import vocabularies as vs
from hypothesis import given, settings

from gguftools.errors import GGUFToolsError, Unsupported
from gguftools.verbs.transplant.tokenizing import Tokenizer, start_id
from gguftools.vocab import Vocab


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


def test_a_text_begins_after_the_token_that_the_donor_begins_texts_with() -> None:
    names = ["<s>", "</s>", "<|endoftext|>"]
    assert start_id(vs.bpe([], names, special={"bos": 256}, add_bos=True)) == 256
    assert start_id(vs.bpe([], names, special={"bos": 256})) == 258
    assert start_id(vs.bpe([], names[:2], special={"eos": 257})) in (11, 257)  # libllama's own bos is 11
