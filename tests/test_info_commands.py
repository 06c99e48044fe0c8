"""The command lines of a plan: flags that exist, and values that mean what the plan says."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from typing import Any

import click
import pytest
import shapes
from hypothesis import given
from hypothesis import strategies as st

from gguftools import info
from gguftools.cli import group
from gguftools.cli.options import split_options
from gguftools.libllama.devices import EXPERTS
from gguftools.verbs.info import Plan
from gguftools.verbs.info.commands import Facts, below, commands

# common/arg.cpp of llama.cpp as in llama-cpp-python 0.3.36, for llama-server: flag -> whether a value follows
LLAMA_SERVER = {
    **dict.fromkeys(
        ["-m", "-c", "-ngl", "-dev", "--n-cpu-moe", "-ts", "-ctk", "-ctv", "--yarn-beta-fast"], True
    ),
    **dict.fromkeys(["-np", "-fit", "-md", "--spec-type", "-ngld", "-devd", "-ctkd", "-ctvd"], True),
}
# common/common.cpp of ik_llama.cpp, 2026-08-15 (8337e4c)
IK = {
    **dict.fromkeys(["-m", "-c", "-ngl", "-ot", "-ts", "-ctk", "-ctv", "--yarn-beta-fast", "-md"], True),
    **dict.fromkeys(["--spec-type", "-ngld", "-devd", "-cd", "-ctkd", "-ctvd"], True),
}
FACTS = Facts(
    *(
        "target.gguf",
        "draft.gguf",
        "target.gguf",
        "draft.gguf",
        "",
        "llama",
        32_768,
        20_480,
        4096,
        None,
        1,
        62,
        61,
        54,
        (),
        "CUDA0",
    ),
    ("f16", "f16"),
    ("f16", "f16"),
    None,
)

facts = st.builds(
    replace,
    st.just(FACTS),
    draft=st.sampled_from([None, "a draft.gguf"]),
    draft_file=st.just("a draft.gguf"),
    draft_kind=st.sampled_from(["llama", "eagle3"]),
    n_ctx=st.integers(512, 131_072),
    server_n_ctx=st.integers(0, 32_768),
    draft_window=st.sampled_from([None, 2048]),
    gpus=st.just(2),
    gpu_layers=st.integers(0, 62),
    n_cpu_moe=st.integers(0, 61),
    split=st.sampled_from([(), (31, 31), (0, 5)]),
    device=st.sampled_from(["", "CUDA1"]),
    types=st.sampled_from([("f16", "f16"), ("q8_0", "q4_0")]),
    yarn=st.sampled_from([None, 1.0]),
)


def values(line: str, known: dict[str, bool]) -> dict[str, str]:
    """flag -> value of a line; fails for a flag that the program does not have."""
    words = shlex.split(line)[1:]
    found = {}
    while words:
        flag = words.pop(0)
        assert flag in known, flag
        assert flag not in found
        found[flag] = words.pop(0)
    return found


def options(line: str) -> tuple[dict[str, Any], str | None]:
    """What `gguftools chat` makes of a line: arguments of Model.load, and the draft."""
    program, verb, *words = shlex.split(line)
    assert program == "gguftools"
    command = group.get_command(click.Context(group), verb)
    assert command is not None
    parent = click.Context(group, **group.context_settings)
    given_ = command.make_context(verb, words, parent=parent).params
    load, request = split_options(given_)
    assert not request
    return load, given_["draft"]


@given(facts)
def test_every_line_has_only_flags_that_its_program_has(made: Facts) -> None:
    ours, server, ik = commands(made)
    load, draft = options(ours.line)
    assert load["n_ctx"] == made.n_ctx
    assert load.get("n_cpu_moe", 0) == made.n_cpu_moe
    assert load["gpu_layers"] == ("all" if made.gpu_layers > 61 else made.gpu_layers)
    assert draft == (None if made.draft_kind == "eagle3" else made.draft)
    their = values(server.line, LLAMA_SERVER)
    assert their.get("--n-cpu-moe", "0") == str(made.n_cpu_moe)
    assert ("-md" in their) == (made.draft is not None and made.server_n_ctx > 0)
    assert int(their["-c"]) > 0
    assert ("-ot" in values(ik.line, IK)) == bool(made.n_cpu_moe)


def test_a_draft_of_its_own_device_is_named_to_each_program() -> None:
    ours, server, ik = commands(replace(FACTS, gpus=2, split=(40, 22), device="CUDA1", server_n_ctx=32_768))
    load, draft = options(ours.line)
    assert (draft, load["draft_devices"], load["tensor_split"]) == ("draft.gguf", ["CUDA1"], [40.0, 22.0])
    assert values(server.line, LLAMA_SERVER)["-devd"] == "CUDA1"
    assert values(ik.line, IK)["-devd"] == "CUDA1"
    assert not server.note


def test_a_target_on_the_cpu_takes_no_gpu_for_prompts() -> None:
    ours, server, _ = commands(replace(FACTS, gpu_layers=0, n_cpu_moe=0))
    load, _ = options(ours.line)
    assert (load["gpu_layers"], load["devices"], load["draft_gpu_layers"]) == (0, [], "all")
    assert values(server.line, LLAMA_SERVER)["-dev"] == "none"


def test_llama_server_is_given_a_context_that_its_draft_can_have_too() -> None:
    _, server, ik = commands(FACTS)
    assert values(server.line, LLAMA_SERVER)["-c"] == "20480"
    assert "20,480" in server.note
    assert values(ik.line, IK)["-c"] == "32768"


def test_without_room_for_so_long_a_draft_llama_server_gets_none() -> None:
    server = commands(replace(FACTS, server_n_ctx=0))[1]
    assert "-md" not in values(server.line, LLAMA_SERVER)
    assert "without the draft" in server.note


def test_what_is_on_the_hub_is_to_be_fetched_for_programs_that_take_files() -> None:
    ours, server, ik = commands(
        replace(FACTS, target="org/repo:Q4", target_file="m.gguf", fetch="m.gguf of org/repo")
    )
    assert " org/repo:Q4 " in ours.line
    for command in (server, ik):
        assert " -m m.gguf " in command.line
        assert "first fetch m.gguf of org/repo" in command.note


def test_a_head_is_called_by_its_type_and_only_by_llama_server() -> None:
    ours, server, ik = commands(replace(FACTS, draft_kind="eagle3"))
    assert values(server.line, LLAMA_SERVER)["--spec-type"] == "draft-eagle3"
    assert "-md" not in values(ik.line, IK)
    assert "eagle3" in ours.note


def test_ik_llama_cpp_counts_layers_without_the_output() -> None:
    line = commands(replace(FACTS, gpu_layers=30, split=(20, 10)))[2].line
    assert values(line, IK)["-ngl"] == "29"
    assert values(line, IK)["-ts"] == "20,9"
    assert values(commands(FACTS)[2].line, IK)["-ngl"] == "62"


@given(st.integers(1, 512), st.integers(0, 600))
def test_the_layers_below_a_number_are_those_and_no_others(n: int, i: int) -> None:
    pattern = rf"blk\.{below(n)}{EXPERTS}"
    assert bool(re.search(pattern, f"blk.{i}.ffn_up_exps.weight")) == (i < n)


@pytest.mark.parametrize(("n", "pattern"), [(1, "(0)"), (10, "([0-9])"), (61, "([0-9]|[1-5][0-9]|60)")])
def test_the_pattern_is_short(n: int, pattern: str) -> None:
    assert below(n) == pattern


def plan(target: shapes.Shape, **options_: Any) -> Plan:
    found = info(target.header(), **options_).plan
    assert found is not None
    return found


def test_kimi_s_beta_fast_is_passed_on_where_the_graph_ignores_the_key() -> None:
    kimi = shapes.kimi_k2()
    for value, there in ((1.0, True), (32.0, False)):
        keyed = replace(kimi, keys={**kimi.keys, "rope.scaling.yarn_beta_fast": value})
        lines = [c.line for c in plan(keyed, vram="24G", ram="1T").commands]
        assert ["--yarn-beta-fast 1" in line for line in lines] == [False, there, there]


def test_a_plan_that_does_not_fit_has_no_commands() -> None:
    found = plan(shapes.kimi_k2(), vram="24G", ram="64G")
    assert not found.fits
    assert not found.commands
    assert any("GiB" in text and "missing" in text for text in found.limits)


def test_a_name_with_blanks_is_quoted() -> None:
    line = commands(replace(FACTS, target_file="my model's.gguf"))[1].line
    assert values(line, LLAMA_SERVER)["-m"] == "my model's.gguf"
