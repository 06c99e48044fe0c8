"""edit keeps what it does not edit: alignment, version, shards, and any key of any GGUF."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edits import model, plain, same_tensors, split
from gguf_files import Tensor, Typed, gguf_bytes, write_gguf
from hypothesis import given, settings
from hypothesis import strategies as st

import gguftools
from gguftools.errors import InputError
from gguftools.header import StringArray, read_header
from gguftools.header.ggml_types import ValueType
from gguftools.verbs.edit import values as edit_values


@pytest.mark.parametrize("alignment", [8, 32, 64, 4096])
@pytest.mark.parametrize("version", [2, 3])
def test_alignment_and_version_stay(tmp_path: Path, alignment: int, version: int) -> None:
    file = model(tmp_path / "m.gguf", {"general.alignment": alignment}, alignment=alignment, version=version)
    out = tmp_path / "out.gguf"
    for text in ("a", "b" * 31, "c" * 4096):
        gguftools.edit(file, out, set={"general.name": text}, force=True)
        header = read_header(out)
        assert (header.version, header.data_offset % alignment) == (version, 0)
        assert same_tensors(file, out)


def test_a_later_shard_stands_for_its_model_and_what_it_repeats_cannot_change(tmp_path: Path) -> None:
    shards = split(tmp_path / "s")
    gguftools.edit(shards[1], in_place=True, set={"general.name": "other"})
    assert read_header(shards[0]).get_str("general.name") == "other"
    own = {
        "general.name": "other",
        "split.no": Typed(2, 2),
        "split.count": Typed(2, 3),
        "split.tensors.count": Typed(5, 3),
    }
    write_gguf(shards[2], own, [Tensor("blk.0.ffn_down.weight", (32, 3), 2)])
    with pytest.raises(InputError, match="repeats the key"):
        gguftools.edit(shards[0], in_place=True, set={"general.name": "third"})
    gguftools.edit(shards[0], in_place=True, set={"general.author:str": "me"})
    assert read_header(shards[0]).get_str("general.name") == "other"


text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
scalars = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(width=32, allow_nan=False),
    text,
    st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5),
    st.lists(text, min_size=1, max_size=5),
)
names = st.from_regex(r"[a-z]{1,5}\.[a-z_]{1,8}", fullmatch=True)
shapes = st.lists(st.integers(1, 40), min_size=1, max_size=3)


@given(
    st.dictionaries(names, scalars, max_size=6),
    st.lists(shapes, max_size=4),
    st.integers(0, 2**32 - 1),
    st.sampled_from([32, 64]),
    st.data(),
)
@settings(max_examples=60, deadline=None)
def test_any_gguf_keeps_what_is_not_edited(
    tmp_path_factory: pytest.TempPathFactory,
    keys: dict[str, Any],
    shapes: list[list[int]],
    number: int,
    alignment: int,
    data: st.DataObject,
) -> None:
    folder = tmp_path_factory.mktemp("any")
    file, out = folder / "m.gguf", folder / "out.gguf"
    table = [Tensor(f"t{i}", shape, data=None) for i, shape in enumerate(shapes)]
    file.write_bytes(gguf_bytes({**keys, "general.alignment": alignment}, table, alignment=alignment))
    before = plain(read_header(file))
    gone = data.draw(st.lists(st.sampled_from(sorted(keys)), unique=True)) if keys else []
    gguftools.edit(file, out, remove=gone, set={"x1.number:u32": str(number)})
    wanted = {key: value for key, value in before.items() if key not in gone}
    assert plain(read_header(out)) == {**wanted, "x1.number": (number, ValueType.U32)}
    assert same_tensors(file, out)


@given(st.text(max_size=30), st.one_of(st.text(max_size=30), scalars, st.none(), st.binary(max_size=5)))
@settings(max_examples=300, deadline=None)
def test_names_and_values_are_understood_or_refused_and_nothing_else(name: str, value: Any) -> None:
    for kind in edit_values.KINDS.values():
        for read in (edit_values.scalar, edit_values.array):
            try:
                made = read("k", value, kind)
            except InputError:
                continue
            assert isinstance(made, str | bool | int | float | np.ndarray | StringArray)
    try:
        assert edit_values.parse(name, {}).key
    except InputError:
        return
