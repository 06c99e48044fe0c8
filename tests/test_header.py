"""read_header: keys, tensors, shards, and what it says about files that are not right."""

from __future__ import annotations

import os
import pickle
import time
from pathlib import Path

import numpy as np
import pytest
from gguf_files import (
    ARRAY,
    BOOL,
    F64,
    I32,
    STR,
    U8,
    U16,
    U64,
    Tensor,
    Typed,
    gguf_bytes,
    text,
    write_gguf,
    write_split,
)

from gguftools import header as header_module
from gguftools.errors import FormatError, InputError, NotFound
from gguftools.header import Header, StringArray, Truncated, ggml_types, read_header, read_tensor

KEYS = {
    "general.architecture": "llama",
    "a.int": 7,
    "a.negative": Typed(I32, -3),
    "a.big": Typed(U64, 2**63),
    "a.float": 0.5,
    "a.double": Typed(F64, 0.1),
    "a.yes": True,
    "a.numbers": Typed(U16, [1, 2, 65535]),
    "a.flags": Typed(BOOL, [True, False]),
    "a.strings": ["x", "", "zwölf", b"\xff\xfe"],
    "a.none": Typed(I32, []),
}
TENSORS = [Tensor("t.f32", (3, 2), 0, bytes(range(24))), Tensor("t.q8", (64, 2), 8), Tensor("t.one", (), 1)]


def _error(data: bytes) -> FormatError:
    with pytest.raises(FormatError) as caught:
        read_header(data, name="broken.gguf")
    assert "broken.gguf" in str(caught.value)
    assert f"byte {caught.value.offset}" in str(caught.value)
    return caught.value


@pytest.mark.parametrize("version", [2, 3])
def test_keys_and_tensors_come_back_as_written(tmp_path: Path, version: int) -> None:
    path = write_gguf(tmp_path / "m.gguf", KEYS, TENSORS, version=version)
    header = read_header(path)
    assert (header.version, header.path, header.files) == (version, path, (path,))
    assert header.nbytes == path.stat().st_size
    assert header.architecture == "llama"
    assert header.keys["a.int"] == 7
    assert header.keys["a.negative"] == -3
    assert header.keys["a.big"] == 2**63
    assert header.keys["a.double"] == 0.1
    assert header.keys["a.yes"] is True
    numbers = header.get_array("a.numbers")
    assert numbers is not None
    assert numbers.tolist() == [1, 2, 65535]
    assert not numbers.flags.writeable
    assert list(header.keys["a.strings"]) == [b"x", b"", "zwölf".encode(), b"\xff\xfe"]  # type: ignore[arg-type]
    assert header.types["a.numbers"] == U16
    assert header.types["a.strings"] == STR
    assert [t.name for t in header.tensors] == ["t.f32", "t.q8", "t.one"]
    assert [t.shape for t in header.tensors] == [(3, 2), (64, 2), ()]
    assert [t.nbytes for t in header.tensors] == [24, 136, 2]
    assert bytes(read_tensor(header, header.tensors[0])) == bytes(range(24))


def test_getters_give_defaults_and_refuse_other_kinds() -> None:
    header = read_header(gguf_bytes(KEYS))
    assert header.get_str("missing") is None
    assert header.get_int("missing", 5) == 5
    assert header.get_float("a.int") == 7.0
    assert header.get_bool("a.yes") is True
    assert header.get_strings("a.strings") is not None
    for get, key in [
        (header.get_int, "a.yes"),
        (header.get_str, "a.int"),
        (header.get_bool, "a.int"),
        (header.get_array, "a.strings"),
        (header.get_strings, "a.numbers"),
        (header.get_float, "a.yes"),
    ]:
        with pytest.raises(FormatError, match=key) as caught:
            get(key)
        assert caught.value.offset == header.where[key]
    with pytest.raises(FormatError, match=r"general\.architecture"):
        _ = read_header(gguf_bytes()).architecture


def test_a_buffer_needs_no_tensor_data_and_says_how_much_is_missing() -> None:
    whole = gguf_bytes(KEYS, TENSORS)
    header = read_header(memoryview(whole))
    short = read_header(whole[: header.data_offset])
    assert short.tensors == header.tensors
    wanted = 0
    while True:  # as a reader of ranges does
        try:
            read_header(whole[:wanted])
            break
        except Truncated as error:
            previous, wanted = wanted, error.needed
        assert previous < wanted <= header.data_offset
    again = pickle.loads(pickle.dumps(Truncated("x", 1, "why", "hint", 9)))
    assert (again.path, again.offset, again.needed) == ("x", 1, 9)


