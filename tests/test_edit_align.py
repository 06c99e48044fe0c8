"""edit --align-to: an alignable pair becomes compatible, by libllama's own word too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edits import KEYS, P, model, same_tensors
from gguf_files import write_gguf
from pairs import SPECIALS, TOKENS, N, kimi_with, made
from tiny_gguf import CONTROL, NORMAL, UNUSED

import gguftools
from gguftools.errors import IncompatibleDraft, InputError
from gguftools.verbs.check import check
from gguftools.vocab import Vocab

THIRD = {P + "tokens": [*TOKENS[:-1], "<|other|>"]}
ALIGNABLE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "another name": ({}, THIRD),
    "all names": ({}, {P + "tokens": [*TOKENS[:N], "<|a|>", "<|b|>", "<|c|>"]}),
    "bos is added": ({P + "add_bos_token": True}, {}),
    "bos is not added": ({}, {P + "add_bos_token": True}),
    "eos is added, another id": (
        {P + "add_eos_token": True},
        {P + "add_eos_token": True, P + "eos_token_id": N + 2},
    ),
    "names, a flag and ids": (
        {P + "add_bos_token": True, P + "eot_token_id": N, P + "padding_token_id": N + 2},
        {**THIRD, P + "bos_token_id": None, P + "eos_token_id": N + 1},
    ),
    "a target without types": ({P + "token_type": None}, THIRD),
    "a draft without types": ({}, {**THIRD, P + "token_type": None}),
}


@pytest.mark.parametrize("name", ALIGNABLE)
def test_an_alignable_pair_becomes_one_that_llama_cpp_accepts(tmp_path: Path, name: str) -> None:
    says = pytest.importorskip("libllama_says")
    says.quiet()
    target, draft = (model(tmp_path / f"{i}.gguf", how) for i, how in enumerate(ALIGNABLE[name]))
    assert check(target, draft).verdict == "alignable"
    done = gguftools.edit(draft, tmp_path / "aligned.gguf", align_to=target)
    assert done.path == tmp_path / "aligned.gguf"
    assert done.changes
    assert check(target, done.path).verdict in ("identical", "compatible")
    assert same_tensors(draft, done.path)
    one, other = (says.ask(path) for path in (target, done.path))
    assert one
    assert (one.type, one.add_bos, one.add_eos, one.texts) == (
        other.type,
        other.add_bos,
        other.add_eos,
        other.texts,
    )
    assert not one.add_bos or one.bos == other.bos
    assert not one.add_eos or one.eos == other.eos
    again = gguftools.edit(done.path, align_to=target, dry_run=True)
    assert again.changes == ()


def test_roles_names_and_types_are_the_targets(tmp_path: Path) -> None:
    roles = {P + "eot_token_id": N, P + "padding_token_id": N + 2}
    target = model(tmp_path / "t.gguf", roles)
    plain = np.array([NORMAL] * (N + 2) + [UNUSED], np.int32)
    draft = model(tmp_path / "d.gguf", {**THIRD, P + "token_type": plain, P + "eos_token_id": N + 1})
    gguftools.edit(draft, in_place=True, align_to=target)
    vocab = Vocab.from_gguf(draft)
    assert vocab.special == {"bos": N + 1, "eos": N, "eot": N, "pad": N + 2}
    assert vocab.texts.tolist()[N:] == [text.encode() for text in SPECIALS]
    assert vocab.types[N:].tolist() == [NORMAL, NORMAL, CONTROL]  # the others have the right name


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an ordinary token differs": ({P + "tokens": [*TOKENS[:50], "other", *TOKENS[51:]]}, "texts"),
    "another kind of vocabulary": ({P + "model": "llama"}, "vocabulary type"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_where_keys_do_not_help_the_draft_is_refused_with_the_report(tmp_path: Path, name: str) -> None:
    change, rule = REFUSED[name]
    target, draft = model(tmp_path / "t.gguf"), model(tmp_path / "d.gguf", change)
    before = draft.read_bytes()
    with pytest.raises(IncompatibleDraft, match=rule) as caught:
        gguftools.edit(draft, in_place=True, align_to=target)
    assert caught.value.report.verdict == "incompatible"
    assert draft.read_bytes() == before


def test_a_vocabulary_of_another_size_is_refused_since_rows_are_no_keys(tmp_path: Path) -> None:
    more = [f"[PAD{i}]" for i in range(200)]
    target = made(tmp_path, "t", tokens=[*TOKENS, *more], types=[NORMAL] * N + [CONTROL] * 203)
    draft = model(tmp_path / "d.gguf", THIRD)
    assert check(target, draft).verdict == "alignable"
    with pytest.raises(IncompatibleDraft, match="size"):
        gguftools.edit(draft, in_place=True, align_to=target)


def test_what_is_set_beside_it_wins(tmp_path: Path) -> None:
    target, draft = model(tmp_path / "t.gguf"), model(tmp_path / "d.gguf", THIRD)
    gguftools.edit(draft, in_place=True, align_to=target, set={"general.name": "mine"}, token_type={N + 2: 5})
    assert gguftools.read_header(draft).get_str("general.name") == "mine"
    assert Vocab.from_gguf(draft).types[N + 2] == 5


def test_names_that_the_draft_learned_at_another_id_are_a_warning(tmp_path: Path) -> None:
    target = model(tmp_path / "t.gguf")
    moved = {P + "tokens": [*TOKENS[:N], "<|user|>", "<|end|>", "<|pad|>"]}
    done = gguftools.edit(model(tmp_path / "d.gguf", moved), align_to=target, dry_run=True)
    assert "<|end|> 301 → 300, <|user|> 300 → 301 by another id" in done.warnings[0]


def test_an_empty_name_is_none_to_give(tmp_path: Path) -> None:
    target = model(tmp_path / "t.gguf", {P + "tokens": [*TOKENS[:-1], ""]})
    with pytest.raises(InputError, match="is empty"):
        gguftools.edit(model(tmp_path / "d.gguf"), align_to=target, dry_run=True)


def test_check_advises_the_command_for_a_file_and_keys_for_what_is_none(tmp_path: Path) -> None:
    target, draft = model(tmp_path / "t.gguf"), model(tmp_path / "d.gguf", THIRD)
    assert check(target, draft).advice[-1] == f"gguftools edit {draft} --align-to {target} -o aligned.gguf"
    unsized = made(tmp_path, "long", tokens=[*TOKENS, *(f"[PAD{i}]" for i in range(200))], types=None)
    assert not any("gguftools edit" in line for line in check(unsized, draft).advice)


def test_names_of_k3_make_a_kimi_k2_file_its_draft(kimi: Vocab, kimi_folder: Path, tmp_path: Path) -> None:
    renamed = {163586: "<|im_stop|>", 163606: "<think>", 163607: "</think>"}
    merges = list(kimi.merges)
    draft = kimi_with(kimi, renamed, tmp_path, "draft", merges=merges)
    assert check(kimi_folder, draft).verdict == "alignable"
    done = gguftools.edit(draft, tmp_path / "aligned.gguf", align_to=kimi_folder)
    texts = [(change.key, change.new) for change in done.changes if "tokens[" in change.key]
    assert texts == [
        (P + "tokens[163586]", "<|im_end|>"),
        (P + "tokens[163606]", kimi.texts[163606].decode()),
        (P + "tokens[163607]", kimi.texts[163607].decode()),
    ]
    assert check(kimi_folder, done.path).verdict in ("identical", "compatible")


def test_a_vocabulary_alone_is_aligned_too(tmp_path: Path) -> None:
    keys = {key: value for key, value in {**KEYS, **THIRD}.items() if not key.startswith("llama.")}
    draft = write_gguf(tmp_path / "d.gguf", keys)
    done = gguftools.edit(draft, in_place=True, align_to=model(tmp_path / "t.gguf"))
    assert [change.key for change in done.changes] == [P + f"tokens[{N + 2}]"]
    assert check(tmp_path / "t.gguf", draft).verdict in ("identical", "compatible")
