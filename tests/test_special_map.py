"""The special tokens of one family in another: by table, name and named ids."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from alignments import CHATML, FAMILIES, FUZZ, TABLE, check_laws, of_family, told
from hypothesis import given
from hypothesis import strategies as st
from vocabularies import CONTROL, NAMES, NORMAL, USER, bpe, make, spm, vocabularies

from gguftools import errors, recipes
from gguftools.verbs.transplant.align import Kind, align
from gguftools.verbs.transplant.special_map import special_map
from gguftools.verbs.transplant.spelling import ordinary, speller
from gguftools.vocab import Vocab

KIMI_FROM_QWEN = {
    "[BOS]": ("<|endoftext|>", False),
    "[EOS]": ("<|endoftext|>", True),
    "<|im_end|>": ("<|im_end|>", True),
    "<|im_user|>": ("<|im_start|>", False),
    "<|im_assistant|>": ("<|im_start|>", False),
    "<|start_header_id|>": ("<|im_start|>", False),
    "<|end_header_id|>": ("\n", False),
    "[EOT]": ("<|im_end|>", False),
    "<|im_system|>": ("<|im_start|>", False),
    "<|tool_calls_section_begin|>": ("<tool_call>", True),
    "<|tool_call_begin|>": ("<tool_call>", False),
    "<|tool_call_end|>": ("</tool_call>", True),
    "<|im_middle|>": ("\n", False),
}


def test_kimi_from_qwen(kimi: Vocab, qwen: Vocab) -> None:
    found = special_map(kimi, qwen, {})
    assert told(found) == KIMI_FROM_QWEN
    by_id = {mapped.target: mapped for mapped in found}
    assert by_id[163586].donor == (151645,)
    assert by_id[163585].donor == (151643,)
    assert by_id[163601].donor == (198,)
    assert by_id[163586].how == "table kimi-k2: turn_end"
    alignment = align(kimi, qwen, by_id)
    check_laws(alignment, kimi, qwen)
    assert alignment.draftable[163584:].nonzero()[0].tolist() == [1, 2, 11, 15]


def test_kimi_from_smollm2_cannot_call_tools(kimi: Vocab, smol: Vocab) -> None:
    found = special_map(kimi, smol, {})
    assert told(found) == {text: wish for text, wish in KIMI_FROM_QWEN.items() if "tool" not in text}
    assert {mapped.target: mapped.donor for mapped in found if mapped.draftable} == {
        163585: (0,),
        163586: (2,),
    }


def test_qwen_and_smollm2_both_ways(qwen: Vocab, smol: Vocab) -> None:
    assert told(special_map(qwen, smol, {})) == {
        "<|endoftext|>": ("<|endoftext|>", True),
        "<|im_start|>": ("<|im_start|>", False),
        "<|im_end|>": ("<|im_end|>", True),
        "<|repo_name|>": ("<repo_name>", False),
        "<|file_sep|>": ("<file_sep>", True),
    }
    assert told(special_map(smol, qwen, {})) == {
        "<|endoftext|>": ("<|endoftext|>", True),
        "<|im_start|>": ("<|im_start|>", False),
        "<|im_end|>": ("<|im_end|>", True),
        "<repo_name>": ("<|repo_name|>", False),
        "<reponame>": ("<|repo_name|>", False),
        "<file_sep>": ("<|file_sep|>", True),
    }


def renamed(folder: Path, names: dict[str, int]) -> Vocab:
    """Kimi's vocabulary with other names."""
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    settings_ = json.loads(files["tokenizer_config.json"])
    tokens = {str(i): {"content": text, "special": True} for text, i in names.items()}
    files["tokenizer_config.json"] = json.dumps({**settings_, "added_tokens_decoder": tokens}).encode()
    return Vocab.from_checkpoint(files)


