"""Vocab: the same from a GGUF and from a folder, ids and flags, special tokens as libllama finds them."""

from __future__ import annotations

import json
import random
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_files import F32, I32, Typed, gguf_bytes, vocab_keys, write_gguf

from gguftools import byte_letters, pre_tokenizers, special
from gguftools.errors import FormatError, GGUFToolsError, NotFound, Unsupported
from gguftools.header import read_header
from gguftools.pieces import TokenType
from gguftools.tokenizer_json import write_tokenizer
from gguftools.vocab import Vocab

KINDS = ("bos", "eos", "sep", "pad")  # the special ids that libllama has functions for
LETTERS = [byte_letters.to_letters(bytes([byte])).decode() for byte in range(256)]
TEXTS = [
    "Hello world, it's 2024!",
    " x  y\n\n\tz",
    "naïve café 漢字 Привет 🙂",
    "def f(a):\r\n    return a+1",
    "''''s",
]


def export(vocab: Vocab, folder: Path, **config: Any) -> Path:
    """The folder that write_tokenizer and its caller make."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**write_tokenizer(vocab, folder), **config}), "utf-8")
    return folder


def tokenizer_json(**changes: Any) -> dict[str, Any]:
    """A small byte-level tokenizer.json."""
    vocab = {letter: i for i, letter in enumerate([*LETTERS, "Ġt", "he", "Ġthe"])}
    doc = {
        "added_tokens": [
            {"id": 259, "content": "<|bos|>", "special": True},
            {"id": 260, "content": "<|im_end|>", "special": True},
            {"id": 261, "content": "<tool_call>", "special": False},
            {"id": 262, "content": "<|fim_pad|>", "special": False},
        ],
        "pre_tokenizer": pre_tokenizers.to_json("qwen2")[0],  # type: ignore[index]
        "post_processor": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": vocab, "merges": ["Ġ t", "h e", "Ġt he"]},
    }
    return {**doc, **changes}


def folder_vocab(doc: dict[str, Any], **files: Any) -> Vocab:
    """from_checkpoint of files given as objects; `config` stands for config.json and so on."""
    named = {f"{name}.json": json.dumps(value).encode() for name, value in files.items()}
    return Vocab.from_checkpoint({"tokenizer.json": json.dumps(doc).encode(), **named})


def test_smollm2_comes_back_equal_from_its_exported_folder(smollm2: Path, tmp_path: Path) -> None:
    vocab = Vocab.from_gguf(smollm2)
    again = Vocab.from_checkpoint(export(vocab, tmp_path / "hf", model_type="llama"))
    assert again == vocab
    assert again.digest_ordinary == vocab.digest_ordinary
    assert again.templates["default"] == vocab.templates["default"]
    assert (vocab.n_tokens, len(vocab.merges), vocab.pre) == (49152, 48900, "smollm")
    assert vocab.special == {"bos": 1, "eos": 2, "unk": 0, "pad": 2}
    third = Vocab.from_gguf(write_gguf(tmp_path / "v.gguf", vocab_keys(vocab)))
    assert third == vocab


def test_kimi_comes_back_equal_from_its_exported_folder(kimi_folder: Path, tmp_path: Path) -> None:
    vocab = Vocab.from_checkpoint(kimi_folder)
    folder = export(vocab, tmp_path / "hf")
    assert (folder / "tiktoken.model").read_bytes() == (kimi_folder / "tiktoken.model").read_bytes()
    assert Vocab.from_checkpoint(folder) == vocab


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
    assert templates(chat_template_dot_json=b'{"chat_template": "C"}') == {"default": "C"}
    both = {"chat_template_dot_jinja": b"J", "additional_chat_templates__rag_dot_jinja": b"R"}
    assert templates(**both) == {"default": "J", "rag": "R"}
    assert templates(**both, tokenizer_config_dot_json=b'{"chat_template": "D"}') == {"default": "D"}


def test_named_templates_survive_a_gguf_and_a_folder(tmp_path: Path) -> None:
    settings = {"chat_template": [{"name": "default", "template": "D"}, {"name": "rag", "template": "R"}]}
    vocab = folder_vocab(tokenizer_json(post_processor=None), tokenizer_config=settings)
    keys = [key for key, _, _ in vocab.gguf_keys()]
    assert keys[-3:] == ["tokenizer.chat_templates", "tokenizer.chat_template.rag", "tokenizer.chat_template"]
    assert Vocab.from_gguf(write_gguf(tmp_path / "v.gguf", vocab_keys(vocab))) == vocab
    assert Vocab.from_checkpoint(export(vocab, tmp_path / "hf")) == vocab


@pytest.mark.parametrize("pre", sorted(pre_tokenizers.KNOWN))
def test_each_known_pre_tokenizer_is_written_and_read_back(pre: str, tmp_path: Path) -> None:
    written = pre_tokenizers.to_json(pre)
    assert written is not None
    pre_tokenizer, _, ignore_merges = written
    assert pre_tokenizers.name_of(json.loads(json.dumps(pre_tokenizer)), ignore_merges) == pre
    doc = tokenizer_json(pre_tokenizer=pre_tokenizer, post_processor=None)
    doc["model"]["ignore_merges"] = ignore_merges
    config = {"add_bos_token": True, "bos_token": "<|bos|>", "add_eos_token": False}
    vocab = folder_vocab(doc, tokenizer_config=config, config={"vocab_size": 300})
    assert Vocab.from_checkpoint(export(vocab, tmp_path / "hf")) == vocab


def test_the_written_tokenizer_json_loads_in_the_tokenizers_library(smollm2: Path, tmp_path: Path) -> None:
    library = pytest.importorskip("tokenizers")
    vocab = Vocab.from_gguf(smollm2)
    export(vocab, tmp_path / "hf")
    tokenizer = library.Tokenizer.from_file(str(tmp_path / "hf" / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == vocab.n_tokens
    for text in TEXTS:
        ids = tokenizer.encode(text).ids
        assert vocab.decode(ids) == text.encode()
    assert tokenizer.encode("<|im_end|>x").ids[0] == 2


def spm_doc() -> tuple[dict[str, Any], dict[str, int]]:
    """A tokenizer.json of Llama-2's kind."""
    texts = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁t",
        "he",
        "▁the",
        "▁",
        "t",
        "h",
        "e",
    ]
    vocab = {text: i for i, text in enumerate(texts)}
    doc = {
        "added_tokens": [{"id": i, "content": texts[i], "special": True} for i in range(3)],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            ],
        },
        "model": {
            "type": "BPE",
            "byte_fallback": True,
            "unk_token": "<unk>",
            "vocab": vocab,
            "merges": ["▁ t", "h e", "▁t he"],
        },
    }
    return doc, vocab


