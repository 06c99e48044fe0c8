"""convert, when something is wrong: one clear message, nothing left behind."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny

from gguftools import goal
from gguftools.checkpoint import floats, safetensors
from gguftools.errors import (
    DiskFull,
    FormatError,
    GGUFToolsError,
    InputError,
    LoadAborted,
    NotFound,
    OutputExists,
    Unsupported,
)
from gguftools.header import read_header, read_tensor
from gguftools.verbs.convert import Converted, convert


def rewrite(folder: Path, change: Callable[[dict[str, Any]], Any], config: Any = None) -> None:
    tensors: dict[str, Any] = dict(tiny.weights(tiny.LLAMA))
    change(tensors)
    tiny.write_shard(folder / "model.safetensors", tensors)
    if config:
        (folder / "config.json").write_text(json.dumps({**tiny.LLAMA, **config}))


def poison(name: str, value: float) -> Callable[[dict[str, Any]], None]:
    def change(tensors: dict[str, Any]) -> None:
        tensors[name].flat[-1] = value

    return change


FAULTS: dict[str, tuple[Any, Any, type[GGUFToolsError], str]] = {
    "a missing tensor": (lambda t: t.pop("model.norm.weight"), None, InputError, "lacks model.norm.weight"),
    "a foreign tensor": (lambda t: t.update(extra=np.zeros(3, "f4")), None, InputError, "has extra"),
    "a wrong shape": (
        lambda t: t.update({"model.norm.weight": np.zeros(63, "f4")}),
        None,
        InputError,
        r"model.norm.weight has the shape \[63\]",
    ),
    "another config's shape": (lambda t: None, {"intermediate_size": 128}, InputError, "has the shape"),
    "a NaN in a norm": (poison("model.norm.weight", np.nan), None, InputError, "holds a NaN or an infinity"),
    "an infinity in a weight": (
        poison("lm_head.weight", np.inf),
        None,
        InputError,
        "holds a NaN or an infinity",
    ),
    "a type that is no plain float": (
        lambda t: t.update({"lm_head.weight": np.zeros((288, 64), "u1")}),
        None,
        InputError,
        "lm_head.weight is F8_E4M3",
    ),
    "a quantized checkpoint": (
        lambda t: None,
        {"quantization_config": {"quant_method": "fp8"}},
        Unsupported,
        "fp8",
    ),
    "an unknown architecture": (
        lambda t: None,
        {"architectures": ["XForCausalLM"]},
        Unsupported,
        "XForCausalLM",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_clear_message_and_leaves_nothing_behind(
    tmp_path: Path, llama: Path, fault: str
) -> None:
    change, config, error, why = FAULTS[fault]
    rewrite(llama, change, config)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(error, match=why) as caught:
        convert(llama, tmp_path / "m.gguf")
    assert caught.value.what
    assert caught.value.why
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("outtype", "fits", "too_large"),
    [
        ("f16", 65519.0, 65520.0),
        ("q8_0", 65519.0 * 127, 65520.0 * 127),
        ("bf16", 3.38e38, 3.4e38),
    ],
)
def test_a_number_too_large_for_the_type_is_refused_not_made_infinite(
    tmp_path: Path, llama: Path, outtype: Any, fits: float, too_large: float
) -> None:
    rewrite(llama, poison("lm_head.weight", too_large))
    with pytest.raises(InputError, match=f"too large for {outtype.upper()}"):
        convert(llama, tmp_path / "m.gguf", outtype=outtype)
    assert not list(tmp_path.glob("*.gguf"))
    rewrite(llama, poison("lm_head.weight", fits))
    convert(llama, tmp_path / "m.gguf", outtype=outtype)
    header = read_header(tmp_path / "m.gguf")
    info = next(tensor for tensor in header.tensors if tensor.name == "output.weight")
    data = np.frombuffer(read_tensor(header, info), np.uint8).reshape(info.shape[1], -1)
    typed = data.view(floats.PLAIN[info.type]) if info.type in floats.PLAIN else data
    assert np.isfinite(floats.to_f32(typed, info.type)).all()


def test_buffers_and_a_tied_head_that_is_stored_twice_are_passed_over(tmp_path: Path, llama: Path) -> None:
    rewrite(
        llama,
        lambda t: t.update({"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(16, "f4")}),
        {"tie_word_embeddings": True},
    )
    assert convert(llama, tmp_path / "m.gguf").types == {"F32": 20}


def test_a_shard_that_shrinks_on_the_way_is_noticed(tmp_path: Path, llama: Path, monkeypatch: Any) -> None:
    read = safetensors.read_bytes

    def shrinking(entry: Any, start: int, nbytes: int) -> Any:
        path = llama / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-1])
        return read(entry, start, nbytes)

    monkeypatch.setattr(safetensors, "read_bytes", shrinking)
    with pytest.raises(GGUFToolsError, match="ends inside"):
        convert(llama, tmp_path / "m.gguf")
    assert [p.name for p in tmp_path.iterdir()] == ["llama"]


def test_a_folder_without_a_tokenizer_is_named(tmp_path: Path, llama: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFound, match="empty has no tokenizer"):
        convert(llama, tmp_path / "m.gguf", tokenizer=tmp_path / "empty")
    (llama / "tokenizer.json").unlink()
    for vocab_only in (False, True):
        with pytest.raises(NotFound, match="llama has no tokenizer"):
            convert(llama, tmp_path / "m.gguf", vocab_only=vocab_only)


def test_a_template_that_does_not_compile_is_warned_of(
    tmp_path: Path, llama: Path, caplog: pytest.LogCaptureFixture
) -> None:
    convert(llama, tmp_path / "sound.gguf")
    assert not caplog.records
    (llama / "chat_template.jinja").write_text("{% for m in")
    convert(llama, tmp_path / "x.gguf")
    assert "cannot write a conversation" in caplog.text


def test_contents_that_contradict_each_other_are_no_byte_of_the_file(tmp_path: Path, llama: Path) -> None:
    (llama / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(FormatError, match=r"index\.json cannot be used\n.*weight_map\n.*again"):
        convert(llama, tmp_path / "x.gguf")


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json", "README.md"])
@pytest.mark.parametrize("dry_run", [False, True])
def test_the_checkpoints_own_files_are_never_overwritten(llama: Path, name: str, dry_run: bool) -> None:
    (llama / "README.md").write_text("read me")
    before = (llama / name).read_bytes()
    with pytest.raises(InputError, match="is a file of the checkpoint"):
        convert(llama, llama / name, force=True, dry_run=dry_run)
    assert (llama / name).read_bytes() == before


def test_a_gguf_in_the_checkpoints_folder_may_be_made_anew(llama: Path) -> None:
    convert(llama, llama / "model.gguf")
    assert convert(llama, llama / "model.gguf", force=True).nbytes == (llama / "model.gguf").stat().st_size


def test_an_existing_file_is_kept_without_force(tmp_path: Path, llama: Path) -> None:
    out = tmp_path / "m.gguf"
    out.write_bytes(b"mine")
    with pytest.raises(OutputExists):
        convert(llama, out)
    assert out.read_bytes() == b"mine"
    assert isinstance(convert(llama, out, force=True), Converted)
    assert read_header(out).architecture == "llama"


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
def test_a_full_disk_or_ctrl_c_in_the_middle_leaves_nothing_behind(
    tmp_path: Path, llama: Path, monkeypatch: Any, failure: BaseException
) -> None:
    calls = 0

    def progress(_stage: str, _fraction: float) -> None:
        nonlocal calls
        calls += 1
        if calls == 10:
            raise failure

    with pytest.raises(DiskFull if isinstance(failure, OSError) else KeyboardInterrupt):
        convert(llama, tmp_path / "m.gguf", progress=progress)
    assert [p.name for p in tmp_path.iterdir()] == ["llama"]


def test_too_little_space_is_noticed_before_the_first_byte(
    tmp_path: Path, llama: Path, monkeypatch: Any
) -> None:
    free = goal.shutil.disk_usage(tmp_path)._replace(free=1_100_000)
    monkeypatch.setattr(goal.shutil, "disk_usage", lambda _path: free)
    with pytest.raises(DiskFull, match="are free"):
        convert(llama, tmp_path / "m.gguf")
    assert [p.name for p in tmp_path.iterdir()] == ["llama"]


def test_progress_rises_to_one_and_false_stops(tmp_path: Path, llama: Path) -> None:
    seen: list[float] = []
    convert(llama, tmp_path / "m.gguf", progress=lambda stage, part: seen.append(part))
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    with pytest.raises(LoadAborted):
        convert(llama, tmp_path / "n.gguf", progress=lambda stage, part: part < 0.5)
    assert not (tmp_path / "n.gguf").exists()


def test_an_unknown_outtype_is_refused(tmp_path: Path, llama: Path) -> None:
    with pytest.raises(InputError, match="q4_0"):
        convert(llama, tmp_path / "m.gguf", outtype="q2_k")  # type: ignore[arg-type]
