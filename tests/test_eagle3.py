"""convert: EAGLE-3 heads of three formats beside their target; what is written, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import eagle3_heads as heads
import numpy as np
import pytest
import tiny
from gguf import GGUFReader
from hub_server import Hub

from gguftools import check, cli
from gguftools.cli import ui
from gguftools.errors import InputError
from gguftools.header import Header, read_header, read_tensor
from gguftools.verbs.convert import convert
from gguftools.vocab import Vocab

FORMATS = [
    pytest.param(heads.SPECFORGE, "specforge", id="SpecForge"),
    pytest.param(heads.ANGELSLIM, "angelslim", id="AngelSlim"),
    pytest.param(heads.ANGELSLIM, "vllm", id="vLLM"),
    pytest.param(heads.SPECULATORS, "speculators", id="speculators"),
    pytest.param(
        {**heads.SPECULATORS, "architectures": ["Eagle3DraftModel"]}, "speculators", id="speculators, newer"
    ),
    pytest.param({**heads.ANGELSLIM, "architectures": ["LlamaForCausalLM"]}, "specforge", id="SafeAILab"),
]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory, tokenizer: Path) -> Path:
    """A llama of six layers as a GGUF."""
    return heads.write_target(tmp_path_factory.mktemp("target"), heads.TARGET, tokenizer)


def d2t(header: Header) -> Any:
    info = next(t for t in header.tensors if t.name == "d2t")
    assert (info.type, len(info.shape)) == (27, 1)
    return np.frombuffer(read_tensor(header, info), np.int64)


# What is written


@pytest.mark.parametrize(("config", "style"), FORMATS)
def test_every_format_gives_the_tensors_and_keys_that_llama_cpp_reads(
    tmp_path: Path, target: Path, config: dict[str, Any], style: str
) -> None:
    header = heads.converted(tmp_path, target, config, style=style)
    shapes = {t.name: tuple(t.shape) for t in header.tensors}
    assert shapes == {
        "token_embd.weight": (64, 288),
        "fc.weight": (192, 64),
        "output_norm.weight": (64,),
        "output.weight": (64, 100),
        "d2t": (100,),
        **{f"blk.0.{name}.weight": (64,) for name in ("attn_norm", "attn_norm_2", "ffn_norm")},
        "blk.0.attn_q.weight": (128, 128),
        "blk.0.attn_k.weight": (128, 64),
        "blk.0.attn_v.weight": (128, 64),
        "blk.0.attn_output.weight": (128, 64),
        "blk.0.ffn_gate.weight": (64, 96),
        "blk.0.ffn_up.weight": (64, 96),
        "blk.0.ffn_down.weight": (96, 64),
    }
    assert header.architecture == "eagle3"
    assert header.get_int("eagle3.target_hidden_size") == 64
    assert header.get_int("eagle3.block_count") == 1
    assert header.get_bool("eagle3.norm_before_residual") is (style == "speculators")
    assert header.get_bool("eagle3.norm_before_fc") is False
    assert d2t(header).tolist() == heads.draft_ids().tolist()
    assert Vocab.from_header(header) == Vocab.from_gguf(target)


def test_the_gguf_package_reads_the_file(tmp_path: Path, target: Path) -> None:
    heads.converted(tmp_path, target)
    reader = GGUFReader(tmp_path / "head.gguf")
    assert reader.get_field("eagle3.target_layers").contents() == [2, 4, 5]  # type: ignore[union-attr]
    assert next(t for t in reader.tensors if t.name == "d2t").data.tolist() == heads.draft_ids().tolist()


def test_two_runs_give_the_same_bytes(tmp_path: Path, target: Path) -> None:
    heads.converted(tmp_path, target, outtype="q8_0")
    first = (tmp_path / "head.gguf").read_bytes()
    heads.converted(tmp_path, target, outtype="q8_0", force=True)
    assert (tmp_path / "head.gguf").read_bytes() == first


def test_a_target_may_be_a_folder_with_a_tokenizer_and_a_config(tmp_path: Path, target: Path) -> None:
    folder = target.parent / "m"
    header = heads.converted(tmp_path, folder, heads.ANGELSLIM, style="angelslim")
    assert heads.layers(header) == [2, 3, 3]
    assert Vocab.from_header(header) == Vocab.from_checkpoint(folder)


def test_head_and_target_may_be_on_the_hub_of_which_the_header_alone_is_fetched(
    tmp_path: Path, target: Path, hub: Hub
) -> None:
    local = heads.converted(tmp_path, target)
    files = {path.name: path.read_bytes() for path in (tmp_path / "head").iterdir()}
    hub.repos = {"org/head": files, "org/target": {"target.gguf": target.read_bytes() + bytes(1 << 20)}}
    convert("org/head", tmp_path / "again.gguf", target="org/target:target.gguf")
    again = read_header(tmp_path / "again.gguf")
    assert [bytes(read_tensor(again, t)) for t in again.tensors] == [
        bytes(read_tensor(local, t)) for t in local.tensors
    ]
    assert Vocab.from_header(again) == Vocab.from_gguf(target)


# Norms


@pytest.mark.parametrize("where", ["top", "eagle_config"])
def test_a_norm_before_fc_is_found_where_the_formats_say_it(tmp_path: Path, target: Path, where: str) -> None:
    eagle = heads.SPECFORGE["eagle_config"] | ({"norm_before_fc": True} if where == "eagle_config" else {})
    config = {**heads.SPECFORGE, "eagle_config": eagle}
    if where == "top":
        config["norm_before_fc"] = True
    tensors = heads.weights({**config, "norm_before_fc": True})
    header = heads.converted(tmp_path, target, config, tensors=tensors)
    assert header.get_bool("eagle3.norm_before_fc") is True
    assert ("enc.output_norm.weight", (192,)) in [(t.name, tuple(t.shape)) for t in header.tensors]


def test_a_norm_that_the_config_does_not_mention_is_not_lost_in_silence(tmp_path: Path, target: Path) -> None:
    tensors = heads.weights({**heads.SPECFORGE, "norm_before_fc": True})
    with pytest.raises(InputError, match=r"the checkpoint has input_norm\.weight"):
        heads.converted(tmp_path, target, tensors=tensors)


# Vocabulary


def test_a_head_that_drafts_every_token_has_no_d2t(tmp_path: Path, target: Path) -> None:
    config = {**heads.SPECFORGE, "draft_vocab_size": 288}
    header = heads.converted(tmp_path, target, config)
    assert "d2t" not in [t.name for t in header.tensors]


def test_a_head_may_be_narrower_than_its_target(tmp_path: Path, tokenizer: Path) -> None:
    wide = {**heads.TARGET, "hidden_size": 128}
    tiny.write_checkpoint(tmp_path / "m", wide, tiny.weights(wide), tokenizer=tokenizer)
    convert(tmp_path / "m", tmp_path / "target.gguf")
    header = heads.converted(
        tmp_path, tmp_path / "target.gguf", tensors=heads.weights(heads.SPECFORGE, width=128)
    )
    assert header.get_int("eagle3.target_hidden_size") == 128
    assert header.get_int("eagle3.embedding_length") == 64


def test_check_finds_the_head_good_for_its_target_and_says_who_can_run_it(
    tmp_path: Path, target: Path
) -> None:
    heads.converted(tmp_path, target)
    report = check(target, tmp_path / "head.gguf")
    assert report.verdict == "identical"
    assert [rule.name for rule in report.failed()] == ["draft kind"]
    assert check(tmp_path / "head.gguf").verdict == "ok"


def test_the_command_converts_a_head_and_warns_on_stderr_alone(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    heads.write(tmp_path / "head", heads.SPECFORGE, heads.weights(heads.SPECFORGE))
    ui._console.cache_clear()  # it holds the stream of the test before
    out = tmp_path / "head.gguf"
    for more in ([], ["--force", "--layer-ids", "inputs"]):
        args = ["convert", tmp_path / "head", "-o", out, "--target", target, "--json", *more]
        with pytest.raises(SystemExit) as stopped:
            cli.main([str(arg) for arg in args])
        assert not stopped.value.code
        said, warned = capsys.readouterr()
        assert json.loads(said)["architecture"] == "eagle3"
        assert ("--layer-ids" in warned) is (not more)
        assert heads.layers(read_header(out)) == ([1, 3, 4] if more else [2, 4, 5])
