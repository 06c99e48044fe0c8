"""info: keys, tensors, vocabulary and template of a GGUF, local, split, on the Hub; the command; its JSON."""

from __future__ import annotations

import json
import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import gguf_files
import pairs
import pytest
import shapes
from command_line import in_process
from gguf_files import Tensor, Typed, gguf_bytes, write_split
from hub_server import Hub
from pairs import kimi_with, made

from gguftools import info
from gguftools.errors import FormatError, InputError, NotFound, Unsupported
from gguftools.verbs.info import Info, results
from gguftools.verbs.info.header import GROUPS, group_of
from gguftools.vocab import Vocab

DOCS = Path(__file__).resolve().parent.parent / "docs"


def key(found: Info, name: str) -> results.Key:
    return next(key for key in found.keys if key.name == name)


def test_long_arrays_are_summarised_and_plain_values_are_there(smollm2: Path) -> None:
    found = info(smollm2)
    tokens = key(found, "tokenizer.ggml.tokens")
    assert (tokens.type, tokens.value, tokens.count, tokens.first[0]) == (
        "str",
        None,
        49_152,
        "<|endoftext|>",
    )
    assert key(found, "llama.block_count").value == 30
    assert len(json.dumps(found.to_json())) < 40_000


def test_tensors_are_counted_by_type_and_by_group_and_nothing_is_left_out() -> None:
    shape = shapes.kimi_k2()
    found = info(shape.header())
    for rows in (found.types, found.groups):
        assert sum(row.count for row in rows) == len(shape.rows)
        assert sum(row.nbytes for row in rows) == sum(t.nbytes for t in shape.header().tensors)
    groups = {row.name: row for row in found.groups}
    assert set(groups) == {
        *("embeddings", "attention", "dense ffn", "experts", "shared experts", "routers", "output")
    }
    assert (groups["experts"].count, groups["shared experts"].count) == (3 * 60, 3 * 60)
    assert 1.02e12 < found.n_elements < 1.03e12
    assert found.bits_per_weight == pytest.approx(4.53, abs=0.01)


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("token_embd.weight", "embeddings"),
        ("output.weight", "output"),
        ("output_norm.weight", "output"),
        ("blk.0.attn_kv_a_mqa.weight", "attention"),
        ("blk.0.attn_norm.weight", "attention"),
        ("blk.7.ffn_gate_up_exps.weight", "experts"),
        ("blk.7.ffn_down_chexps.weight", "experts"),
        ("blk.7.ffn_down_shexp.weight", "shared experts"),
        ("blk.7.ffn_gate_inp_shexp.weight", "shared experts"),
        ("blk.7.ffn_gate_inp.weight", "routers"),
        ("blk.7.exp_probs_b.bias", "routers"),
        ("blk.7.ffn_norm.weight", "dense ffn"),
        ("blk.7.ssm_conv1d.weight", "recurrent"),
        ("blk.8.attn_q.weight", "next-token heads"),
        ("blk.99999999999999.attn_q.weight", "next-token heads"),
        ("rope_freqs.weight", "other"),
    ],
)
def test_each_tensor_has_its_group(name: str, group: str) -> None:
    assert group_of(name, 8) == group
    assert group in GROUPS


# Vocabularies and templates


def test_a_real_vocabulary_is_known_byte_for_byte(smollm2: Path) -> None:
    vocab = info(smollm2).vocabulary
    assert vocab is not None
    assert (vocab.family, vocab.identical, vocab.words) == (
        *("SmolLM 2", True),
        "SmolLM 2 vocabulary, byte-identical",
    )
    assert vocab.digest_ordinary == Vocab.from_gguf(smollm2).digest_ordinary


