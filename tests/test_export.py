"""export: GGUF → folder → GGUF loses nothing, for real models and for tiny ones of every family."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lowlevel
import numpy as np
import numpy_forward
import pytest
import tiny

from gguftools import gguf_write
from gguftools.checkpoint import Checkpoint, floats, safetensors
from gguftools.errors import GGUFToolsError, InputError, LoadAborted, OutputExists, Unsupported
from gguftools.header import read_header, read_tensor
from gguftools.verbs import export as verb
from gguftools.verbs.convert import convert
from gguftools.verbs.export import export
from gguftools.vocab import Vocab

KINDS = {kind: config for kind, config in tiny.KINDS.items() if "llama3" not in kind}
KINDS["llama, llama3 frequencies"] = {
    **tiny.LLAMA,
    "rope_theta": 500000.0,
    "rope_scaling": {**tiny.LLAMA3, "factor": 32.0, "original_max_position_embeddings": 8192},
}


@pytest.fixture
def made(tmp_path: Path, tokenizer: Path) -> Callable[..., Path]:
    """Makes the GGUF of a tiny configuration."""

    def make(config: dict[str, Any], outtype: Any = "f32") -> Path:
        folder = tmp_path / "source"
        tiny.write_checkpoint(folder, config, tiny.weights(config), tokenizer=tokenizer)
        convert(folder, tmp_path / "m.gguf", outtype=outtype)
        return tmp_path / "m.gguf"

    return make


def assert_same_tensors(found: Path, wanted: Path) -> None:
    """Every tensor of `wanted`, byte for byte, and no other."""
    a, b = read_header(found), read_header(wanted)
    theirs = {t.name: t for t in b.tensors}
    assert {t.name for t in a.tensors} == theirs.keys()
    for info in a.tensors:
        assert (info.type, info.shape) == (theirs[info.name].type, theirs[info.name].shape)
        assert bytes(read_tensor(a, info)) == bytes(read_tensor(b, theirs[info.name])), info.name


@pytest.mark.parametrize("kind", KINDS)
def test_there_and_back_gives_the_same_weights_config_and_file(
    tmp_path: Path, made: Callable[..., Path], kind: str
) -> None:
    source = made(KINDS[kind])
    done = export(source, tmp_path / "back")
    back = Checkpoint.open(tmp_path / "back")
    assert done.shards == 1
    assert done.architecture == KINDS[kind]["architectures"][0]
    for name, values in tiny.weights(KINDS[kind]).items():
        dtype, shape, data = back.tensor(name)
        assert (dtype, shape, bytes(data)) == ("F32", values.shape, values.tobytes())
    for key, value in KINDS[kind].items():
        assert back.config[key] == value, key
    convert(tmp_path / "back", tmp_path / "again.gguf")
    assert_same_tensors(tmp_path / "again.gguf", source)
    assert Vocab.from_gguf(tmp_path / "again.gguf") == Vocab.from_gguf(source)
    own = {k: v for k, v in read_header(source).keys.items() if k.startswith(("llama", "qwen"))}
    assert own == {
        k: v for k, v in read_header(tmp_path / "again.gguf").keys.items() if k.startswith(("llama", "qwen"))
    }


@pytest.mark.parametrize(
    ("stored", "auto"), [("f16", "F16"), ("bf16", "BF16"), ("q8_0", "F32"), ("q4_0", "F32")]
)
def test_auto_keeps_plain_types_and_widens_blocks(
    tmp_path: Path, made: Callable[..., Path], stored: str, auto: str
) -> None:
    export(made(tiny.QWEN2, stored), tmp_path / "back")
    back = Checkpoint.open(tmp_path / "back")
    assert back.tensor("model.layers.0.mlp.up_proj.weight")[0] == auto
    assert back.tensor("model.norm.weight")[0] == "F32"
    assert back.config["torch_dtype"] == {"F16": "float16", "BF16": "bfloat16", "F32": "float32"}[auto]


@pytest.mark.parametrize("outtype", ["f32", "f16", "bf16"])
def test_a_chosen_type_is_that_of_every_tensor(
    tmp_path: Path, made: Callable[..., Path], outtype: Any
) -> None:
    export(made(tiny.QWEN3, "q8_0"), tmp_path / "back", outtype=outtype)
    back = Checkpoint.open(tmp_path / "back")
    assert {entry.dtype for entry in back.tensors.values()} == {outtype.upper()}


def test_large_models_are_cut_into_shards_with_an_index(
    tmp_path: Path, made: Callable[..., Path], monkeypatch: Any
) -> None:
    monkeypatch.setattr(verb, "SHARD", 100_000)
    source = made(tiny.LLAMA)
    done = export(source, tmp_path / "back")
    files = sorted(p.name for p in (tmp_path / "back").glob("*.safetensors"))
    assert len(files) == done.shards == 6
    assert files[0] == "model-00001-of-00006.safetensors"
    index = json.loads((tmp_path / "back" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == done.nbytes
    assert set(index["weight_map"].values()) == set(files)
    convert(tmp_path / "back", tmp_path / "again.gguf")
    assert_same_tensors(tmp_path / "again.gguf", source)


def test_every_tensor_lies_at_a_multiple_of_its_own_size(tmp_path: Path, made: Callable[..., Path]) -> None:
    export(made({**tiny.QWEN2, "intermediate_size": 97}, "f16"), tmp_path / "back")
    for entry in Checkpoint.open(tmp_path / "back").tensors.values():
        assert entry.start % {"F32": 4, "F16": 2}[entry.dtype] == 0


def test_generation_config_holds_what_ends_a_turn_and_the_sampling(tmp_path: Path, tokenizer: Path) -> None:
    folder = tiny.write_checkpoint(tmp_path / "s", tiny.QWEN2, tiny.weights(tiny.QWEN2), tokenizer=tokenizer)
    (folder / "generation_config.json").write_text(
        json.dumps({"temperature": 0.7, "top_k": 20, "eos_token_id": [261, 259]})
    )
    convert(folder, tmp_path / "m.gguf")
    export(tmp_path / "m.gguf", tmp_path / "back")
    found = json.loads((tmp_path / "back" / "generation_config.json").read_text())
    assert found["temperature"] == 0.7
    assert found["top_k"] == 20
    assert found["pad_token_id"] == 259
    assert found["eos_token_id"] == 261


def test_smollm2_comes_back_as_libllamas_own_f32_bit_for_bit_with_the_same_text(
    tmp_path: Path, smollm2: Path
) -> None:
    round_trip(smollm2, tmp_path)


def test_qwen25_comes_back_as_libllamas_own_f32_bit_for_bit_with_the_same_text(tmp_path: Path) -> None:
    folder = os.environ.get("GGUFTOOLS_ASSETS")
    if not folder:
        pytest.skip(
            "GGUFTOOLS_ASSETS is not set: the folder with gguf/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
        )
    round_trip(Path(folder) / "gguf" / "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", tmp_path)


def round_trip(source: Path, tmp_path: Path) -> None:
    export(source, tmp_path / "folder", outtype="f32")
    convert(tmp_path / "folder", tmp_path / "ours.gguf", outtype="f32")
    lowlevel.requantize(source, tmp_path / "theirs.gguf")
    assert_same_tensors(tmp_path / "ours.gguf", tmp_path / "theirs.gguf")
    assert Vocab.from_gguf(tmp_path / "ours.gguf").texts == Vocab.from_gguf(source).texts
    with lowlevel.model(source, vocab_only=True) as loaded:
        ids = lowlevel.tokenize(loaded, "The capital of France is")
    back = Checkpoint.open(tmp_path / "folder")
    weights = {
        name: np.frombuffer(back.tensor(name)[2], "<f4").reshape(e.shape) for name, e in back.tensors.items()
    }
    wanted = numpy_forward.forward(back.config, weights, ids)
    assert np.abs(lowlevel.logits(tmp_path / "theirs.gguf", ids) - wanted).max() < 1e-3 * np.abs(wanted).max()
    text = lowlevel.greedy(tmp_path / "ours.gguf", ids, 24)
    assert text == lowlevel.greedy(tmp_path / "theirs.gguf", ids, 24)
    assert len(set(text)) > 4
    for path in tmp_path.rglob("*"):
        if path.is_file():
            path.unlink()  # gigabytes


# What goes wrong.


def changed(source: Path, goal: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> Path:
    """A copy of a GGUF with other keys or tensors (name → (shape fastest first, type, bytes))."""
    header = read_header(source)
    keys = {name: (value, header.types[name]) for name, value in header.keys.items()}
    tensors = {t.name: (t.shape, t.type, bytes(read_tensor(header, t))) for t in header.tensors}
    change(keys, tensors)
    announced = [
        gguf_write.Announced(n, shape, kind, len(data)) for n, (shape, kind, data) in tensors.items()
    ]
    head = gguf_write.header_bytes([(n, v, k) for n, (v, k) in keys.items()], announced)
    with goal.open("wb") as file:
        file.write(head)
        for tensor, (_, _, data) in zip(announced, tensors.values(), strict=True):
            gguf_write.write_tensor(file, tensor, [np.frombuffer(data, np.uint8)])
    return goal


FAULTS: dict[str, tuple[Any, type[GGUFToolsError], str]] = {
    "an unknown architecture": (
        lambda k, t: k.update({"general.architecture": ("gemma3", 8)}),
        Unsupported,
        "llama, qwen2, qwen3",
    ),
    "a missing size": (lambda k, t: k.pop("llama.block_count"), InputError, "has no llama.block_count"),
    "a missing tensor": (lambda k, t: t.pop("output_norm.weight"), InputError, "lacks output_norm.weight"),
    "no embedding": (lambda k, t: t.clear(), InputError, "has no token_embd.weight"),
    "a foreign tensor": (
        lambda k, t: t.update({"x.weight": ((1,), 0, bytes(4))}),
        InputError,
        "tensor x.weight",
    ),
    "a wrong shape": (
        lambda k, t: t.update({"output_norm.weight": ((32,), 0, bytes(128))}),
        InputError,
        "output_norm.weight has the shape",
    ),
    "experts": (lambda k, t: k.update({"llama.expert_count": (8, 4)}), Unsupported, "has experts"),
    "a type without code": (
        lambda k, t: t.update({"blk.0.ffn_up.weight": ((64, 96), 42, bytes(96 * 18))}),
        Unsupported,
        "Q2_0",
    ),
    "longrope": (
        lambda k, t: k.update({"llama.rope.scaling.type": ("longrope", 8)}),
        Unsupported,
        "longrope",
    ),
    "strange frequencies": (
        lambda k, t: t.update({"rope_freqs.weight": ((16,), 0, np.arange(1, 17, dtype="<f4").tobytes())}),
        Unsupported,
        "not Llama 3's",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_clear_message_and_leaves_nothing_behind(
    tmp_path: Path, made: Callable[..., Path], fault: str
) -> None:
    change, error, why = FAULTS[fault]
    broken = changed(made(tiny.LLAMA), tmp_path / "broken.gguf", change)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(error, match=why):
        export(broken, tmp_path / "back")
    assert sorted(tmp_path.rglob("*")) == before


def test_stopped_or_interrupted_it_leaves_nothing_behind(tmp_path: Path, made: Callable[..., Path]) -> None:
    source = made(tiny.LLAMA)
    before = sorted(tmp_path.rglob("*"))

    def interrupt(_stage: str, part: float) -> None:
        if part > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(source, tmp_path / "back", progress=interrupt)
    with pytest.raises(LoadAborted):
        export(source, tmp_path / "back", progress=lambda stage, part: part < 0.5)
    assert sorted(tmp_path.rglob("*")) == before


def test_force_replaces_an_export_but_not_the_folder_of_the_source(
    tmp_path: Path, made: Callable[..., Path]
) -> None:
    source = made(tiny.LLAMA)
    export(source, tmp_path / "back")
    with pytest.raises(OutputExists):
        export(source, tmp_path / "back")
    export(source, tmp_path / "back", outtype="bf16", force=True)
    assert Checkpoint.open(tmp_path / "back").config["torch_dtype"] == "bfloat16"
    inside = tmp_path / "back" / "m.gguf"
    source.rename(inside)
    with pytest.raises(InputError, match="lies in"):
        export(inside, tmp_path / "back", force=True)
    assert inside.is_file()


def test_force_never_replaces_a_folder_that_holds_a_persons_files(
    tmp_path: Path, made: Callable[..., Path]
) -> None:
    source, back = made(tiny.LLAMA), tmp_path / "back"
    export(source, back)
    (back / "notes.md").write_text("mine")
    with pytest.raises(OutputExists, match=r"notes\.md"):
        export(source, back, force=True)
    (back / "notes.md").unlink()
    weights = back / "model.safetensors"
    weights.write_bytes(weights.read_bytes().replace(b"made_by", b"used_by"))
    with pytest.raises(OutputExists, match="not written by export"):
        export(source, back, force=True)


def test_norms_of_a_folder_are_read_without_their_length_of_blocks(
    tmp_path: Path, made: Callable[..., Path]
) -> None:
    """A one-dimensional tensor that is stored in blocks is widened like any other."""
    values = np.linspace(-1, 1, 64, dtype=np.float32)
    data = floats.recode(values.reshape(1, -1), floats.F32, floats.Q8_0).tobytes()
    source = changed(
        made(tiny.LLAMA), tmp_path / "q.gguf", lambda k, t: t.update({"output_norm.weight": ((64,), 8, data)})
    )
    export(source, tmp_path / "back")
    entry = Checkpoint.open(tmp_path / "back").tensors["model.norm.weight"]
    back = safetensors.read_bytes(entry, 0, entry.nbytes).view("<f4")
    assert np.abs(back - values).max() < 0.01
