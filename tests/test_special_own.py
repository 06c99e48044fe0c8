"""The special tokens of one family in another: what a person says of them, with --map."""

from __future__ import annotations

import pytest
from alignments import CHATML, of_family, told
from vocabularies import CONTROL, NORMAL, bpe, make, spm

from gguftools import errors
from gguftools.verbs.transplant.special_map import special_map
from gguftools.vocab import byte_letters


def test_what_the_caller_says_comes_first() -> None:
    target, donor = of_family("kimi-k2"), bpe([b"user"], [*CHATML, "<tool_call>"])
    found = special_map(target, donor, {"[EOT]": "<|im_end|>", "<|im_middle|>": "<|endoftext|>user"})
    mapped = {m.target_text: m for m in found}
    assert mapped["[EOT]"].how == "--map"
    assert mapped["[EOT]"].draftable
    assert not mapped["<|im_end|>"].draftable
    assert mapped["<|im_middle|>"].donor == (257, 256)


def test_text_never_becomes_a_control_token_even_where_the_caller_maps_it() -> None:
    target, donor = of_family("kimi-k2"), bpe([b"user"], CHATML)
    found = told(special_map(target, donor, {"<|tool_call_begin|>": "user"}))
    assert found["<|tool_call_begin|>"] == ("user", False)


def test_an_ordinary_target_token_can_be_mapped_too() -> None:
    target = bpe([b" foo", b" bar", "é".encode()])
    for name in (" foo", "Ġfoo"):
        (mapped,) = special_map(target, bpe([b"x"]), {name: "xy"})
        assert (mapped.target, mapped.donor, mapped.draftable) == (256, (ord("x"), ord("y")), True)
    assert special_map(target, bpe(), {"é": "e"})[0].target == 258
    llama = spm(["▁foo"])
    assert special_map(llama, bpe(), {" foo": "e"})[0].target == 259


def test_wrong_maps_are_explained() -> None:
    target, donor = of_family("kimi-k2"), make("gpt2", [(b"a", NORMAL), (b"<|im_end|>", CONTROL)])
    with pytest.raises(errors.InputError, match=r"no token '<\|im_usr\|>'") as caught:
        special_map(target, donor, {"<|im_usr|>": "a"})
    assert "<|im_user|>" in caught.value.hint
    with pytest.raises(errors.InputError, match="the donor has no tokens for it"):
        special_map(target, donor, {"[EOT]": "ab"})
    with pytest.raises(errors.InputError, match="it is empty"):
        special_map(target, donor, {"[EOT]": ""})
    with pytest.raises(errors.InputError, match="no token ''"):
        special_map(target, donor, {"": "a"})


def test_a_map_to_a_special_token_that_the_donor_lacks_is_said(caplog: pytest.LogCaptureFixture) -> None:
    target = make("gpt2", [(b"a", NORMAL), (b"<|im_end|>", CONTROL)], special={"eos": 1})
    donor = make("gpt2", [(byte_letters.to_letters(bytes([i])), NORMAL) for i in range(256)])
    special_map(target, donor, {"<|im_end|>": "<|nope|>"})
    assert "no special token '<|nope|>'" in caplog.text
    special_map(target, donor, {"a": "b"})
    assert "'a' is no special token of the target" in caplog.text
