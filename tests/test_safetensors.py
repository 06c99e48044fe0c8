"""safetensors: what is written is read back; whatever a file claims, only what is inside it is believed."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny

from gguftools.checkpoint import safetensors
from gguftools.errors import FormatError


def file_with(tmp_path: Path, table: Any, data: bytes = bytes(16)) -> Path:
    text = table if isinstance(table, bytes) else json.dumps(table).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def entry(dtype: Any = "F32", shape: Any = (4,), offsets: Any = (0, 16)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    tensors = {
        "a": np.arange(6, dtype="f4").reshape(2, 3),
        "b": np.arange(3, dtype="u2"),
        "c": np.zeros((0, 4), "f2"),
    }
    tiny.write_shard(path, tensors)
    table = safetensors.read_table(path)
    assert {e.name: (e.dtype, e.shape) for e in table.values()} == {
        "a": ("F32", (2, 3)),
        "b": ("BF16", (3,)),
        "c": ("F16", (0, 4)),
    }
    for name, tensor in tensors.items():
        assert safetensors.read_bytes(table[name], 0, tensor.nbytes).tobytes() == tensor.tobytes()
    assert safetensors.read_bytes(table["a"], 4, 8).tobytes() == tensors["a"].tobytes()[4:12]


def test_the_data_begins_at_a_multiple_of_eight(tmp_path: Path) -> None:
    for name in ("a", "ab", "abc", "abcdefg"):
        assert len(safetensors.table_bytes([(name, "F32", (1,), 4)])) % 8 == 0


@pytest.mark.parametrize(
    ("table", "why"),
    [
        (b"{", "not good JSON"),
        (b"\xff\xfe", "not good JSON"),
        (b"[" * 100_000, "not good JSON"),
        (b"[]", "not a JSON object"),
        (b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"a":{}}', "twice"),
        ({"a": 1}, "no description"),
        ({"a": entry(dtype="F31")}, "unknown type"),
        ({"a": entry(dtype=None)}, "unknown type"),
        ({"a": entry(shape=[-4])}, "shape"),
        ({"a": entry(shape=[True, 4])}, "shape"),
        ({"a": entry(shape=[4.0])}, "shape"),
        ({"a": entry(shape=[1] * 9)}, "shape"),
        ({"a": entry(shape=[2**62, 2**62])}, "needs"),
        ({"a": entry(shape=[2**64])}, "shape"),
        ({"a": entry(offsets=[0])}, "byte range"),
        ({"a": entry(offsets=[16, 0])}, "byte range"),
        ({"a": entry(offsets=[-16, 0])}, "byte range"),
        ({"a": entry(offsets=[0, 2**63 - 1])}, "cut short"),
        ({"a": entry(offsets=[8, 24])}, "cut short"),
        ({"a": entry(offsets=[0, 8])}, "needs 16 bytes"),
        ({"a": entry(), "b": entry()}, "overlaps"),
        ({"a": entry(shape=[2], offsets=[0, 8]), "b": entry(shape=[3], offsets=[4, 16])}, "overlaps"),
        ({"a": entry(shape=[1], offsets=[0, 4]), "b": entry(shape=[2], offsets=[8, 16])}, "gap"),
        ({"a": entry(shape=[2], offsets=[0, 8])}, "the file has"),
    ],
)
def test_a_lying_table_is_refused(tmp_path: Path, table: Any, why: str) -> None:
    with pytest.raises(FormatError, match=why) as error:
        safetensors.read_table(file_with(tmp_path, table))
    assert "x.safetensors" in error.value.what


@pytest.mark.parametrize("data", [b"", b"1234567", struct.pack("<Q", 2**63), struct.pack("<Q", 100) + b"{}"])
def test_a_length_that_cannot_be_is_refused_before_anything_is_allocated(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    with pytest.raises(FormatError):
        safetensors.read_table(path)


def test_every_prefix_and_any_mutation_parses_or_raises_format_error(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    tiny.write_shard(path, {"a": np.arange(6, dtype="f4"), "b": np.arange(3, dtype="u2")})
    good = path.read_bytes()
    chance = random.Random(1)
    trials = [good[:n] for n in range(len(good))]
    for _ in range(2000):
        bad = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            bad[chance.randrange(len(bad))] = chance.randrange(256)
        trials.append(bytes(bad))
    for trial in trials:
        path.write_bytes(trial)
        try:
            found = safetensors.read_table(path).values()
        except FormatError:
            assert trial != good
            continue
        assert len(trial) == len(good)
        assert all(8 < e.start <= e.stop <= len(trial) for e in found)


def test_reading_outside_a_tensor_or_from_a_file_that_shrank_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    tiny.write_shard(path, {"a": np.arange(6, dtype="f4")})
    found = safetensors.read_table(path)["a"]
    for start, nbytes in ((0, 25), (-1, 4), (24, 1)):
        with pytest.raises(FormatError):
            safetensors.read_bytes(found, start, nbytes)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(FormatError, match="ends inside a"):
        safetensors.read_bytes(found, 0, 24)