def test_string_arrays_are_lazy_sequences() -> None:
    strings = [b"b", b"", b"abc", b"b"]
    array = StringArray.pack(strings)
    assert list(array) == strings
    assert array[-1] == b"b"
    assert array[1:3] == [b"", b"abc"]
    assert array[::-2] == [b"b", b""]
    assert array[3:1] == []
    assert array.find(b"abc") == 2
    assert array.find(b"b") == 0
    assert array.find(b"a") is None
    assert array.lengths.tolist() == [1, 0, 3, 1]
    assert bytes(array.span(1, 3)) == text(b"") + text(b"abc")
    assert array == StringArray.pack(strings)
    assert array != StringArray.pack(strings[:3])
    assert pickle.loads(pickle.dumps(array)) == array
    assert list(StringArray.pack([])) == []
    with pytest.raises(IndexError):
        _ = array[4]
    with pytest.raises(ValueError, match="whole strings"):
        _ = StringArray(b"\1\0\0\0\0\0\0\0", 1).starts


def test_the_table_of_tensor_types_is_gguf_pys() -> None:
    constants = pytest.importorskip("gguf.constants")
    theirs = {int(kind): size for kind, size in constants.GGML_QUANT_SIZES.items()}
    theirs.pop(9)  # Q8_1: gguf 0.19 says 40 bytes, ggml's struct has 36
    ours = {kind: (form.block, form.nbytes) for kind, form in ggml_types.TENSOR_TYPES.items()}
    assert {kind: ours.get(kind) for kind in theirs} == theirs
    names = {int(kind): kind.name for kind in constants.GGML_QUANT_SIZES}
    assert all(ggml_types.TENSOR_TYPES[kind].name == name for kind, name in names.items())


@pytest.mark.parametrize(
    ("data", "offset", "why"),
    [
        (b"", 0, "header goes on"),
        (b"GGML" + bytes(40), 0, "letters GGUF"),
        (b"version https://git-lfs.github.com/spec/v1", 0, "Git LFS pointer"),
        (b"<!DOCTYPE html>" + bytes(20), 0, "web page"),
        (gguf_bytes(KEYS, endian=">"), 4, "big-endian"),
        (gguf_bytes(version=1), 4, "version 1"),
        (gguf_bytes(version=4), 4, "version 4"),
        (gguf_bytes(version=0), 4, "version 0"),
        (gguf_bytes(n_keys=2**63), 16, "keys"),
        (gguf_bytes(n_keys=1), 24, "header goes on"),
        (gguf_bytes(n_tensors=2**40), 8, "tensors"),
        (gguf_bytes([("a", 1), ("a", 2)]), 41, "twice"),
        (gguf_bytes([(b"\xff", 1)]), 24, "UTF-8"),
        (gguf_bytes([("", 1)]), 24, "without a name"),
        (gguf_bytes([("a", b"\xff")]), 45, "UTF-8"),
        (gguf_bytes([("a", Typed(13, 0))]), 33, "13 is not a value type"),
        (gguf_bytes([("a", Typed(U8, 2))])[:33] + b"\7\0\0\0\2", 37, "neither 0 nor 1"),
        (gguf_bytes([("a", Typed(ARRAY, b"\11\0\0\0" + bytes(8)))]), 37, "array of arrays"),
        (gguf_bytes([("a", Typed(ARRAY, b"\12\0\0\0" + b"\xff" * 8))]), 41, "array of"),
        (gguf_bytes([("a", Typed(ARRAY, b"\10\0\0\0" + b"\xff" * 8))]), 41, "array of"),
        (gguf_bytes([("a", Typed(ARRAY, b"\10\0\0\0\1\0\x40" + bytes(5)))]), 41, "4,194,305 elements"),
        (gguf_bytes([("a", Typed(ARRAY, b"\0\0\0\0" + b"\xff" * 8))]), 49, "header goes on"),
        (gguf_bytes([("a", Typed(ARRAY, b"\7\0\0\0\1" + bytes(7) + b"\2"))]), 49, "more than 0 and 1"),
        (gguf_bytes([(bytes(70000), 1)]), 24, "cap"),
        (gguf_bytes([("general.alignment", 48)]), 24, "power of two"),
        (gguf_bytes([("general.alignment", 0)]), 24, "power of two"),
        (gguf_bytes([("general.alignment", Typed(I32, 32))]), 24, "unsigned"),
        (gguf_bytes([("general.alignment", "32")]), 24, "unsigned"),
        (gguf_bytes((), [Tensor("t"), Tensor("t")]), 57, "twice"),
        (gguf_bytes((), [Tensor(b"\xfe")]), 24, "UTF-8"),
        (gguf_bytes((), [Tensor("t", (1, 1, 1, 1, 1))]), 33, "5 dimensions"),
        (gguf_bytes((), [Tensor("t", type=4)]), 24, "tensor type 4"),
        (gguf_bytes((), [Tensor("t", type=137)]), 24, "tensor type 137"),
        (gguf_bytes((), [Tensor("t", (33,), 8)]), 24, "block of 32"),
        (gguf_bytes((), [Tensor("t", (2**40, 2**40))]), 24, "too many"),
        (gguf_bytes((), [Tensor("t", (2**63, 0))]), 24, "too many"),
        (gguf_bytes((), [Tensor("t", offset=32)]), 24, "should begin at 0"),
        (gguf_bytes((), [Tensor("t"), Tensor("u", offset=130)]), 57, "should begin at 128"),
    ],
)
def test_a_wrong_header_is_refused_with_path_and_offset(data: bytes, offset: int, why: str) -> None:
    error = _error(data)
    assert why in error.why
    assert error.offset == offset


