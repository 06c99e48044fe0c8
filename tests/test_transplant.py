"""transplant: the draft scores as the donor does, in the target's tokens; its body, keys, types, report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lowlevel
import numpy as np
import pytest
import tiny
import transplants as tp

from gguftools import Model, transplant
from gguftools.header import read_header, read_tensor
from gguftools.verbs import transplant as verb
from gguftools.verbs.check import check
from gguftools.verbs.convert import convert
from gguftools.verbs.transplant.align import Kind
from gguftools.verbs.transplant.rows import NEVER, PlainRows
from gguftools.vocab import Vocab

FIXED: Any = {"draft_tokens": 5, "draft_p_min": 0.0}


IDS = np.random.default_rng(5).integers(0, 261, 60).tolist()


@pytest.mark.parametrize("kind", tp.DONORS)
def test_libllamas_logits_are_those_of_the_donor_with_the_rows_of_its_tokens(
    tmp_path: Path, target: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """… plus a bias: beside the head where llama.cpp adds one, which it does for a llama written as qwen2."""
    config, seen = tp.DONORS[kind], tp.watched(monkeypatch)
    source, weights = tp.write_donor(tmp_path, config)
    convert(source, tmp_path / "donor.gguf", outtype="f32")
    report = transplant(tmp_path / "donor.gguf", target, tmp_path / "draft.gguf", outtype="f32")
    alignment = tp.aligned(target, tmp_path / "donor.gguf")
    beside = "qwen2" in kind
    wanted = tp.scores(config, weights, alignment, seen, IDS, fold=not beside)
    found = lowlevel.logits(tmp_path / "draft.gguf", IDS)
    may = alignment.draftable
    assert may.sum() == report.draftable > 256
    assert np.abs(found - wanted)[:, may].max() < 2e-3
    assert np.abs(wanted).max() > 1
    assert (found[:, ~may].max(1) < found[:, may].max(1)).all()
    assert (found[:, ~may].max() < NEVER / 2) == beside
    assert (report.verdict, report.ties) == ("identical", 0)
    assert report.architecture == ("qwen2" if beside else config["model_type"])


@pytest.mark.parametrize("outtype", ["f32", "q8_0", "q4_0"])
def test_a_llama_written_as_qwen2_has_the_scores_of_the_donor_and_its_bias(
    tmp_path: Path, target: Path, outtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of q and k are turned for the other rotation, as numbers or as blocks of them."""
    seen = tp.watched(monkeypatch)
    config = {**tp.DONORS["llama, as qwen2"], "num_key_value_heads": 1, "rope_scaling": tiny.YARN}
    donor = tp.donor_gguf(tmp_path, config, outtype)
    assert transplant(donor, target, tmp_path / "d.gguf", outtype="f32").architecture == "qwen2"
    alignment = tp.aligned(target, donor)
    exact = np.flatnonzero(alignment.kind == Kind.EXACT)
    ids = np.random.default_rng(6).choice(exact, 80).tolist()
    same = alignment.pieces[alignment.starts[:-1]]
    found = lowlevel.logits(tmp_path / "d.gguf", ids)[:, exact] - seen.rows.bias[exact]
    wanted = lowlevel.logits(donor, same[ids].tolist())[:, same[exact]]
    assert np.abs(wanted).max() > 1
    assert np.abs(found - wanted).max() < (1e-4 if outtype == "f32" else 0.06)


@pytest.mark.parametrize("kind", ["llama", "qwen2, tied"])
def test_a_checkpoint_as_donor_gives_the_file_that_its_gguf_gives(
    tmp_path: Path, target: Path, kind: str
) -> None:
    source, _ = tp.write_donor(tmp_path, tp.DONORS[kind])
    convert(source, tmp_path / "donor.gguf")
    transplant(tmp_path / "donor.gguf", target, tmp_path / "a.gguf")
    transplant(source, target, tmp_path / "b.gguf")
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_the_body_is_the_donors_byte_for_byte(tmp_path: Path, target: Path) -> None:
    donor = tp.donor_gguf(tmp_path, tiny.LLAMA, "q4_0")
    transplant(donor, target, tmp_path / "draft.gguf")
    assert tp.body(tmp_path / "draft.gguf") == tp.body(donor)