def test_the_names_of_k2_5_and_of_k3(kimi_folder: Path, shared_data: Path, qwen: Vocab) -> None:
    names = {
        no: json.loads((shared_data / "kimi" / f"kimi_k{no}.special_tokens.json").read_text("utf-8"))
        for no in (2, 3)
    }
    k2_5 = special_map(renamed(kimi_folder, names[2]), qwen, {})
    assert told(k2_5) == KIMI_FROM_QWEN  # Qwen2.5 cannot think, and reads no images
    k3 = {
        mapped.target: (mapped.donor_text, mapped.draftable)
        for mapped in special_map(renamed(kimi_folder, names[3]), qwen, {})
    }
    assert [i for i, (_, drafted) in k3.items() if drafted] == [163585, 163588]
    assert k3[163588] == ("<|im_end|>", True)  # <|close|> follows an answer
    assert k3[163586] == ("<|im_end|>", False)
    assert (k3[163587], k3[163589]) == (("<|im_start|>", False), ("\n", False))


def test_a_conversation_in_kimis_tokens_becomes_one_in_the_donors(kimi: Vocab, qwen: Vocab) -> None:
    golden = [163587, 2482, 163601, 22931, 163586, 163588, 69702, 163601]
    alignment = align(kimi, qwen, {mapped.target: mapped for mapped in special_map(kimi, qwen, {})})
    text = qwen.decode(int(i) for token in golden for i in alignment.of(token))
    assert text == b"<|im_start|>user\nhello<|im_end|><|im_start|>assistant\n"


def test_thinking_is_drafted_where_the_donor_can_think() -> None:
    kimi = bpe([], [*FAMILIES["kimi-k2"]["tokens"], "<think>", "</think>"])
    thinks = told(special_map(kimi, bpe([], [*CHATML, "<think>", "</think>"]), {}))
    assert (thinks["<think>"], thinks["</think>"]) == (("<think>", True), ("</think>", True))
    assert "<think>" not in told(special_map(kimi, bpe([], CHATML), {}))


@pytest.mark.parametrize("donor", FAMILIES)
@pytest.mark.parametrize("target", FAMILIES)
def test_every_family_maps_to_every_other(target: str, donor: str) -> None:
    ours, theirs = of_family(target), of_family(donor)
    found = special_map(ours, theirs, {})
    ends = [text for text, roles in FAMILIES[target]["tokens"].items() if "turn_end" in roles]
    its = [text for text, roles in FAMILIES[donor]["tokens"].items() if "turn_end" in roles]
    wish, drafted_ = told(found)[ends[0]]
    assert wish.startswith(its[0])
    assert (wish == its[0]) == (target != "glm" or donor == "glm")
    assert drafted_
    drafted = [mapped.donor[0] for mapped in found if mapped.draftable]
    assert len(set(drafted)) == len(drafted)
    assert not any(mapped.draftable for mapped in found if "start_" in mapped.target_text)
    check_laws(align(ours, theirs, {mapped.target: mapped for mapped in found}), ours, theirs)


def test_the_word_for_a_role_is_written_where_only_the_donor_writes_it() -> None:
    found = told(special_map(of_family("deepseek"), of_family("chatml"), {}))
    assert found["<｜User｜>"] == ("<|im_start|>user\n", False)
    assert found["<｜Assistant｜>"] == ("<|im_start|>assistant\n", False)
    found = told(special_map(of_family("deepseek"), of_family("gemma"), {}))
    assert found["<｜Assistant｜>"] == ("<start_of_turn>model\n", False)
    found = told(special_map(of_family("kimi-k2"), of_family("deepseek"), {}))
    assert found["<|im_user|>"] == ("<｜User｜>", False)
    assert "<|im_middle|>" not in found
    found = told(special_map(of_family("kimi-k2"), of_family("llama-3"), {}))
    assert found["<|im_middle|>"] == ("<|end_header_id|>\n\n", False)


def test_a_token_that_ends_a_turn_and_begins_the_next_is_scored_as_the_one_and_read_as_the_other() -> None:
    glm, chatml = of_family("glm"), of_family("chatml")
    found = told(special_map(glm, chatml, {}))
    assert found["<|user|>"] == ("<|im_end|><|im_start|>user\n", True)
    assert found["<|assistant|>"] == ("<|im_start|>assistant\n", False)
    assert found["<|endoftext|>"] == ("<|endoftext|>", True)
    alignment = align(glm, chatml, {m.target: m for m in special_map(glm, chatml, {})})
    pieces = alignment.of(glm.id_of(b"<|user|>")).tolist()
    assert (pieces[0], pieces[-1]) == (chatml.id_of(b"<|im_end|>"), chatml.id_of("Ċ".encode()))


