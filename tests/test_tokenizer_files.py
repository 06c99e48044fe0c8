"""Vocab.from_checkpoint: what is read from a folder's files, and what is said about broken ones."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from tokenizer_files import folder_vocab, spm_doc, spm_model, tokenizer_json

from gguftools.errors import FormatError, GGUFToolsError, NotFound, Unsupported
from gguftools.vocab import Vocab
from gguftools.vocab.pieces import TokenType


def test_a_folder_is_read_as_llama_cpps_converter_reads_it() -> None:
    vocab = folder_vocab(
        tokenizer_json(),
        config={"vocab_size": 266, "bos_token_id": 259, "eos_token_id": 5, "model_type": "qwen2"},
        tokenizer_config={
            "eos_token": {"content": "<|im_end|>"},
            "pad_token": None,
            "add_prefix_space": False,
        },
        generation_config={"eos_token_id": [260, 262], "pad_token_id": 262},
    )
    assert (vocab.model, vocab.pre, vocab.n_tokens) == ("gpt2", "qwen2", 266)
    assert vocab.special == {"bos": 259, "eos": 260, "eot": 260, "pad": 262}
    assert (vocab.add_bos, vocab.add_eos, vocab.add_space_prefix) == (False, False, None)
    kinds = [TokenType(kind) for kind in vocab.types[258:].tolist()]
    control, unused = TokenType.CONTROL, TokenType.UNUSED
    wanted = [TokenType.NORMAL, control, control, TokenType.USER_DEFINED, control, unused, unused, unused]
    assert kinds == wanted
    assert vocab.texts[263:] == [b"[PAD263]", b"[PAD264]", b"[PAD265]"]
    assert list(vocab.merges) == ["Ġ t".encode(), b"h e", "Ġt he".encode()]
    assert vocab.tokens[258] == b" the"
    assert vocab.tokens[261] == b"<tool_call>"
    assert vocab.decode([258, 0]) == b" the\0"
    assert vocab.id_of("Ġthe".encode()) == 258
    assert vocab.id_of(b"nothing") is None


def test_merges_may_be_pairs() -> None:
    pairs = tokenizer_json()
    pairs["model"] = {**pairs["model"], "merges": [["Ġ", "t"], ["h", "e"], [" t", "he"]]}
    assert folder_vocab(pairs) == folder_vocab(tokenizer_json())


@pytest.mark.parametrize(
    ("merge", "why"),
    [
        ("onlyone", "onlyone"),
        ("a b c", "a b c"),
        ("t h", "'th'"),
        (["x", "nothere"], "nothere"),
        ("h ", "h "),
    ],
)
def test_a_merge_that_is_not_of_two_tokens_of_the_vocabulary_is_refused(merge: Any, why: str) -> None:
    doc = tokenizer_json()
    doc["model"] = {**doc["model"], "merges": ["h e", merge]}
    with pytest.raises(FormatError, match=why):
        folder_vocab(doc)


def test_ids_without_a_token_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    doc = tokenizer_json()
    folder_vocab(doc)
    folder_vocab(doc, config={"vocab_size": 264})  # a little padding is usual
    assert not caplog.records
    del doc["model"]["vocab"]["Z"]
    folder_vocab(doc)
    assert "1 of 263 ids have no token, the first is 90" in caplog.text
    folder_vocab(tokenizer_json(), config={"vocab_size": 300})
    assert "37 of 300 ids have no token" in caplog.text


@pytest.mark.parametrize(
    ("post", "settings", "wanted"),
    [
        (None, {}, (None, None)),
        (None, {"add_bos_token": True, "add_eos_token": False}, (True, False)),
        ({"type": "ByteLevel"}, {"add_bos_token": True}, (False, False)),
        ({"type": "TemplateProcessing", "single": ["B", "A"]}, {}, (True, None)),
        ({"type": "TemplateProcessing", "single": ["B", "A"]}, {"add_bos_token": False}, (True, None)),
        ({"type": "TemplateProcessing", "single": ["A", "E"]}, {}, (None, True)),
        ({"type": "Sequence", "processors": ["bytes", "template"]}, {}, (True, False)),
    ],
)
def test_what_is_added_around_a_text_is_seen_in_the_post_processor(
    post: Any, settings: dict[str, Any], wanted: tuple[bool | None, bool | None]
) -> None:
    steps = {
        "A": {"Sequence": {"id": "A"}},
        "B": {"SpecialToken": {"id": "<|bos|>"}},
        "E": {"SpecialToken": {"id": "<|im_end|>"}},
    }
    template = {"type": "TemplateProcessing", "single": [steps["B"], steps["A"]]}
    if post and "single" in post:
        post = {**post, "single": [steps[step] for step in post["single"]]}
    if post and "processors" in post:
        post = {**post, "processors": [{"type": "ByteLevel"}, template]}
    config = {"bos_token": "<|bos|>", "eos_token": "<|im_end|>", **settings}
    vocab = folder_vocab(tokenizer_json(post_processor=post), tokenizer_config=config)
    assert (vocab.add_bos, vocab.add_eos) == wanted


def test_llama_folders_say_whether_a_space_is_put_before_a_text() -> None:
    for kind, wanted in (("llama", False), ("qwen2", None)):
        vocab = folder_vocab(
            tokenizer_json(), config={"model_type": kind}, tokenizer_config={"add_prefix_space": False}
        )
        assert vocab.add_space_prefix is wanted


def test_chat_templates_come_as_text_as_list_and_as_files() -> None:
    doc = {"tokenizer.json": json.dumps(tokenizer_json()).encode()}
    named = [{"name": "default", "template": "D"}, {"name": "tool use", "template": "T"}]

    def templates(**files: bytes) -> Any:
        return Vocab.from_checkpoint(
            {**doc, **{name.replace("__", "/").replace("_dot_", "."): data for name, data in files.items()}}
        ).templates

    assert templates() == {}
    assert templates(tokenizer_config_dot_json=b'{"chat_template": "D"}') == {"default": "D"}
    config = json.dumps({"chat_template": named}).encode()
    assert templates(tokenizer_config_dot_json=config) == {"default": "D", "tool_use": "T"}
    assert templates(chat_template_dot_jinja=b"J") == {"default": "J"}
    null = b'{"chat_template": null}'
    assert templates(chat_template_dot_jinja=b"J", tokenizer_config_dot_json=null) == {"default": "J"}
    given = {"chat_template_dot_json": b'{"chat_template": "C"}'}
    assert templates(**given, tokenizer_config_dot_json=null) == {"default": "C"}
    assert templates(chat_template_dot_json=b'{"chat_template": "C"}') == {"default": "C"}
    both = {"chat_template_dot_jinja": b"J", "additional_chat_templates__rag_dot_jinja": b"R"}
    assert templates(**both) == {"default": "J", "rag": "R"}
    assert templates(**both, tokenizer_config_dot_json=b'{"chat_template": "D"}') == {"default": "D"}


def test_sentencepiece_vocabularies_are_equal_by_both_files() -> None:
    doc, _ = spm_doc()
    added = {"added_tokens_decoder": {str(t["id"]): t for t in doc["added_tokens"]}, "bos_token": "<s>"}
    config = {"vocab_size": 270}
    by_json = folder_vocab(doc, tokenizer_config=added, config=config)
    files = {
        "tokenizer.model": spm_model(),
        "tokenizer_config.json": json.dumps(added).encode(),
        "config.json": b'{"vocab_size": 270}',
    }
    by_model = Vocab.from_checkpoint(files)
    assert by_model == by_json
    assert (by_json.model, by_json.pre, by_json.special) == ("llama", "default", {"bos": 1})
    assert by_json.scores is not None
    assert by_json.scores[[0, 3, 259, 260, 265, 268]].tolist() == [-1000, 0, 0, -1, -6, -10000]
    assert by_json.types[[0, 3, 259, 268]].tolist() == [3, 6, 1, 5]
    assert by_json.tokens[3] == b"\0"
    assert by_json.tokens[261] == b" the"
    plain = Vocab.from_checkpoint({"tokenizer.model": spm_model()})
    assert plain.types[:3].tolist() == [2, 3, 3]


@pytest.mark.parametrize("cut", [1, 30, 200, 2000])
def test_a_broken_tokenizer_model_is_refused(cut: int) -> None:
    data = spm_model()
    for broken in (data[:-cut], data[: len(data) - cut] + b"\xff" * cut, b"\n" + data):
        with pytest.raises((FormatError, Unsupported)):
            Vocab.from_checkpoint({"tokenizer.model": broken})


BPE = tokenizer_json()["model"]
SPLITS_CHARACTERS = tokenizer_json()["pre_tokenizer"]["pretokenizers"][0]  # without the byte letters


def small(**changes: Any) -> dict[str, bytes]:
    return {"tokenizer.json": json.dumps(tokenizer_json(**changes)).encode()}


@pytest.mark.parametrize(
    ("files", "error", "why"),
    [
        ({}, NotFound, "no tokenizer"),
        ({"tokenizer.json": b"{"}, FormatError, "not JSON"),
        ({"tokenizer.json": b"\xff"}, FormatError, "not UTF-8"),
        ({"tokenizer.json": b"[]"}, FormatError, "not an object"),
        ({"tokenizer.json": b"[" * 100_000}, FormatError, "nested|not JSON"),
        ({"tokenizer.json": b'{"model": {"type": "Unigram"}}'}, Unsupported, "Unigram"),
        ({"tokenizer.json": b'{"model": {"vocab": []}}'}, FormatError, "no model.vocab"),
        ({"tokenizer.json": b'{"model": {"vocab": {"a": -1}}}'}, FormatError, "not a number below"),
        ({"tokenizer.json": b'{"model": {"vocab": {"a": 99999999}}}'}, FormatError, "not a number below"),
        ({"tokenizer.json": b'{"model": {"vocab": {"a": 0, "b": 0}}}'}, FormatError, "have one id"),
        ({"tokenizer.json": b'{"model": {"vocab": {"a": 0}, "merges": [1]}}'}, FormatError, "merges"),
        ({"tokenizer.json": b'{"model": {"vocab": {}}, "added_tokens": [3]}'}, FormatError, "added token"),
        (
            {"tokenizer.json": b'{"model": {"vocab": {"a": 7}}}', "config.json": b'{"vocab_size": 7}'},
            FormatError,
            "vocab_size is 7",
        ),
        (
            {"tokenizer.json": b'{"model": {"vocab": {"a": 0}, "merges": []}}'},
            Unsupported,
            "unknown pre-tokenizer",
        ),
        (
            {
                "tokenizer.json": b'{"model": {"vocab": {}, "merges": []}, "normalizer": %b}'
                % (b"[" * 900 + b"]" * 900)
            },
            Unsupported,
            "unknown None",
        ),
        (small(pre_tokenizer=SPLITS_CHARACTERS), Unsupported, "unknown pre-tokenizer"),
        (small(normalizer={"type": "Lowercase"}), Unsupported, "Lowercase"),
        (
            small(normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Strip"}]}),
            Unsupported,
            ": Strip",
        ),
        (small(model={**BPE, "end_of_word_suffix": "</w>"}), Unsupported, "end_of_word_suffix"),
        ({"config.json": b'{"vocab_size": "x"}'}, FormatError, "vocab_size"),
        ({"config.json": b'{"vocab_size": 1048577}'}, FormatError, "vocab_size"),
        ({"config.json": b'{"vocab_size": %b}' % (b"1" * 5000)}, FormatError, "not JSON"),
        ({"tokenizer_config.json": rb'{"chat_template": "\ud800"}'}, FormatError, "surrogate"),
        ({"tokenizer_config.json": rb'{"a\udfff": "\ud83d\ude42"}'}, FormatError, "surrogate"),
    ],
)
def test_a_broken_folder_is_explained(files: dict[str, bytes], error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        Vocab.from_checkpoint(files)


def test_ids_flags_and_templates_are_those_of_gguf_pys_special_vocab(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    rng = random.Random(10)
    names = ["<|bos|>", "<|im_end|>", "<tool_call>", "missing"]
    for _ in range(150):
        doc = tokenizer_json(post_processor=None)  # gguf 0.19 reads it unlike llama.cpp's own copy
        kinds = ("bos", "eos", "unk", "pad")
        config = {f"{kind}_token": rng.choice([*names, None]) for kind in kinds}
        config |= {f"add_{kind}_token": rng.choice([True, False, None]) for kind in ("bos", "eos")}
        numbers = {f"{kind}_token_id": rng.choice([259, 260, 3, None]) for kind in kinds}
        files = {"tokenizer": doc, "tokenizer_config": config, "config": {"vocab_size": 270, **numbers}}
        for name, value in files.items():
            (tmp_path / f"{name}.json").write_text(json.dumps(value), "utf-8")
        theirs = gguf.SpecialVocab(tmp_path, load_merges=True)
        ours = Vocab.from_checkpoint(tmp_path)
        turn = {"eot": 260} if 260 in (numbers["eos_token_id"], ours.special.get("eos")) else {}
        assert ours.special == {**theirs.special_token_ids, **turn}
        flags = {"bos": ours.add_bos, "eos": ours.add_eos}
        assert flags == {kind: theirs.add_special_token.get(kind) for kind in flags}
        assert [merge.decode() for merge in ours.merges] == theirs.merges


def test_mutated_tokenizer_files_are_read_or_explained() -> None:
    rng = random.Random(9)
    config = {
        "bos_token": "<|bos|>",
        "chat_template": [{"name": "a", "template": "b"}],
        "added_tokens_decoder": {},
    }
    template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}, {"Sequence": {}}]}
    files = {
        "tokenizer.json": json.dumps(tokenizer_json(post_processor=template)).encode(),
        "tokenizer_config.json": json.dumps(config).encode(),
        "config.json": b'{"vocab_size": 270, "bos_token_id": 1}',
        "generation_config.json": b'{"eos_token_id": [1, 2]}',
    }
    words = [b"null", b"-1", b"1e99", b"[]", b"{}", b'"\\ud800"', b"true", b"99999999999", b'""']
    read = 0
    for _ in range(1500):
        name = rng.choice(sorted(files))
        data = files[name]
        values = [m.span() for m in re.finditer(rb'"[^"]*"|\d+|\[[^\[\]]*\]|\{[^{}]*\}', data)]
        start, end = rng.choice(values)
        try:
            Vocab.from_checkpoint({**files, name: data[:start] + rng.choice(words) + data[end:]})
            read += 1
        except GGUFToolsError:
            continue
    assert 100 < read < 1400


@pytest.mark.parametrize(
    ("settings", "config", "generation", "wanted"),
    [
        ({"eos_token": "<|im_end|>"}, {}, {}, {"eos": 260, "eot": 260}),
        ({"eos_token": "<|bos|>"}, {}, {}, {"eos": 259}),
        ({}, {"eos_token_id": [259, 260]}, {}, {"eos": 259, "eot": 260}),
        ({}, {}, {"eos_token_id": [259, 260]}, {"eos": 259, "eot": 260}),
        ({"eos_token": "<|bos|>"}, {"eos_token_id": 3}, {}, {"eos": 259}),
        ({"eos_token": "<|bos|>"}, {}, {"eos_token_id": 261}, {"eos": 259, "eot": 261}),
        ({"eos_token": "<|bos|>"}, {}, {"eos_token_id": [261, 3]}, {"eos": 259}),
        ({"eot_token": "<|bos|>", "eos_token": "<|im_end|>"}, {}, {}, {"eos": 260, "eot": 259}),
        ({}, {"eos_token_id": [True, -1, 9999, "x"]}, {"eos_token_id": None}, {}),
    ],
)
def test_what_ends_a_turn_is_named_as_eot_where_the_files_show_it(
    settings: dict[str, Any], config: dict[str, Any], generation: dict[str, Any], wanted: dict[str, int]
) -> None:
    files = {"tokenizer_config": settings, "config": config, "generation_config": generation}
    assert folder_vocab(tokenizer_json(post_processor=None), **files).special == wanted