def test_tensor_data_must_lie_inside_the_file(tmp_path: Path) -> None:
    whole = gguf_bytes(KEYS, TENSORS)
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole[: read_header(whole).tensors[1].offset + 135])
    with pytest.raises(FormatError, match=r"t\.q8 ends at byte") as caught:
        read_header(path)
    assert "fetch" in caught.value.hint
    path.write_bytes(whole)
    header = read_header(path)
    os.truncate(path, header.data_offset)
    with pytest.raises(FormatError, match="beyond the file"):
        read_tensor(header, header.tensors[0])


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"none\.gguf"):
        read_header(tmp_path / "none.gguf")
    with pytest.raises(NotFound, match="no GGUF in this folder"):
        read_header(tmp_path)
    (tmp_path / "empty.gguf").touch()
    with pytest.raises(Truncated, match="empty"):
        read_header(tmp_path / "empty.gguf")


def test_a_header_beyond_the_cap_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_gguf(tmp_path / "m.gguf", KEYS, TENSORS)
    monkeypatch.setattr(header_module, "MAX_HEADER", 200)
    with pytest.raises(FormatError, match="exceed the cap of 200 bytes"):
        read_header(path)


def test_nothing_stays_open(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", KEYS, TENSORS)
    header = read_header(path)
    view = read_tensor(header, header.tensors[0])
    view.release()
    path.write_bytes(b"other")  # a mapped file could not be written on Windows
    path.unlink()
    assert header.keys["a.strings"][2] == "zwölf".encode()  # type: ignore[index]


def _split(folder: Path, stem: str = "m", rows: int = 32) -> list[Path]:
    tensors = [
        [Tensor("a", (rows,)), Tensor("b", (32,))],
        [Tensor("c", (rows,))],
        [Tensor("d", (4,), 0, bytes(range(16)))],
    ]
    return write_split(folder, stem, {"general.architecture": "llama"}, tensors)


@pytest.mark.parametrize("given", [0, 1, 2, None])
def test_a_split_model_is_read_from_any_shard_and_from_its_folder(tmp_path: Path, given: int | None) -> None:
    files = _split(tmp_path)
    header = read_header(tmp_path if given is None else files[given])
    assert header.files == tuple(files)
    assert header.path == files[0]
    assert header.architecture == "llama"
    assert [(t.name, t.shard) for t in header.tensors] == [("a", 0), ("b", 0), ("c", 1), ("d", 2)]
    assert header.nbytes == sum(file.stat().st_size for file in files)
    assert bytes(read_tensor(header, header.tensors[3])) == bytes(range(16))


def test_missing_shards_are_named(tmp_path: Path) -> None:
    files = _split(tmp_path)
    files[0].unlink()
    files[2].unlink()
    for source in (files[1], tmp_path):
        with pytest.raises(NotFound, match="2 of 3 shards are missing") as caught:
            read_header(source)
        assert caught.value.why == "m-00001-of-00003.gguf, m-00003-of-00003.gguf"


def test_shards_of_different_models_are_refused(tmp_path: Path) -> None:
    files = _split(tmp_path)
    (tmp_path / "other").mkdir()
    other = write_split(
        tmp_path / "other",
        "m",
        {"general.architecture": "llama"},
        [[Tensor("a")], [Tensor("b")], [Tensor("d")]],
    )
    for no, why in [(1, "also in"), (2, r"says that it is shard 2|split\.tensors\.count")]:
        before = files[no].read_bytes()
        files[no].write_bytes(other[no].read_bytes())
        with pytest.raises(FormatError, match=r"split\.tensors\.count|also in") as caught:
            read_header(files[0])
        assert "different models" in caught.value.hint, why
        files[no].write_bytes(before)
    files[1].write_bytes(files[2].read_bytes())
    with pytest.raises(FormatError, match="says that it is shard 2 of 3"):
        read_header(files[0])


def test_a_renamed_shard_and_a_crowded_folder_are_explained(tmp_path: Path) -> None:
    files = _split(tmp_path)
    lone = files[1].rename(tmp_path / "lone.gguf")
    with pytest.raises(FormatError, match="its name does not end in -NNNNN-of-00003"):
        read_header(lone)
    with pytest.raises(InputError, match="more than one model"):
        read_header(tmp_path)


def test_a_header_of_kimis_size_opens_in_a_twentieth_of_a_second(tmp_path: Path) -> None:
    tokens = [b"%x" % (i * 7919) for i in range(163_840)]
    keys = {
        "general.architecture": "deepseek2",
        "t": tokens,
        "m": tokens[:163_328],
        "n": np.ones(163_840, np.int32),
    }
    path = write_gguf(tmp_path / "big.gguf", keys)

    def opening() -> float:
        start = time.perf_counter()
        assert isinstance(read_header(path), Header)
        return time.perf_counter() - start

    assert min(opening() for _ in range(5)) <= 0.05