KINDS = {
    "glm": {"<|user|>": "<|im_end|>", "<|endoftext|>": "<|endoftext|>"},
    "gpt-oss": {"<|return|>": "<|im_end|>", "<|endoftext|>": "<|endoftext|>", "<|call|>": "</tool_call>"},
    "phi-3": {"<|end|>": "<|im_end|>", "<|endoftext|>": "<|endoftext|>", "<|tool_call|>": "<tool_call>"},
    "phi-4": {"<|im_end|>": "<|im_end|>", "<|endoftext|>": "<|endoftext|>"},
    "llama-4": {
        "<|eot|>": "<|im_end|>",
        "<|end_of_text|>": "<|endoftext|>",
        "<|python_start|>": "<tool_call>",
    },
}


@pytest.mark.parametrize("name", KINDS)
def test_what_qwen_drafts_for_other_families(name: str) -> None:
    donor = bpe([b"user", b"assistant"], [*CHATML, "<tool_call>", "</tool_call>"])
    found = special_map(of_family(name), donor, {})
    drafted = {m.target_text: donor.texts[m.donor[0]].decode() for m in found if m.draftable}
    assert KINDS[name].items() <= drafted.items()
    tools = {text: wish for text, wish in drafted.items() if "tool" in wish}
    assert drafted == {**KINDS[name], **tools}


def test_the_new_families_are_told_apart() -> None:
    for name in FAMILIES:
        specials = FAMILIES[name]["tokens"]
        first = next(f for f in FAMILIES.values() if all(text in specials for text in f["known_by"]))
        assert first["name"] == name


def test_messages_in_harmony_are_read_as_the_donors() -> None:
    harmony, donor = of_family("gpt-oss"), bpe([b"user", b"assistant"], CHATML)
    found = told(special_map(harmony, donor, {}))
    assert found["<|start|>"] == ("<|im_start|>", False)
    assert found["<|message|>"] == ("\n", False)
    assert found["<|end|>"] == ("<|im_end|>", False)
    assert "<|channel|>" not in told(
        special_map(bpe([], [*FAMILIES["gpt-oss"]["tokens"], "<|channel|>"]), donor, {})
    )


@pytest.mark.parametrize("named", [{"eos": 1}, {"eot": 1}, {"eos": 1, "eot": 1}, {"eos": 2, "eot": 1}])
@pytest.mark.parametrize("kind", [CONTROL, USER, NORMAL])
def test_an_end_that_both_files_name_is_drafted_where_no_table_knows_the_family(
    named: dict[str, int], kind: int
) -> None:
    tokens = [(b"a", NORMAL), (b"<|fin|>", kind), (b"<|over|>", CONTROL), (b"<|other|>", CONTROL)]
    target = make("gpt2", tokens, special=named)
    donor = make("gpt2", [(b"b", NORMAL), *tokens], special={name: i + 1 for name, i in named.items()})
    found = told(special_map(target, donor, {}))
    assert found["<|fin|>"] == ("<|fin|>", True)
    assert found["<|over|>"] == ("<|over|>", 2 in named.values())
    assert found["<|other|>"] == ("<|other|>", False)


def test_where_one_donor_token_ends_turn_and_text_the_turn_keeps_it() -> None:
    found = told(special_map(of_family("kimi-k2"), of_family("deepseek"), {}))
    assert found["<|im_end|>"] == ("<｜end▁of▁sentence｜>", True)
    assert found["[EOS]"] == ("<｜end▁of▁sentence｜>", False)


