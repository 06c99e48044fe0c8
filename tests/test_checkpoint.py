"""Checkpoint: a folder's config, small files and tensors; broken and hostile ones; a Hub repo by ranges."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny

from gguftools.checkpoint import Checkpoint
from gguftools.errors import FormatError, GGUFToolsError, InputError, NotFound, Unsupported


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny.write_checkpoint(tmp_path / "model", tiny.LLAMA, tiny.weights(tiny.LLAMA))


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    return tiny.write_checkpoint(tmp_path / "sharded", tiny.LLAMA, tiny.weights(tiny.LLAMA), shards=3)


def test_one_file_and_three_shards_hold_the_same_tensors(folder: Path, sharded: Path) -> None:
    one, three = Checkpoint.open(folder), Checkpoint.open(sharded)
    assert one.config == three.config == tiny.LLAMA
    assert one.name == "model"
    assert one.tensors.keys() == three.tensors.keys() == tiny.weights(tiny.LLAMA).keys()
    assert len({entry.path for entry in three.tensors.values()}) == 3
    for name, values in tiny.weights(tiny.LLAMA).items():
        assert one.tensor(name)[:2] == three.tensor(name)[:2] == ("F32", values.shape)
        assert bytes(one.tensor(name)[2]) == bytes(three.tensor(name)[2]) == values.tobytes()


def test_small_files_come_along_and_weights_are_not_needed_for_them(tmp_path: Path) -> None:
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("x")
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "notes.txt").write_text("not for us")
    found = Checkpoint.open(tmp_path, tensors=False)
    assert set(found.files) == {"additional_chat_templates/tool_use.jinja", "tokenizer.json"}
    assert not found.config
    assert not found.tensors


def index_of(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / "model.safetensors.index.json").read_text())
    return loaded


@pytest.mark.parametrize(
    "shard",
    ["../outside.safetensors", "/etc/passwd", "a/b.safetensors", "C:\\x.safetensors", "x.bin", "", 7, None],
)
def test_an_index_that_leads_out_of_the_folder_is_refused(sharded: Path, shard: Any) -> None:
    outside = sharded.parent / "outside.safetensors"
    tiny.write_shard(outside, {"model.norm.weight": np.zeros(64, "f4")})
    index = index_of(sharded)
    index["weight_map"]["model.norm.weight"] = shard
    (sharded / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(FormatError, match=r"no \.safetensors file in this folder"):
        Checkpoint.open(sharded)


def test_a_tensor_in_two_shards_is_refused(sharded: Path) -> None:
    tensors = tiny.weights(tiny.LLAMA)
    names = list(tensors)
    tiny.write_shard(
        sharded / "model-00002-of-00003.safetensors", {n: tensors[n] for n in [*names[1::3], names[0]]}
    )
    with pytest.raises(InputError, match="is in two shards"):
        Checkpoint.open(sharded)


def test_a_tensor_that_the_index_promises_elsewhere_is_refused(sharded: Path) -> None:
    index = index_of(sharded)
    index["weight_map"]["model.norm.weight"] = "model-00003-of-00003.safetensors"
    index["weight_map"]["model.embed_tokens.weight"] = "model-00002-of-00003.safetensors"
    (sharded / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(InputError, match="is not in"):
        Checkpoint.open(sharded)


def broken_json(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def a_list(folder: Path) -> None:
    (folder / "config.json").write_text("[]")


def no_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def missing_shard(folder: Path) -> None:
    (folder / "model-00002-of-00003.safetensors").unlink()


def truncated_shard(folder: Path) -> None:
    path = folder / "model-00002-of-00003.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def no_weights(folder: Path) -> None:
    for path in folder.glob("model*"):
        path.unlink()


def pickles_alone(folder: Path) -> None:
    no_weights(folder)
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n")


@pytest.mark.parametrize(
    ("breaking", "error", "why"),
    [
        (broken_json, FormatError, "not JSON"),
        (a_list, FormatError, "not an object"),
        (no_config, NotFound, "has no config.json"),
        (missing_shard, NotFound, "is missing"),
        (truncated_shard, FormatError, "cut short"),
        (no_weights, NotFound, "has no weights"),
        (pickles_alone, Unsupported, "pickles only"),
    ],
)
def test_a_broken_folder_is_one_clear_message(
    sharded: Path, breaking: Any, error: type[GGUFToolsError], why: str
) -> None:
    breaking(sharded)
    with pytest.raises(error, match=why) as caught:
        Checkpoint.open(sharded)
    assert caught.value.what
    assert caught.value.why


def test_what_is_no_folder_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        Checkpoint.open(tmp_path / "nothing here")
    (tmp_path / "file.safetensors").write_bytes(b"")
    with pytest.raises(InputError, match="give the folder"):
        Checkpoint.open(tmp_path / "file.safetensors")
