"""convert into shards: what they hold, their names, keys and sizes; the dry run that foretells them."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import lowlevel
import pytest
import tiny
from command_line import in_process
from hypothesis import given, settings
from hypothesis import strategies as st

from gguftools import gguf_write
from gguftools.arch.slot import Slot
from gguftools.cli import ui
from gguftools.errors import InputError, LoadAborted, OutputExists
from gguftools.gguf_write import Announced
from gguftools.header import Header, read_header, read_tensor
from gguftools.header.ggml_types import ValueType
from gguftools.verbs.convert import convert, shards
from gguftools.verbs.convert.plan import Job

SIZE = 100_000


def tensors(header: Header) -> dict[str, tuple[int, tuple[int, ...], bytes]]:
    return {t.name: (t.type, t.shape, bytes(read_tensor(header, t))) for t in header.tensors}


def test_the_shards_hold_the_tensors_and_keys_of_the_one_file(tmp_path: Path, llama: Path) -> None:
    whole = read_header(convert(llama, tmp_path / "m.gguf").path)
    done = convert(llama, tmp_path / "m.gguf", split_size=SIZE)
    split = read_header(done.path)
    assert tensors(split) == tensors(whole)
    keys = {key: value for key, value in split.keys.items() if not key.startswith("split.")}
    assert keys.keys() == whole.keys.keys()
    assert all(keys[k] == v for k, v in whole.keys.items() if isinstance(v, str | int | float))
    assert [file.path.name for file in done.files] == [
        f"m-{i:05}-of-{len(done.files):05}.gguf" for i in range(1, len(done.files) + 1)
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["llama", "m.gguf", *(file.path.name for file in done.files)]
    )
    assert len(done.files) > 3
    assert all(file.path.stat().st_size == file.nbytes for file in done.files)
    assert done.nbytes == sum(file.nbytes for file in done.files)


def test_the_first_shard_has_all_keys_and_each_says_which_it_is(tmp_path: Path, llama: Path) -> None:
    done = convert(llama, tmp_path / "m.gguf", split_size=SIZE)
    parts = [read_header(file.path.read_bytes()) for file in done.files]
    for no, part in enumerate(parts):
        assert [part.keys[f"split.{key}"] for key in ("no", "count", "tensors.count")] == [no, len(parts), 21]
        assert [part.types[f"split.{key}"] for key in ("no", "count", "tensors.count")] == [
            ValueType.U16,
            ValueType.U16,
            ValueType.I32,
        ]
    assert "tokenizer.ggml.tokens" in parts[0].keys
    assert all(len(part.keys) == 3 for part in parts[1:])


def test_libllama_loads_the_shards_and_computes_as_with_the_one_file(tmp_path: Path, llama: Path) -> None:
    ids = list(range(1, 40))
    whole = lowlevel.logits(convert(llama, tmp_path / "m.gguf").path, ids)
    split = lowlevel.logits(convert(llama, tmp_path / "m.gguf", split_size=SIZE).path, ids)
    assert (whole == split).all()


def test_what_fits_into_one_file_is_one_and_keeps_its_name(tmp_path: Path, llama: Path) -> None:
    done = convert(llama, tmp_path / "m.gguf", split_size=10**9)
    assert [file.path.name for file in done.files] == ["m.gguf"]
    assert "split.count" not in read_header(tmp_path / "m.gguf").keys


def job(name: str, rows: int) -> Job:
    return Job(Slot(name, name, (rows, 8)), (), Announced(name, (8, rows), 0, 32 * rows))


KEYS: list[gguf_write.Key] = [
    ("general.architecture", "llama", ValueType.STR),
    ("text", "x" * 300, ValueType.STR),
]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.text("ab.", max_size=9), st.integers(1, 60)), min_size=1, max_size=30),
    st.integers(1, 6000),
)
def test_no_file_is_larger_than_wanted_but_for_one_tensor_that_is(
    sizes: list[tuple[str, int]], size: int
) -> None:
    jobs = [job(f"{name}{i}", rows) for i, (name, rows) in enumerate(sizes)]
    found = shards.plan(Path("m.gguf"), KEYS, jobs, size)
    assert [j for shard in found for j in shard.jobs] == jobs
    for shard, after in zip(found, [*found[1:], None], strict=True):
        assert shard.nbytes <= size or len(shard.jobs) == 1
        if after is not None:  # and no shard ends before it is full
            longer = gguf_write.header_bytes(read_keys(shard), [j.out for j in (*shard.jobs, after.jobs[0])])
            assert replace(shard, head=longer, jobs=(*shard.jobs, after.jobs[0])).nbytes + 32 > size


def read_keys(shard: shards.Shard) -> list[gguf_write.Key]:
    header = read_header(shard.head)
    return [(key, value, header.types[key]) for key, value in header.keys.items()]


def test_a_size_that_makes_more_shards_than_a_model_can_have_is_refused(
    tmp_path: Path, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "MAX_SHARDS", 5)
    with pytest.raises(InputError, match="at most 5"):
        convert(llama, tmp_path / "m.gguf", split_size=1)
    with pytest.raises(InputError, match="0 bytes"):
        convert(llama, tmp_path / "m.gguf", split_size=0)
    assert [path.name for path in tmp_path.iterdir()] == ["llama"]


def test_a_shards_name_that_is_taken_needs_force_which_replaces_the_set(tmp_path: Path, llama: Path) -> None:
    done = convert(llama, tmp_path / "m.gguf", split_size=SIZE)
    third = done.files[2].path
    third.write_bytes(b"mine")
    for path in (file.path for file in done.files if file.path != third):
        path.unlink()
    with pytest.raises(OutputExists, match=third.name):
        convert(llama, tmp_path / "m.gguf", split_size=SIZE)
    assert third.read_bytes() == b"mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["llama", third.name]
    convert(llama, tmp_path / "m.gguf", split_size=SIZE, force=True)
    assert len(read_header(third).tensors) == 21


def test_progress_rises_over_all_shards_and_false_in_it_stops(tmp_path: Path, llama: Path) -> None:
    seen: list[float] = []
    convert(llama, tmp_path / "a.gguf", split_size=SIZE, progress=lambda stage, part: seen.append(part))
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    with pytest.raises(LoadAborted, match=r"shards are kept in .*b\.gguf\.unfinished"):
        convert(llama, tmp_path / "b.gguf", split_size=SIZE, progress=lambda stage, part: part < 0.7)
    assert not list(tmp_path.glob("b-*"))


@pytest.mark.parametrize("split_size", [None, SIZE])
def test_a_dry_run_foretells_every_byte_and_writes_none(
    tmp_path: Path, llama: Path, split_size: int | None
) -> None:
    (llama / "model.safetensors").chmod(0o600)
    told = convert(llama, tmp_path / "m.gguf", outtype="q8_0", split_size=split_size, dry_run=True)
    assert [path.name for path in tmp_path.iterdir()] == ["llama"]
    done = convert(llama, tmp_path / "m.gguf", outtype="q8_0", split_size=split_size)
    assert replace(told, dry_run=False) == done
    for file in told.files:
        assert file.path.stat().st_size == file.nbytes
        found = {t.name: (t.shape, t.nbytes) for t in read_header(file.path.read_bytes()).tensors}
        assert found == {made.name: (made.shape, made.nbytes) for made in file.tensors}
    again = convert(llama, tmp_path / "m.gguf", outtype="q8_0", split_size=split_size, dry_run=True)
    assert again == told  # also where the output exists


def test_a_dry_run_names_what_each_tensor_is_made_of(tmp_path: Path, llama: Path) -> None:
    (file,) = convert(llama, tmp_path / "m.gguf", dry_run=True).files
    sources = {made.name: made.sources for made in file.tensors}
    assert sources["blk.1.attn_q.weight"] == ("model.layers.1.self_attn.q_proj.weight",)


def test_the_command_lists_a_dry_runs_tensors_as_a_table_and_as_json(
    tmp_path: Path, llama: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = ["convert", llama, "-o", tmp_path / "m.gguf", "--split-size", "100K", "--dry-run"]
    ui._console.cache_clear()  # it holds the stream of the test before
    code, out, _ = in_process(capsys, *map(str, wanted))
    assert code == 0
    lines = out.splitlines()
    told = convert(llama, tmp_path / "m.gguf", split_size=SIZE, dry_run=True)
    assert sum(line.startswith("m-0000") for line in lines) == len(told.files)
    row = next(line for line in lines if "blk.0.ffn_up.weight" in line)
    assert row.split() == ["blk.0.ffn_up.weight", "F32", "64", "×", "96", "24,576",
                           "model.layers.0.mlp.up_proj.weight"]  # fmt: skip
    assert any(line.split()[:2] == ["would", "write"] for line in lines)
    assert any(line.split()[0] == "free" for line in lines)
    code, out, _ = in_process(capsys, *map(str, wanted), "--json")
    found: dict[str, Any] = json.loads(out)
    assert found["dry_run"] is True
    assert found["nbytes"] == told.nbytes
    assert found["files"][0]["tensors"][0] == {
        "name": "token_embd.weight",
        "sources": ["model.embed_tokens.weight"],
        "type": "F32",
        "shape": [64, 288],
        "nbytes": 64 * 288 * 4,
    }
    assert [path.name for path in tmp_path.iterdir()] == ["llama"]


@pytest.mark.parametrize(
    ("text", "size"), [("100000", 1), ("100K", 1), ("0.1M", 0), ("0", 0), ("4X", 0), ("-1G", 0)]
)
def test_a_size_is_a_number_with_a_unit(
    tmp_path: Path, llama: Path, capsys: pytest.CaptureFixture[str], text: str, size: int
) -> None:
    ui._console.cache_clear()
    code, _, err = in_process(
        capsys, "convert", str(llama), "-o", str(tmp_path / "m.gguf"), "--split-size", text
    )
    assert code == (0 if size else 2)
    assert ("is no size" in err) != bool(size)
    assert bool(list(tmp_path.glob("m-00001-of-*.gguf"))) == bool(size)


def test_a_vocabulary_alone_can_be_foretold_too(tmp_path: Path, llama: Path) -> None:
    told = convert(llama, tmp_path / "v.gguf", vocab_only=True, dry_run=True)
    assert not (tmp_path / "v.gguf").exists()
    assert convert(llama, tmp_path / "v.gguf", vocab_only=True).nbytes == told.nbytes
    assert (tmp_path / "v.gguf").stat().st_size == told.nbytes


def test_memory_is_that_of_some_chunks_also_with_shards(tmp_path: Path, tokenizer: Path) -> None:
    import tracemalloc

    config = {
        **tiny.LLAMA,
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "vocab_size": 8192,
        "num_hidden_layers": 1,
    }
    stored = {name: tiny.bf16(t) for name, t in tiny.weights(config).items()}
    tiny.write_checkpoint(tmp_path / "m", config, stored, tokenizer=tokenizer)
    logging.disable(logging.WARNING)
    for outtype in ("bf16", "f16", "q8_0"):
        tracemalloc.start()
        done = convert(tmp_path / "m", tmp_path / f"{outtype}.gguf", outtype=outtype, split_size=20_000_000)  # type: ignore[arg-type]
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        heads = len(done.files) * read_header(done.path.read_bytes()).data_offset
        assert peak < 3 * heads + 6 * (1 << 20) < max(t.nbytes for t in stored.values())
    logging.disable(logging.NOTSET)