def test_kimi_s_vocabulary_is_known_whatever_its_special_tokens_are_called(
    kimi: Vocab, tmp_path: Path
) -> None:
    plain = info(kimi_with(kimi, {}, tmp_path, "k2")).vocabulary
    renamed = info(kimi_with(kimi, {163587: "<|open|>"}, tmp_path, "k3")).vocabulary
    other = info(kimi_with(kimi, {5: "another"}, tmp_path, "no")).vocabulary
    assert plain is not None
    assert renamed is not None
    assert other is not None
    assert plain.words == "Kimi-K2 vocabulary, byte-identical"
    assert (renamed.family, renamed.identical) == ("Kimi-K2", True)
    assert "1 special token" in renamed.words
    assert (other.family, other.identical) == ("Kimi", False)


def test_a_vocabulary_of_no_known_family_is_said_to_be_one(tmp_path: Path) -> None:
    vocab = info(made(tmp_path, "m")).vocabulary
    assert vocab is not None
    assert vocab.family is None


def test_a_template_says_its_format_and_whether_it_renders(tmp_path: Path) -> None:
    good = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"
    bad = "{{ messages[0].nothing.at_all }}"
    texts = {"tokenizer.chat_template": good, "tokenizer.chat_template.tool_use": bad}
    first, second = info(made(tmp_path, "m", keys=texts)).templates
    assert (first.name, first.family, first.fault) == ("default", "chatml", "")
    assert (second.name, second.family) == ("tool_use", None)
    assert second.fault


# Files of every kind


def test_what_is_no_model_is_described_too(tmp_path: Path) -> None:
    path = tmp_path / "projector.gguf"
    path.write_bytes(
        gguf_bytes({"general.architecture": "clip", "general.type": "mmproj"}, [Tensor("v.patch")])
    )
    found = info(path)
    assert (found.memory, found.vocabulary, found.architecture) == (None, None, "clip")
    assert "no language model" in found.unknown
    with pytest.raises(Unsupported, match="no layers"):
        info(path, plan=True, vram=0, ram="8G")


def test_a_header_without_an_architecture_is_described_too(tmp_path: Path) -> None:
    path = tmp_path / "odd.gguf"
    path.write_bytes(gguf_bytes({"a.float": float("nan"), "an.empty": Typed(gguf_files.I32, [])}))
    found = info(path)
    assert key(found, "a.float").value == "nan"
    assert key(found, "an.empty").count == 0
    json.loads(json.dumps(found.to_json()), parse_constant=lambda name: pytest.fail(name))


def test_a_split_model_is_one_with_all_its_files(tmp_path: Path) -> None:
    keys = {"general.architecture": "llama", "llama.block_count": 2, "llama.embedding_length": 32}
    files = write_split(tmp_path, "m", keys, [[Tensor("token_embd.weight")], [Tensor("blk.0.attn_q.weight")]])
    for given in (files[0], files[1], tmp_path):
        found = info(given)
        assert [Path(file.name).name for file in found.files] == [path.name for path in files]
        assert sum(file.nbytes for file in found.files) == found.nbytes
        assert [row.count for row in found.groups] == [1, 1]


def test_bad_files_and_names_are_errors_of_ours(tmp_path: Path) -> None:
    (tmp_path / "no.gguf").write_bytes(b"PK\x03\x04")
    with pytest.raises(FormatError):
        info(tmp_path / "no.gguf")
    with pytest.raises(NotFound):
        info(tmp_path / "absent.gguf")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "config.json").write_text("{}")
    with pytest.raises(NotFound, match="convert it first"):
        info(tmp_path / "folder")


# The Hub


def hub_model(hub: Hub) -> tuple[bytes, bytes]:
    """A split model: in the first shard the vocabulary, in the second weights of 8 MB."""
    keys = {**shapes.vocabulary(3), "general.architecture": "llama", "llama.block_count": 1}
    keys |= {"llama.embedding_length": 32, "llama.attention.head_count": 1, "llama.context_length": 64}
    shards = []
    for no, rows in enumerate(
        ([("token_embd.weight", (32, 3), 0)], [("blk.0.ffn_up.weight", (1 << 11, 1 << 10), 0)])
    ):
        split = {"split.no": Typed(gguf_files.U16, no), "split.count": Typed(gguf_files.U16, 2)}
        split["split.tensors.count"] = Typed(gguf_files.I32, 2)
        head = shapes.header_bytes({**(keys if no == 0 else {}), **split}, rows)
        shards.append(head + bytes(4 * rows[0][1][0] * rows[0][1][1]))
    hub.repos["org/repo"] = {f"m-Q8-0000{i}-of-00002.gguf": data for i, data in enumerate(shards, 1)}
    return shards[0], shards[1]


