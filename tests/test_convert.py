"""convert: the logits of the checkpoint come out of libllama; types, vocabularies, templates, memory."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import lowlevel
import numpy as np
import numpy_forward
import pytest
import tiny

from gguftools.checkpoint import floats
from gguftools.errors import GGUFToolsError
from gguftools.header import Header, read_header, read_tensor
from gguftools.verbs.convert import convert
from gguftools.verbs.convert.general import size_label
from gguftools.vocab import Vocab


def values(header: Header, name: str) -> Any:
    info = next(t for t in header.tensors if t.name == name)
    assert info.type in floats.PLAIN
    flat = np.frombuffer(read_tensor(header, info), floats.PLAIN[info.type])
    return flat.reshape(info.shape[::-1])


@pytest.mark.parametrize("kind", tiny.KINDS)
def test_libllamas_logits_are_those_of_a_plain_forward_pass(
    tmp_path: Path, tokenizer: Path, kind: str
) -> None:
    config = tiny.KINDS[kind]
    weights = tiny.weights(config)
    tiny.write_checkpoint(tmp_path / "m", config, weights, shards=2, tokenizer=tokenizer)
    convert(tmp_path / "m", tmp_path / "m.gguf", outtype="f32")
    ids = np.random.default_rng(7).integers(0, config["vocab_size"], 120).tolist()
    found = lowlevel.logits(tmp_path / "m.gguf", ids)
    wanted = numpy_forward.forward(config, weights, ids)
    assert np.abs(wanted).max() > 1
    assert np.abs(found - wanted).max() < 1e-3


def test_a_wrong_layout_would_show_in_the_logits(tmp_path: Path, llama: Path) -> None:
    weights = tiny.weights(tiny.LLAMA)
    name = "model.layers.0.self_attn.q_proj.weight"
    weights[name] = np.roll(weights[name], 1, axis=0)
    convert(llama, tmp_path / "m.gguf")
    ids = list(range(1, 60))
    wrong = numpy_forward.forward(tiny.LLAMA, weights, ids)
    assert np.abs(lowlevel.logits(tmp_path / "m.gguf", ids) - wrong).max() > 0.1


@pytest.mark.parametrize("source", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("outtype", ["auto", "f32", "f16", "bf16", "q8_0", "q4_0"])
def test_every_source_type_becomes_every_output_type(
    tmp_path: Path, tokenizer: Path, source: str, outtype: Any
) -> None:
    exact = tiny.weights(tiny.LLAMA)
    stored = {
        "f32": exact,
        "f16": {n: t.astype("f2") for n, t in exact.items()},
        "bf16": {n: tiny.bf16(t) for n, t in exact.items()},
    }[source]
    tiny.write_checkpoint(tmp_path / "m", tiny.LLAMA, stored, tokenizer=tokenizer)
    done = convert(tmp_path / "m", tmp_path / "m.gguf", outtype=outtype)
    kind = (source if outtype == "auto" else outtype).upper()
    wanted = {"F32": 5, kind: 16} if kind not in ("F32", "Q4_0") else {"F32": 21}
    assert done.types == ({"F32": 5, "Q4_0": 15, "Q8_0": 1} if kind == "Q4_0" else wanted)
    header = read_header(tmp_path / "m.gguf")
    assert header.get_int("general.file_type") == {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 7, "BF16": 32}[kind]
    for name, theirs in (
        ("output_norm.weight", "model.norm.weight"),
        ("blk.1.ffn_up.weight", "model.layers.1.mlp.up_proj.weight"),
    ):
        info = next(t for t in header.tensors if t.name == name)
        rows = np.frombuffer(read_tensor(header, info), np.uint8).reshape(
            info.shape[1] if info.shape[1:] else 1, -1
        )
        if info.type in floats.PLAIN:
            rows = rows.view(floats.PLAIN[info.type])
        error = np.abs(floats.to_f32(rows, info.type).reshape(exact[theirs].shape) - exact[theirs]).max()
        assert (
            error
            <= {"F32": 0, "F16": 1e-3, "BF16": 1e-2, "Q8_0": 1e-2, "Q4_0": 1e-1}[kind]
            + {"f32": 0, "f16": 1e-3, "bf16": 1e-2}[source]
        )
    assert lowlevel.logits(tmp_path / "m.gguf", [1, 2, 3]).shape == (3, 288)


@pytest.mark.parametrize(("outtype", "file_type"), [("q8_0", 7), ("q4_0", 2), ("f16", 1), ("bf16", 32)])
def test_each_type_has_the_bytes_that_libllamas_own_quantizer_writes(
    tmp_path: Path, llama: Path, outtype: Any, file_type: int
) -> None:
    convert(llama, tmp_path / "f32.gguf", outtype="f32")
    convert(llama, tmp_path / "ours.gguf", outtype=outtype)
    lowlevel.requantize(tmp_path / "f32.gguf", tmp_path / "theirs.gguf", file_type)
    ours, theirs = read_header(tmp_path / "ours.gguf"), read_header(tmp_path / "theirs.gguf")
    found = {t.name: (t.type, bytes(read_tensor(ours, t))) for t in ours.tensors}
    wanted = {t.name: (t.type, bytes(read_tensor(theirs, t))) for t in theirs.tensors}
    assert found.keys() == wanted.keys()
    apart = {name for name in found if found[name] != wanted[name]}
    assert apart == ({"output.weight"} if outtype == "q4_0" else set())  # Q8_0 with us


def test_auto_keeps_the_bits_of_each_weight(tmp_path: Path, tokenizer: Path) -> None:
    stored = {name: tiny.bf16(t) for name, t in tiny.weights(tiny.QWEN3).items()}
    tiny.write_checkpoint(tmp_path / "m", tiny.QWEN3, stored, tokenizer=tokenizer)
    convert(tmp_path / "m", tmp_path / "m.gguf")
    header = read_header(tmp_path / "m.gguf")
    name = "model.layers.0.self_attn.q_proj.weight"
    assert (values(header, "blk.0.attn_q.weight") == stored[name]).all()


def test_rows_that_are_no_whole_blocks_become_f16(tmp_path: Path, tokenizer: Path) -> None:
    config = {**tiny.LLAMA, "intermediate_size": 80}
    tiny.write_checkpoint(tmp_path / "m", config, tiny.weights(config), tokenizer=tokenizer)
    done = convert(tmp_path / "m", tmp_path / "m.gguf", outtype="q8_0")
    assert done.types == {"Q8_0": 14, "F32": 5, "F16": 2}


def test_two_runs_give_the_same_bytes_and_loading_order_does_not_matter(
    tmp_path: Path, tokenizer: Path
) -> None:
    weights = tiny.weights(tiny.LLAMA)
    backwards = dict(reversed(weights.items()))
    for name, tensors, shards in (("a/m", weights, 1), ("b/m", backwards, 3)):
        tiny.write_checkpoint(tmp_path / name, tiny.LLAMA, tensors, shards=shards, tokenizer=tokenizer)
    outs = [tmp_path / f"{i}.gguf" for i in range(3)]
    for out, name in zip(outs, ("a/m", "a/m", "b/m"), strict=True):
        convert(tmp_path / name, out, outtype="q8_0")
    assert outs[0].read_bytes() == outs[1].read_bytes() == outs[2].read_bytes()


def test_the_vocabulary_is_padded_to_the_embedding_and_special_ids_are_written(
    tmp_path: Path, llama: Path
) -> None:
    done = convert(llama, tmp_path / "m.gguf")
    vocab = Vocab.from_gguf(tmp_path / "m.gguf")
    assert done.n_tokens == vocab.n_tokens == 288
    assert [bytes(vocab.texts[i]) for i in (258, 261, 262, 287)] == [
        "Ġthe".encode(),
        b"<|im_end|>",
        b"[PAD262]",
        b"[PAD287]",
    ]
    assert vocab.types[[258, 261, 262]].tolist() == [1, 3, 5]
    assert vocab.special["eos"] == 261
    assert vocab.special["pad"] == 259
    assert vocab == Vocab.from_checkpoint(llama)


def test_more_tokens_than_rows_are_refused(tmp_path: Path, tokenizer: Path) -> None:
    config = {**tiny.LLAMA, "vocab_size": 200}
    tiny.write_checkpoint(tmp_path / "m", config, tiny.weights(config), tokenizer=tokenizer)
    with pytest.raises(GGUFToolsError, match="highest id is 261"):
        convert(tmp_path / "m", tmp_path / "m.gguf")
    assert not (tmp_path / "m.gguf").exists()


@pytest.mark.parametrize("form", ["string", "list", "file"])
def test_a_chat_template_is_taken_as_string_list_or_file(tmp_path: Path, tokenizer: Path, form: str) -> None:
    tiny.write_checkpoint(tmp_path / "m", tiny.LLAMA, tiny.weights(tiny.LLAMA), tokenizer=tokenizer)
    config: dict[str, Any] = {"eos_token": "<|im_end|>"}
    if form == "string":
        config["chat_template"] = "hello {{ x }}"
    if form == "list":
        named = [{"name": "default", "template": "hello {{ x }}"}, {"name": "tool_use", "template": "tools"}]
        config["chat_template"] = named
    if form == "file":
        (tmp_path / "m" / "chat_template.jinja").write_text("hello {{ x }}")
    (tmp_path / "m" / "tokenizer_config.json").write_text(json.dumps(config))
    convert(tmp_path / "m", tmp_path / "m.gguf")
    header = read_header(tmp_path / "m.gguf")
    assert header.get_str("tokenizer.chat_template") == "hello {{ x }}"
    assert header.get_str("tokenizer.chat_template.tool_use") == ("tools" if form == "list" else None)


def test_sampling_of_generation_config_is_kept(tmp_path: Path, llama: Path) -> None:
    wanted = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "do_sample": True, "min_p": 10**400}
    (llama / "generation_config.json").write_text(json.dumps(wanted))
    convert(llama, tmp_path / "m.gguf")
    header = read_header(tmp_path / "m.gguf")
    assert header.get_float("general.sampling.temp") == pytest.approx(0.6)
    assert header.get_int("general.sampling.top_k") == 20
    assert header.get_str("general.name") == "llama"
    assert header.get_str("general.size_label") == "123K"


def test_sizes_are_labelled_as_people_say_them() -> None:
    counts = (12, 31_000, 134_515_008, 1_543_714_304, 70_000_000_000)
    assert [size_label(count) for count in counts] == ["12", "31K", "135M", "1.5B", "70B"]


def test_another_tokenizer_takes_the_place_of_the_checkpoints(tmp_path: Path, llama: Path) -> None:
    other = tiny.write_tokenizer(tmp_path / "other", eos_token="<|endoftext|>", chat_template="other")
    convert(llama, tmp_path / "m.gguf", tokenizer=other)
    vocab = Vocab.from_gguf(tmp_path / "m.gguf")
    assert vocab.n_tokens == 288
    assert vocab.special["eos"] == 259
    assert vocab.templates["default"] == "other"


def test_a_vocabulary_alone_needs_no_weights_and_no_known_architecture(tmp_path: Path) -> None:
    folder = tiny.write_tokenizer(tmp_path / "mamba")
    (folder / "config.json").write_text(
        json.dumps({"architectures": ["MambaForCausalLM"], "vocab_size": 270})
    )
    done = convert(folder, tmp_path / "v.gguf", vocab_only=True)
    assert (done.n_tokens, done.types) == (270, {})
    with lowlevel.model(tmp_path / "v.gguf", vocab_only=True) as loaded:
        assert lowlevel.n_tokens(loaded) == 270
        assert lowlevel.tokenize(loaded, " the") == [258]


def test_memory_stays_below_three_times_the_largest_tensor(tmp_path: Path, tokenizer: Path) -> None:
    config = {
        **tiny.LLAMA,
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "vocab_size": 8192,
        "num_hidden_layers": 1,
    }
    stored = {name: tiny.bf16(t) for name, t in tiny.weights(config).items()}
    tiny.write_checkpoint(tmp_path / "m", config, stored, tokenizer=tokenizer)
    largest = max(t.nbytes for t in stored.values())
    for outtype in ("bf16", "q8_0"):
        tracemalloc.start()
        convert(tmp_path / "m", tmp_path / "m.gguf", outtype=outtype, force=True)  # type: ignore[arg-type]
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < read_header(tmp_path / "m.gguf").data_offset + 3 * largest