def test_the_tokenizer_is_the_targets_in_full_and_the_keys_say_what_it_is(
    tmp_path: Path, target: Path, donor: Path
) -> None:
    transplant(donor, target, tmp_path / "draft.gguf", layers="0,1")
    assert Vocab.from_gguf(tmp_path / "draft.gguf") == Vocab.from_checkpoint(target)
    header, before = read_header(tmp_path / "draft.gguf"), read_header(donor)
    same = {key for key in before.keys if not key.startswith("tokenizer.")}
    changed = {key for key in same if header.keys.get(key) != before.keys[key]}
    assert changed == {"general.name", "general.size_label", "llama.vocab_size"}
    assert header.keys["general.name"] == f"{target.name} vocabulary on donor"
    assert header.keys["general.base_model.0.name"] == "donor"
    assert header.keys["llama.vocab_size"] == 269
    assert json.loads(str(header.keys["gguftools.transplant.options"]))["layers"] == "0,1"
    assert (
        header.keys["gguftools.transplant.digest.target_tokens"]
        == Vocab.from_gguf(tmp_path / "draft.gguf").digest_tokens
    )
    assert check(tmp_path / "draft.gguf").usable


def test_sampling_is_not_the_donors_and_its_own_base_model_stays(tmp_path: Path, target: Path) -> None:
    source, _ = tp.write_donor(tmp_path, tiny.LLAMA)
    (source / "generation_config.json").write_text('{"temperature": 0.25}')
    transplant(source, target, tmp_path / "draft.gguf")
    assert not [key for key in read_header(tmp_path / "draft.gguf").keys if "sampling" in key]
    transplant(tmp_path / "draft.gguf", source, tmp_path / "back.gguf")
    assert read_header(tmp_path / "back.gguf").keys["general.base_model.0.name"] == "donor"


def test_there_and_back_again_is_the_donor(tmp_path: Path, target: Path) -> None:
    """Every byte token survives both ways, so the rows of what was spelled exactly are the old ones."""
    donor = tp.donor_gguf(tmp_path, tp.DONORS["llama, as qwen2"])
    transplant(donor, target, tmp_path / "draft.gguf", outtype="f32")
    transplant(tmp_path / "draft.gguf", donor, tmp_path / "back.gguf", outtype="f32")
    exact = slice(0, 256)
    for name in ("token_embd.weight", "output.weight"):
        assert (tp.matrix(tmp_path / "back.gguf", name)[exact] == tp.matrix(donor, name)[exact]).all()


@pytest.mark.parametrize(
    ("outtype", "types"),
    [
        ("f32", (0, 0)),
        ("f16", (1, 1)),
        ("bf16", (30, 30)),
        ("q8_0", (8, 8)),
        ("q4_0", (2, 8)),
    ],
)
def test_every_outtype_loads_and_the_head_of_q4_0_is_q8_0(
    tmp_path: Path, target: Path, donor: Path, outtype: Any, types: tuple[int, int]
) -> None:
    report = transplant(donor, target, tmp_path / "draft.gguf", outtype=outtype)
    found = {t.name: t.type for t in read_header(tmp_path / "draft.gguf").tensors}
    assert (found["token_embd.weight"], found["output.weight"]) == types
    assert np.isfinite(lowlevel.logits(tmp_path / "draft.gguf", IDS)).all()
    assert report.nbytes == (tmp_path / "draft.gguf").stat().st_size


def test_a_width_that_is_no_whole_block_is_f16(tmp_path: Path, target: Path) -> None:
    config = {**tiny.QWEN2, "hidden_size": 40, "num_attention_heads": 2, "num_key_value_heads": 1}
    donor = tp.donor_gguf(tmp_path, {**config, "head_dim": 20})
    transplant(donor, target, tmp_path / "draft.gguf")
    found = {t.name: t.type for t in read_header(tmp_path / "draft.gguf").tensors}
    assert (found["token_embd.weight"], found["output.weight"]) == (1, 1)