def test_of_a_model_on_the_hub_only_headers_are_fetched(hub: Hub) -> None:
    first, second = hub_model(hub)
    found = info("org/repo:Q8")
    assert hub.sent < 100_000 < len(second)
    assert found.nbytes == len(first) + len(second)
    assert [row.name for row in found.groups] == ["embeddings", "dense ffn"]
    assert found.memory is not None
    assert found.memory.weights > 8 << 20


def test_a_plan_for_a_model_on_the_hub_names_its_first_file(hub: Hub) -> None:
    hub_model(hub)
    plan = info("org/repo:Q8", vram="8G", ram="8G").plan
    assert plan is not None
    assert plan.commands[0].line.startswith("gguftools chat org/repo:Q8 ")
    assert " -m m-Q8-00001-of-00002.gguf " in plan.commands[1].line
    assert "of org/repo" in plan.commands[1].note


def test_a_repo_without_a_gguf_is_refused(hub: Hub) -> None:
    hub.repos["org/checkpoint"] = {"config.json": b"{}", "model.safetensors": b""}
    with pytest.raises(InputError, match="no GGUF in this repo"):
        info("org/checkpoint")


# Plans, through the front door


@pytest.mark.parametrize("size", ["24G", "24GB", "24 GiB", "24g", 24 << 30, "25769803776"])
def test_a_size_is_of_two_to_the_thirtieth(size: Any) -> None:
    plan = info(shapes.smollm2().header(), vram=size, ram="64G").plan
    assert plan is not None
    assert plan.places[0].memory == 24 << 30


@pytest.mark.parametrize("size", ["", "G", "-1G", "1e9", "24 GPU", "9" * 19, "9" * 30, -1, 1 << 62, True])
def test_what_is_no_size_is_refused(size: Any) -> None:
    with pytest.raises(InputError, match="no size of a memory"):
        info(shapes.smollm2().header(), vram="8G", ram=size)


def test_a_number_without_a_unit_is_not_taken_for_so_few_bytes() -> None:
    with pytest.raises(InputError, match="hardly meant") as error:
        info(shapes.smollm2().header(), vram="24", ram="64G")
    assert "24G" in error.value.hint


def test_several_gpus_are_given_with_commas_or_as_a_sequence() -> None:
    for vram in ("24G,12G", ["24G", 12 << 30], ("24G", "12G")):
        plan = info(shapes.smollm2().header(), vram=vram, ram="64G").plan
        assert plan is not None
        assert [place.name for place in plan.places] == ["GPU 0", "GPU 1", "main memory"]
    with pytest.raises(InputError, match="at most"):
        info(shapes.smollm2().header(), vram=["1G"] * 17, ram="64G")


def test_without_sizes_it_is_planned_for_this_machine(smollm2: Path) -> None:
    plan = info(smollm2, plan=True).plan
    assert plan is not None
    assert plan.fits
    assert plan.places[-1].memory > 0


def test_a_draft_of_another_vocabulary_is_said_and_gets_no_commands(tmp_path: Path) -> None:
    keys = {f"llama.{key}": value for key, value in shapes.smollm2().keys.items()}
    tensors = {"blk.0.attn_q.weight": (32, 32)}
    whole = {"keys": keys, "tensors": tensors}
    target = made(tmp_path, "target", **whole)
    other = made(tmp_path, "other", tokens=[f"x{i}" for i in range(300)] + pairs.SPECIALS, **whole)
    same, wrong = (info(target, vram="8G", ram="8G", draft=draft).plan for draft in (target, other))
    assert same is not None
    assert wrong is not None
    assert (same.draft_verdict, wrong.draft_verdict) == ("identical", "incompatible")
    assert same.commands
    assert not wrong.commands
    assert any("gguftools check" in text and "cannot serve" in text for text in wrong.why)