def _proto(fields: list[tuple[int, bytes | int | float]]) -> bytes:
    out = b""
    for number, value in fields:
        if isinstance(value, bytes):
            assert len(value) < 16384
            size = (
                bytes([len(value)]) if len(value) < 128 else bytes([len(value) & 127 | 128, len(value) >> 7])
            )
            out += bytes([number << 3 | 2]) + size + value
        elif isinstance(value, float):
            out += bytes([number << 3 | 5]) + struct.pack("<f", value)
        else:
            out += bytes([number << 3, value])
    return out


def spm_model() -> bytes:
    """The tokenizer.model of the same vocabulary."""
    out = b""
    for text, i in spm_doc()[1].items():
        kind = 2 if i == 0 else 3 if i < 3 else 6 if i < 259 else 1
        out += _proto([(1, _proto([(1, text.encode()), (2, float(min(0, 259 - i))), (3, kind)]))])
    return out + _proto([(2, _proto([(3, 2)])), (3, _proto([(3, 1)]))])


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
        try:
            Vocab.from_checkpoint({"tokenizer.model": broken})
        except (FormatError, Unsupported):
            continue


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
        ({"config.json": b'{"vocab_size": "x"}'}, FormatError, "vocab_size"),
    ],
)
def test_a_broken_folder_is_explained(files: dict[str, bytes], error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        Vocab.from_checkpoint(files)


def test_ids_flags_and_templates_are_those_of_gguf_pys_special_vocab(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    rng = random.Random(10)
    names = ["<|bos|>", "<|im_end|>", "<tool_call>", "missing"]
    token = {"A": {"Sequence": {"id": "A"}}, **{n: {"SpecialToken": {"id": n}} for n in names}}
    for _ in range(150):
        single = [*rng.choice([[], [names[0]], [names[1]]]), "A", *rng.choice([[], [names[1]], [names[2]]])]
        template = {"type": "TemplateProcessing", "single": [token[step] for step in single]}
        # No ByteLevel among them: llama.cpp's own copy reads it as "adds nothing", gguf 0.19 does not yet.
        doc = tokenizer_json(post_processor=rng.choice([None, template]))
        kinds = ("bos", "eos", "unk", "pad")
        config = {f"{kind}_token": rng.choice([*names, None]) for kind in kinds}
        config |= {f"add_{kind}_token": rng.choice([True, False, None]) for kind in ("bos", "eos")}
        numbers = {f"{kind}_token_id": rng.choice([259, 260, 3, None]) for kind in kinds}
        files = {"tokenizer": doc, "tokenizer_config": config, "config": {"vocab_size": 270, **numbers}}
        for name, value in files.items():
            (tmp_path / f"{name}.json").write_text(json.dumps(value), "utf-8")
        theirs = gguf.SpecialVocab(tmp_path, load_merges=True)
        ours = Vocab.from_checkpoint(tmp_path)
        assert ours.special == theirs.special_token_ids
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


def test_a_gguf_without_or_with_a_broken_vocabulary_is_refused() -> None:
    with pytest.raises(FormatError, match="no vocabulary"):
        Vocab.from_header(read_header(gguf_bytes()))
    keys = {"tokenizer.ggml.tokens": ["a", "b"], "tokenizer.ggml.token_type": Typed(I32, [1])}
    with pytest.raises(FormatError, match="1 elements for 2 tokens"):
        Vocab.from_header(read_header(gguf_bytes(keys)))
    keys = {"tokenizer.ggml.tokens": ["a", "b"], "tokenizer.ggml.scores": Typed(I32, [1, 2, 3])}
    scores = Vocab.from_header(read_header(gguf_bytes(keys))).scores
    assert scores is not None
    assert (scores.tolist(), scores.dtype) == ([1, 2], np.float32)


def test_vocabularies_differ_when_any_field_does() -> None:
    base = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": ["a", "b"],
        "tokenizer.ggml.bos_token_id": 0,
    }
    vocab = Vocab.from_header(read_header(gguf_bytes(base)))
    assert vocab == Vocab.from_header(read_header(gguf_bytes(base)))
    for change in (
        {"tokenizer.ggml.tokens": ["a", "c"]},
        {"tokenizer.ggml.token_type": Typed(I32, [1, 3])},
        {"tokenizer.ggml.scores": Typed(F32, [0, 0])},
        {"tokenizer.ggml.bos_token_id": 1},
        {"tokenizer.ggml.merges": ["a b"]},
        {"tokenizer.ggml.add_bos_token": True},
        {"tokenizer.chat_template": "x"},
    ):
        other = Vocab.from_header(read_header(gguf_bytes({**base, **change})))
        assert other != vocab, change


def test_the_ordinary_digest_ignores_specials_and_minds_ids() -> None:
    def digest(tokens: list[str], types: list[int]) -> str:
        keys = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": Typed(I32, types)}
        return Vocab.from_header(read_header(gguf_bytes(keys))).digest_ordinary

    assert digest(["a", "b", "<x>"], [1, 1, 3]) == digest(["a", "b", "<y>", "<z>"], [1, 1, 4, 5])
    assert digest(["a", "b", "<x>"], [1, 1, 3]) != digest(["<x>", "a", "b"], [3, 1, 1])
    assert digest(["a", "b"], [1, 1]) != digest(["a", "c"], [1, 1])


def test_other_vocabularies_than_kimis_do_not_encode(smollm2: Path) -> None:
    with pytest.raises(Unsupported, match="only Kimi's") as caught:
        Vocab.from_gguf(smollm2).encode("x")
    assert "libllama" in caught.value.hint


def test_byte_letters_are_gpt2s() -> None:
    assert byte_letters.to_letters(b" a\n\x00\xff") == "ĠaĊĀÿ".encode()
    for data in (b"", bytes(range(256)), "é漢".encode()):
        assert byte_letters.to_bytes(byte_letters.to_letters(data)) == data
    tokens = [b"", b" a", bytes(range(256)), b""]
    assert byte_letters.all_to_bytes(byte_letters.all_to_letters(tokens)) == tokens
    assert byte_letters.to_bytes("漢".encode()) is None
    assert byte_letters.to_bytes(b"\xff") is None
    for wrong in ("漢".encode(), "\uffff".encode(), b" "):
        with pytest.raises(ValueError, match="letters"):
            byte_letters.all_to_bytes([b"a", wrong])


def libllama_facts(path: Path) -> tuple[frozenset[int], tuple[bool, bool], dict[str, int]]:
    """(ids that end generation, what is added, special ids) as libllama itself says."""
    llama_cpp = pytest.importorskip("llama_cpp")
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = True
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
    assert model, path
    try:
        vocab = llama_cpp.llama_model_get_vocab(model)
        n = llama_cpp.llama_vocab_n_tokens(vocab)
        eog = frozenset(i for i in range(n) if llama_cpp.llama_vocab_is_eog(vocab, i))
        adds = (llama_cpp.llama_vocab_get_add_bos(vocab), llama_cpp.llama_vocab_get_add_eos(vocab))
        ids = {kind: getattr(llama_cpp, f"llama_vocab_{kind}")(vocab) for kind in KINDS}
        return eog, adds, {kind: i for kind, i in ids.items() if i >= 0}
    finally:
        llama_cpp.llama_model_free(model)


def odd_vocabularies() -> Iterator[dict[str, Any]]:
    """Vocabularies with random special tokens, ids in and out of range, flags and models."""
    rng = random.Random(8)
    texts = [
        *special.EOG_TEXTS,
        *(text for group in special.FIM_TEXTS.values() for text in group),
        "<x>",
        "<y>",
    ]
    for no in range(40):
        # One text per kind of fill-in-the-middle token: with several, libllama takes any.
        chosen = [*rng.sample(texts[: len(special.EOG_TEXTS)], rng.randrange(12)), "<x>", "<|plamo:eos|>"]
        chosen += [rng.choice(group) for group in special.FIM_TEXTS.values() if rng.random() < 0.5]
        tokens = [*LETTERS, *rng.sample(chosen, len(chosen))]
        types = [1] * 256 + [rng.choice((1, 3, 3, 4)) for _ in chosen]
        keys: dict[str, Any] = {
            "general.architecture": "llama",
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": rng.choice(["gpt-2", "llama-bpe", "qwen2", "glm4", "kimi-k2", "tekken"]),
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": Typed(I32, types),
            "tokenizer.ggml.merges": ["a b"],
        }
        for kind in rng.sample(sorted(special.KEYS), 4):
            keys["tokenizer.ggml." + special.KEYS[kind]] = rng.choice([*range(256, len(tokens)), 5000])
        if no % 3 == 0:
            keys["tokenizer.ggml.add_bos_token"] = rng.random() < 0.5
        yield keys


def test_special_tokens_are_those_that_libllama_finds(smollm2: Path, tmp_path: Path) -> None:
    paths = [smollm2]
    for i, keys in enumerate(odd_vocabularies()):
        paths.append(write_gguf(tmp_path / f"{i}.gguf", keys))
    for path in paths:
        eog, adds, ids = libllama_facts(path)
        vocab = Vocab.from_gguf(path)
        assert vocab.eog() == eog, path
        assert special.adds(vocab) == adds
        assert {kind: i for kind, i in special.resolved(vocab).items() if kind in KINDS} == ids


def test_libllama_finds_kimis_special_tokens_too(kimi_folder: Path, tmp_path: Path) -> None:
    vocab = Vocab.from_checkpoint(kimi_folder)
    eog, adds, ids = libllama_facts(write_gguf(tmp_path / "kimi.gguf", vocab_keys(vocab)))
    assert (vocab.eog(), special.adds(vocab)) == (eog, adds)
    assert ids == {"bos": 163584, "eos": 163586, "pad": 163839}
