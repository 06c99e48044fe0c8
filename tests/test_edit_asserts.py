"""The numbers that edit refuses do end the process, and those that it takes do not: libllama is asked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from edits import model

import gguftools
from gguftools.errors import InputError
from gguftools.header import read_header
from gguftools.verbs.edit.asserts import broken

pytest.importorskip("llama_cpp")
CHILD = """
import sys, llama_cpp
for path in sys.argv[1:]:
    llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
"""
EXPERTS = {"llama.expert_count": 8, "llama.expert_used_count": 2}
ENDS: dict[str, dict[str, Any]] = {
    "too many layers": {"llama.block_count": 513},
    "more predicted layers than layers": {"llama.nextn_predict_layers": 2},
    "too many experts": {"llama.expert_count": 1025, "llama.expert_used_count": 2},
    "no number of experts to use": {"llama.expert_count": 8},
    "more used than there are": {**EXPERTS, "llama.expert_used_count": 9},
    "groups that do not divide": {**EXPERTS, "llama.expert_group_count": 3},
    "more groups used than there are": {
        **EXPERTS,
        "llama.expert_group_count": 4,
        "llama.expert_group_used_count": 4,
    },
    "an unknown scaling": {"llama.rope.scaling.type": "ntk"},
}
LIVES: dict[str, Any] = {
    **EXPERTS,
    "llama.expert_group_count": 4,
    "llama.expert_group_used_count": 2,
    "llama.rope.scaling.type": "yarn",
}


def exit_code(*paths: Path) -> int:
    return subprocess.run(
        [sys.executable, "-c", CHILD, *map(str, paths)], capture_output=True, timeout=60
    ).returncode


@pytest.mark.parametrize("name", ENDS)
def test_a_refused_number_ends_the_process(tmp_path: Path, name: str) -> None:
    file = model(tmp_path / "m.gguf", ENDS[name])
    assert exit_code(file) != 0
    assert len(list(broken(read_header(file)))) == 1
    typed = {
        f"{key}:{'str' if isinstance(value, str) else 'u32'}": value for key, value in ENDS[name].items()
    }
    with pytest.raises(InputError, match="end the process"):
        gguftools.edit(model(tmp_path / "good.gguf"), in_place=True, set=typed)


def test_what_is_right_is_taken_and_does_not(tmp_path: Path) -> None:
    files = [model(tmp_path / "a.gguf"), model(tmp_path / "b.gguf", LIVES)]
    assert exit_code(*files) == 0  # they are refused for the tensors that they lack
    assert not [fault for file in files for fault in broken(read_header(file))]