def test_a_draft_that_reads_much_of_what_the_target_reads_is_said_to_be_too_big() -> None:
    plans = [
        info(shapes.llama_70b().header(), vram="80G", ram="64G", draft=draft.header()).plan
        for draft in (shapes.smollm2(), shapes.llama(40, 8192, 28_672, 64, 8, 128_256))
    ]
    said = [plan is not None and any("hardly pays" in text for text in plan.why) for plan in plans]
    assert said == [False, True]


def test_a_cache_type_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match="cache type"):
        info(shapes.smollm2().header(), cache_type_k="q9")
    with pytest.raises(InputError, match="n_ctx"):
        info(shapes.smollm2().header(), n_ctx=0)


# The command


def test_the_command_shows_all_parts(smollm2: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = in_process(capsys, "info", str(smollm2))
    assert (code, err) == (0, "")
    heads = [line for line in out.splitlines() if line and not line.startswith(" ")]
    assert heads[1:] == [
        *("keys", "tensors", "vocabulary", "chat template"),
        "memory for 8,192 tokens, without a GPU",
    ]
    assert "byte-identical" in out
    assert max(map(len, out.splitlines())) <= 100


def test_the_command_shows_a_plan(smollm2: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ("info", str(smollm2), "--vram", "8G,8G", "--ram", "16G", "--draft", str(smollm2))
    code, out, _ = in_process(capsys, *args)
    assert code == 0
    assert "fits: all on the GPU" in out
    assert "pair       identical" in out
    assert [line for line in out.splitlines() if line.startswith("  gguftools chat ")]
    assert not re.search(r"keys|vocabulary", out)


def test_the_command_ends_with_1_where_nothing_fits(
    smollm2: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = in_process(capsys, "info", str(smollm2), "--vram", "0", "--ram", "2050M")
    assert code == 1
    assert "does not fit" in out
    assert "missing" in out


def test_text_out_of_a_file_stays_on_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = made(tmp_path, "m", keys={"general.name": "a\nname", "general.description": "one\ntwo\tthree"})
    _, out, _ = in_process(capsys, "info", str(path))
    assert "one⏎two three" in out


# JSON


def test_the_json_has_schema_1_and_the_fields(smollm2: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ("info", str(smollm2), "--json", "--vram", "8G", "--ram", "16G")
    code, out, _ = in_process(capsys, *args)
    found = json.loads(out)
    assert (code, found["schema"]) == (0, 1)
    assert set(found) == {"schema", *(field.name for field in fields(Info))}
    assert found["plan"]["places"][0]["free"] > 0


def test_an_error_is_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = in_process(capsys, "info", "absent.gguf", "--json")
    assert (code, json.loads(out)["error"]["kind"]) == (1, "NotFound")


def keys_of(kind: type) -> set[str]:
    """The fields of a dataclass and of those in it."""
    found = set()
    for name, hint in get_type_hints(kind).items():
        found.add(name)
        for inner in (hint, *get_args(hint)):
            if isinstance(inner, type) and is_dataclass(inner):
                found |= keys_of(inner)
    return found


def test_the_page_explains_every_key_of_the_json() -> None:
    text = (DOCS / "info.md").read_text("utf-8").partition("## The JSON")[2]
    keys = {"schema", "used", "free", *keys_of(Info)}
    assert len(keys) > 60
    assert {name for name in keys if f"`{name}`" not in text} == set()


def test_the_example_of_the_page_runs(smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("target.gguf", "draft.gguf"):
        (tmp_path / name).symlink_to(smollm2)
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(
        r"^```python\n(.*?)^```", (DOCS / "info.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    exec(compile(code, "example", "exec"), {})


def test_the_page_explains_every_level_and_group() -> None:
    text = (DOCS / "info.md").read_text("utf-8")
    assert {name for name in (*GROUPS, "gpu", "experts", "layers", "cpu") if name not in text} == set()
