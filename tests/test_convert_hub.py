"""convert from a Hub repo: tables by ranges first, weights only when everything fits, then from the cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gemma3_forward
import numpy as np
import pytest
import tiny
from hub_server import Hub

from gguftools import goal
from gguftools.checkpoint import Checkpoint
from gguftools.errors import (
    DiskFull,
    FormatError,
    GGUFToolsError,
    InputError,
    LoadAborted,
    NotFound,
    Unsupported,
)
from gguftools.verbs.convert import convert

CONFIG = {**tiny.LLAMA, "hidden_size": 256, "intermediate_size": 2048}


@pytest.fixture
def local(tmp_path: Path) -> Path:
    """The folder that the repo org/tiny holds: 9 MB of weights in three shards."""
    tokenizer = tiny.write_tokenizer(tmp_path / "tokenizer", chat_template="hello")
    return tiny.write_checkpoint(
        tmp_path / "tiny", CONFIG, tiny.weights(CONFIG), shards=3, tokenizer=tokenizer
    )


def upload(hub: Hub, folder: Path, **changes: bytes) -> None:
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    hub.repos["org/tiny"] = {**files, "README.md": b"#", "pytorch_model.bin": bytes(1000), **changes}


def test_the_file_is_the_same_as_from_the_folder_and_again_offline(
    hub: Hub, local: Path, tmp_path: Path
) -> None:
    upload(hub, local)
    convert(local, tmp_path / "a.gguf", outtype="q8_0")
    stages: list[str] = []
    convert(
        "org/tiny", tmp_path / "b.gguf", outtype="q8_0", progress=lambda stage, part: stages.append(stage)
    )
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()
    assert list(dict.fromkeys(stages)) == ["download", "convert"]
    asked = len(hub.requests)
    convert("org/tiny", tmp_path / "c.gguf", outtype="q8_0", offline=True)
    assert len(hub.requests) == asked
    assert (tmp_path / "c.gguf").read_bytes() == (tmp_path / "a.gguf").read_bytes()


def test_only_what_is_needed_is_downloaded(hub: Hub, local: Path, tmp_path: Path) -> None:
    upload(hub, local)
    convert("org/tiny", tmp_path / "a.gguf")
    fetched = {
        path.name for path in (tmp_path / "cache").rglob("*") if path.parent.parent.name == "snapshots"
    }
    assert fetched == {path.name for path in local.iterdir()}


def test_opening_reads_tables_by_ranges_and_no_weights(hub: Hub, local: Path) -> None:
    upload(hub, local)
    found = Checkpoint.open("org/tiny")
    assert found.name == "tiny"
    assert found.config == CONFIG
    assert found.tensors.keys() == tiny.weights(CONFIG).keys()
    assert hub.sent < 2_000_000 < sum(entry.nbytes for entry in found.tensors.values())


def faulty(local: Path, fault: str) -> dict[str, bytes]:
    if fault == "architecture":
        return {"config.json": b'{"architectures": ["MambaForCausalLM"]}'}
    if fault == "shard":
        return {"model-00002-of-00003.safetensors": bytes(5_000_000)}
    tensors: dict[str, Any] = dict(tiny.weights(CONFIG))
    names = [name for name in list(tensors)[1::3] if name != "model.norm.weight"]
    tiny.write_shard(local / "x", {name: tensors[name] for name in names} | {"extra": np.zeros(1000, "f4")})
    return {"model-00002-of-00003.safetensors": (local / "x").read_bytes()}


@pytest.mark.parametrize(
    ("fault", "error"),
    [("architecture", Unsupported), ("shard", FormatError), ("tensor", InputError)],
)
def test_what_cannot_be_converted_is_known_before_the_weights_are_downloaded(
    hub: Hub, local: Path, tmp_path: Path, fault: str, error: type[GGUFToolsError]
) -> None:
    upload(hub, local, **faulty(local, fault))
    with pytest.raises(error):
        convert("org/tiny", tmp_path / "a.gguf")
    assert hub.sent < 2_000_000
    assert not (tmp_path / "a.gguf").exists()


def test_a_stopped_download_leaves_no_output(hub: Hub, local: Path, tmp_path: Path) -> None:
    upload(hub, local)
    with pytest.raises(LoadAborted):
        convert("org/tiny", tmp_path / "a.gguf", progress=lambda stage, part: False)
    assert not list(tmp_path.glob("*.gguf"))
    assert not list(tmp_path.glob(".*"))


def test_a_vocabulary_alone_downloads_no_weights(hub: Hub, local: Path, tmp_path: Path) -> None:
    upload(hub, local)
    assert convert("org/tiny", tmp_path / "v.gguf", vocab_only=True).n_tokens == 288
    assert hub.sent < 200_000


def test_a_repo_that_is_missing_or_no_checkpoint_is_named(hub: Hub, tmp_path: Path) -> None:
    hub.repos["org/empty"] = {"README.md": b"#"}
    hub.repos["org/pickles"] = {"config.json": b"{}", "pytorch_model.bin": b"x"}
    hub.repos["org/gguf"] = {"m.gguf": b"x"}
    for repo, error, why in (
        ("org/none", NotFound, "not found"),
        ("org/empty", NotFound, "has no config.json"),
        ("org/pickles", Unsupported, "pickles only"),
        ("org/gguf", NotFound, "it holds GGUFs"),
        ("org/gguf:m.gguf", InputError, "a whole repo"),
    ):
        with pytest.raises(error, match=why):
            convert(repo, tmp_path / "a.gguf")


def test_a_repo_that_holds_ggufs_too_is_converted_from_its_safetensors(
    hub: Hub, local: Path, tmp_path: Path
) -> None:
    upload(hub, local, **{"a-Q8_0.gguf": b"GGUF", "b-Q4_0.gguf": b"GGUF"})
    made = convert("org/tiny", tmp_path / "a.gguf")
    assert made.path.read_bytes() == convert(local, tmp_path / "b.gguf").path.read_bytes()


def weights_here(folder: Path) -> set[str]:
    return {
        path.name
        for path in (folder / "cache").rglob("*.safetensors")
        if path.parent.parent.name == "snapshots"
    }


def by_layers(folder: Path) -> Path:
    """The local folder with its tensors in the order of the model: each shard holds what lies together."""
    tensors = tiny.weights(CONFIG)
    names, weight_map = list(tensors), {}
    for i in range(3):
        part = names[i * len(names) // 3 : (i + 1) * len(names) // 3]
        file = f"model-{i + 1:05d}-of-00003.safetensors"
        tiny.write_shard(folder / file, {name: tensors[name] for name in part})
        weight_map |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


def test_with_shards_a_file_is_downloaded_when_the_first_shard_needs_it(
    hub: Hub, local: Path, tmp_path: Path
) -> None:
    upload(hub, by_layers(local))
    seen: list[tuple[str, float, int]] = []

    def progress(stage: str, part: float) -> None:
        seen.append((stage, part, len(weights_here(tmp_path))))

    done = convert("org/tiny", tmp_path / "a.gguf", split_size=1_000_000, progress=progress)
    assert len(done.files) > 3
    # The embedding lies in the first file, the output matrix, which is written next, in the last.
    assert {here for stage, _, here in seen if stage == "convert"} == {2, 3}
    for wanted in ("download", "convert"):
        parts = [part for stage, part, _ in seen if stage == wanted]
        assert parts == sorted(parts)
        assert parts[-1] == 1.0
    whole = convert(local, tmp_path / "b.gguf", split_size=1_000_000)
    assert [f.path.read_bytes() for f in done.files] == [f.path.read_bytes() for f in whole.files]


def test_a_download_that_fails_midway_keeps_the_shards_that_are_whole(
    hub: Hub, local: Path, tmp_path: Path
) -> None:
    upload(hub, by_layers(local))
    late = hub.repos["org/tiny"]["model-00002-of-00003.safetensors"]
    stages: list[str] = []

    def progress(stage: str, part: float) -> bool:
        stages.append(stage)
        return not (stage == "download" and "convert" in stages)

    with pytest.raises(LoadAborted, match="shards are kept"):
        convert("org/tiny", tmp_path / "a.gguf", split_size=1_000_000, progress=progress)
    sent = hub.sent
    done = convert("org/tiny", tmp_path / "a.gguf", split_size=1_000_000)
    assert done.n_kept > 0
    assert hub.sent - sent < len(late) + 500_000  # only what was missing, and the small files' tables
    whole = convert(local, tmp_path / "b.gguf", split_size=1_000_000)
    assert [f.path.read_bytes() for f in done.files] == [f.path.read_bytes() for f in whole.files]


def test_a_dry_run_downloads_no_weights(hub: Hub, local: Path, tmp_path: Path) -> None:
    upload(hub, local)
    told = convert("org/tiny", tmp_path / "a.gguf", dry_run=True)
    assert hub.sent < 2_000_000 < told.nbytes
    assert not weights_here(tmp_path)
    assert not (tmp_path / "a.gguf").exists()


@pytest.mark.parametrize("split_size", [None, 1_000_000])
def test_space_is_looked_for_with_what_is_still_to_be_downloaded(
    hub: Hub, local: Path, tmp_path: Path, split_size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload(hub, local)
    told = convert("org/tiny", tmp_path / "a.gguf", split_size=split_size, dry_run=True)
    usage = goal.shutil.disk_usage(tmp_path)
    free = usage._replace(free=told.nbytes + (1 << 20) + 5_000_000)  # the output alone would fit
    monkeypatch.setattr(goal.shutil, "disk_usage", lambda _path: free)
    with pytest.raises(DiskFull, match="are free"):
        convert("org/tiny", tmp_path / "a.gguf", split_size=split_size)
    assert not weights_here(tmp_path)
    monkeypatch.setattr(goal.shutil, "disk_usage", lambda _path: usage)
    convert("org/tiny", tmp_path / "a.gguf", split_size=split_size)
    monkeypatch.setattr(goal.shutil, "disk_usage", lambda _path: free)
    convert("org/tiny", tmp_path / "a.gguf", split_size=split_size, force=True)  # all is in the cache


@pytest.mark.parametrize("split_size", [None, 60_000])
def test_of_a_checkpoint_with_vision_only_the_files_with_text_are_downloaded(
    hub: Hub, local: Path, tmp_path: Path, tokenizer: Path, split_size: int | None
) -> None:
    stored = {f"language_{name}": t for name, t in gemma3_forward.weights(gemma3_forward.GEMMA3).items()}
    stored = {name.replace("language_", "language_model.", 1): t for name, t in stored.items()}
    config = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "text_config": {k: v for k, v in gemma3_forward.GEMMA3.items() if k != "architectures"},
    }
    folder = tiny.write_checkpoint(tmp_path / "g" / "tiny", config, stored, shards=3, tokenizer=tokenizer)
    tiny.write_shard(folder / "model-seeing.safetensors", {"vision_tower.x.weight": np.ones((9, 9), "f4")})
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    index["weight_map"]["vision_tower.x.weight"] = "model-seeing.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    upload(hub, folder)
    done = convert("org/tiny", tmp_path / "a.gguf", split_size=split_size)
    assert weights_here(tmp_path) == {f"model-{i:05d}-of-00003.safetensors" for i in (1, 2, 3)}
    whole = convert(folder, tmp_path / "b.gguf", split_size=split_size)
    assert [f.path.read_bytes() for f in done.files] == [f.path.read_bytes() for f in whole.files]
    assert (len(done.files) > 1) == (split_size is not None)