def test_llama_2_is_known_by_the_ids_that_its_file_names() -> None:
    llama = spm(["▁", "a"], special={"bos": 1, "eos": 2})
    found = special_map(llama, bpe([], CHATML), {})
    assert told(found) == {"<s>": ("<|endoftext|>", False), "</s>": ("<|im_end|>", True)}
    assert {mapped.how for mapped in found} == {"role: bos", "role: turn_end"}
    back = special_map(bpe([], CHATML), llama, {})
    assert told(back)["<|im_end|>"] == ("</s>", True)
    assert told(back)["<|endoftext|>"] == ("</s>", False)


def test_the_same_name_is_taken_where_no_role_is_known() -> None:
    tokens = [(b"a", NORMAL), (b"<answer>", USER), (b"<|seg|>", CONTROL), (b"<|reserved_1|>", CONTROL)]
    one, two = make("gpt2", tokens), make("gpt2", [(b"\xc4\x8a", NORMAL), *tokens])
    found = special_map(one, two, {})
    assert told(found) == {"<answer>": ("<answer>", True), "<|seg|>": ("<|seg|>", False)}
    assert {mapped.how for mapped in found} == {"name"}


def test_a_named_end_of_turn_counts_whatever_its_type() -> None:
    tokens = [(b"a", NORMAL), (b"<|im_end|>", NORMAL)]
    odd = make("gpt2", tokens, special={"eos": 1})
    found = special_map(odd, bpe([], CHATML), {})
    assert told(found) == {"<|im_end|>": ("<|im_end|>", True)}
    assert align(odd, bpe([], CHATML), {m.target: m for m in found}).kind.tolist() == [
        Kind.EXACT,
        Kind.SPECIAL,
    ]
    back = special_map(bpe([], CHATML), odd, {})
    assert told(back)["<|im_end|>"] == ("<|im_end|>", True)
    comma = make("gpt2", [(b",", NORMAL)] * 20)  # libllama's default for a bos and an eos that are not named
    assert special_map(comma, bpe([], CHATML), {}) == []


def test_the_table_is_whole() -> None:
    """Every role is written in its comment, and every family can end a turn and begin one."""
    text = (Path(recipes.__file__).parent.parent / "models" / "special-tokens.toml").read_text("utf-8")
    comment = text[: text.index("drafted = [")]
    roles = set(TABLE["drafted"]) | set(TABLE["anywhere"].values()) | set(TABLE["instead"])
    roles |= {role for others in TABLE["instead"].values() for role in others}
    for family in FAMILIES.values():
        given = [
            r
            for roles_ in family["tokens"].values()
            for r in ([roles_] if isinstance(roles_, str) else roles_)
        ]
        roles |= {*given, *family["writes"]}
        assert given.count("turn_end") == 1, family["name"]
        assert any(role.startswith("turn_start") for role in given), family["name"]
        assert set(family["known_by"]) <= family["tokens"].keys()
        assert family["says"].keys() <= {"user", "assistant", "system", "tool"}
    for role in roles:
        assert role.partition(":")[0] in comment, role


@FUZZ
@given(target=vocabularies(), donor=vocabularies(), data=st.data())
def test_random_vocabularies_never_break_the_map(target: Vocab, donor: Vocab, data: st.DataObject) -> None:
    texts = st.sampled_from(NAMES) | st.text(max_size=3)
    own = data.draw(st.dictionaries(texts, texts, max_size=2))
    try:
        found = special_map(target, donor, own)
    except errors.InputError:
        assert own
        found = special_map(target, donor, {})
    assert [mapped.target for mapped in found] == sorted({mapped.target for mapped in found})
    special, plain = ~ordinary(donor), ordinary(target)
    named = set(donor.special.values())
    first = [mapped.donor[0] for mapped in found if mapped.draftable]
    assert len(set(first)) == len(first)
    for mapped in found:
        assert mapped.donor
        assert speller(donor).encode(mapped.donor_text) == list(mapped.donor)
        if mapped.draftable and not plain[mapped.target]:
            assert special[mapped.donor[0]] or mapped.donor[0] in named
    alignment = align(target, donor, {mapped.target: mapped for mapped in found})
    check_laws(alignment, target, donor)
    assert not alignment.draftable[np.isin(alignment.kind, (Kind.RESERVED, Kind.UNREACHABLE))].any()