@pytest.mark.parametrize("kind", ["llama", "llama, as qwen2", "qwen2", "qwen3"])
def test_the_folder_is_a_checkpoint_that_convert_takes_further(
    tmp_path: Path, target: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, seen = tp.DONORS[kind], tp.watched(monkeypatch)
    source, weights = tp.write_donor(tmp_path, config)
    convert(source, tmp_path / "donor.gguf", outtype="f32")
    report = transplant(tmp_path / "donor.gguf", target, hf_out=tmp_path / "hf", outtype="f32")
    assert (report.out, report.verdict) == (None, "identical")
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["vocab_size"] == 269
    convert(tmp_path / "hf", tmp_path / "again.gguf")
    alignment = tp.aligned(target, tmp_path / "donor.gguf")
    wanted = tp.scores(config, weights, alignment, seen, IDS, fold=True)
    found = lowlevel.logits(tmp_path / "again.gguf", IDS)
    assert np.abs(found - wanted)[:, alignment.draftable].max() < 2e-3
    assert alignment.draftable[found.argmax(1)].all()
    assert (report.architecture, report.ties) == (config["model_type"], 0)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["again.gguf", "donor", "donor.gguf", "hf", "hf.transplant.json", "tokenizer"]
    transplant(tmp_path / "donor.gguf", target, hf_out=tmp_path / "hf", force=True)
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["torch_dtype"] == "bfloat16"


def test_the_report_is_beside_the_draft_and_counts_every_id_once(
    tmp_path: Path, target: Path, donor: Path
) -> None:
    report = transplant(donor, target, tmp_path / "draft.gguf")
    found = tp.saved(report, tmp_path / "draft.gguf")
    wanted = [
        "schema",
        "classes",
        "ties",
        "coverage",
        "special_map",
        "verdict",
        "evaluation",
        "seconds",
        "peak_bytes",
    ]
    assert set(wanted) <= set(found)
    assert found["schema"] == 1
    assert sum(found["classes"].values()) == 269
    assert found["classes"]["reserved"] == 5
    assert found["seconds"] > 0
    assert found["peak_bytes"] is None or found["peak_bytes"] > 1 << 20


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
@pytest.mark.parametrize("outtype", ["f32", "q4_0"])
def test_no_two_tokens_have_the_same_row_and_bias_though_many_begin_with_the_same_piece(
    tmp_path: Path, target: Path, kind: str, outtype: Any
) -> None:
    donor = tp.donor_gguf(tmp_path, tp.DONORS[kind])
    report = transplant(donor, target, tmp_path / "draft.gguf", outtype=outtype)
    header = read_header(tmp_path / "draft.gguf")
    info = {t.name: t for t in header.tensors}
    head = np.frombuffer(read_tensor(header, info["output.weight"]), np.uint8).reshape(269, -1)
    bias = tp.matrix(tmp_path / "draft.gguf", "output.bias")
    bias = np.zeros(269) if bias is None else bias
    may = np.flatnonzero(tp.aligned(target, donor).draftable).tolist()
    assert len({(head[i].tobytes(), bias[i]) for i in may}) == len(may)
    assert report.ties == 0


def test_ties_are_counted_in_pairs_where_nothing_tells_them_apart(
    tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """h and he, o, on and one: the same first piece. Without shares, as the known tool has it, they tie."""
    donor = tp.donor_gguf(tmp_path, tiny.QWEN2)
    monkeypatch.setattr(
        verb, "_made", lambda donor, _target, alignment, *_: (PlainRows(alignment, donor), None, None)
    )
    report = transplant(donor, target, tmp_path / "draft.gguf", outtype="f32")
    rows = [row.tobytes() for row in tp.matrix(tmp_path / "draft.gguf", "output.weight")]
    may = np.flatnonzero(tp.aligned(target, donor).draftable).tolist()
    pairs = sum(rows[a] == rows[b] for i, a in enumerate(may) for b in may[:i])
    assert report.ties == pairs > 3


def test_twice_the_same_gives_the_same_bytes(tmp_path: Path, target: Path, donor: Path) -> None:
    transplant(donor, target, tmp_path / "a.gguf")
    transplant(donor, target, tmp_path / "b.gguf")
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()


def test_the_map_is_shown_before_it_is_used(tmp_path: Path, target: Path, donor: Path) -> None:
    seen: list[Any] = []

    def show(mapped: Any) -> None:
        assert not (tmp_path / "draft.gguf").exists()
        seen.extend(mapped)

    report = transplant(donor, target, tmp_path / "draft.gguf", on_map=show)
    assert tuple(seen) == report.special_map
    assert any(one.target_text == "<|im_end|>" and one.draftable for one in seen)


def test_a_draft_is_drafted_with_for_a_target_of_that_vocabulary(
    tmp_path: Path, target: Path, donor: Path
) -> None:
    transplant(donor, target, tmp_path / "target.gguf", outtype="f32")
    transplant(donor, target, tmp_path / "draft.gguf")
    pair = tmp_path / "target.gguf", tmp_path / "draft.gguf"
    with Model.load(*pair, threads=1) as model, model.session(n_ctx=128) as session:
        result = session.generate(
            "the one", max_tokens=40, temperature=0, draft_tokens=5, draft_p_min=0.0
        ).result()
    assert result.stats.draft_n_accepted > 10
