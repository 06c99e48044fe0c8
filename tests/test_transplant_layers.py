"""transplant: a draft of some layers of its donor, and of another context length."""

from __future__ import annotations

from pathlib import Path

import lowlevel
import numpy as np
import pytest
import tiny
import transplants as tp
from gguf_files import U32, Tensor, Typed, vocab_keys, write_gguf

from gguftools import transplant
from gguftools.header import read_header, read_tensor
from gguftools.verbs.convert import convert
from gguftools.verbs.transplant.keys import parse_layers
from gguftools.vocab import Vocab

IDS = np.random.default_rng(5).integers(0, 261, 60).tolist()


def test_some_layers_are_kept_in_their_order(
    tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tp.watched(monkeypatch)
    config = {**tiny.QWEN3, "num_hidden_layers": 5}
    source, weights = tp.write_donor(tmp_path, config)
    convert(source, tmp_path / "donor.gguf", outtype="f32")
    for layers, kept in (("0-1,4", [0, 1, 4]), ("3", [3])):
        transplant(
            tmp_path / "donor.gguf", target, tmp_path / "d.gguf", outtype="f32", layers=layers, force=True
        )
        ours = {name: t for name, t in weights.items() if ".layers." not in name}
        for i, old in enumerate(kept):
            start = f"model.layers.{old}."
            ours |= {
                f"model.layers.{i}.{name[len(start) :]}": t
                for name, t in weights.items()
                if name.startswith(start)
            }
        alignment = tp.aligned(target, tmp_path / "donor.gguf")
        fewer = {**config, "num_hidden_layers": len(kept)}
        wanted = tp.scores(fewer, ours, alignment, seen, IDS, fold=True)
        found = lowlevel.logits(tmp_path / "d.gguf", IDS)
        assert np.abs(found - wanted)[:, alignment.draftable].max() < 2e-3


def test_layers_are_read_as_people_write_them() -> None:
    assert parse_layers(None, 3) == [0, 1, 2]
    assert parse_layers("0-2,5", 6) == [0, 1, 2, 5]
    assert parse_layers(" 4 , 0 - 1", 6) == [4, 0, 1]


@pytest.mark.parametrize("kind", ["llama", "llama, as qwen2", "qwen2", "qwen3"])
def test_a_longer_context_is_yarn_as_transformers_has_it(
    tmp_path: Path, target: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tp.watched(monkeypatch)
    config = tp.DONORS[kind]
    source, weights = tp.write_donor(tmp_path, config)
    convert(source, tmp_path / "donor.gguf", outtype="f32")
    transplant(tmp_path / "donor.gguf", target, tmp_path / "d.gguf", outtype="f32", context=1024)
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}
    alignment = tp.aligned(target, tmp_path / "donor.gguf")
    fold = "qwen2" not in kind
    found = lowlevel.logits(tmp_path / "d.gguf", IDS)[:, alignment.draftable]
    wanted = tp.scores({**config, "rope_scaling": yarn}, weights, alignment, seen, IDS, fold=fold)
    plain = tp.scores(config, weights, alignment, seen, IDS, fold=fold)
    assert np.abs(found - wanted[:, alignment.draftable]).max() < 2e-3
    assert np.abs(found - plain[:, alignment.draftable]).max() > 1e-2
    with lowlevel.model(tmp_path / "d.gguf") as loaded:
        import llama_cpp

        assert llama_cpp.llama_model_n_ctx_train(loaded) == 1024


def test_a_donor_with_yarn_goes_on_from_its_original_length(tmp_path: Path, target: Path) -> None:
    donor = tp.donor_gguf(tmp_path, {**tiny.LLAMA, "rope_scaling": tiny.YARN})
    for wanted, factor in ((128, 4.0), (512, 8.0)):
        transplant(donor, target, tmp_path / "d.gguf", context=wanted, force=True)
        keys = read_header(tmp_path / "d.gguf").keys
        assert keys["llama.context_length"] == wanted
        assert keys["llama.rope.scaling.factor"] == factor
        assert keys["llama.rope.scaling.original_context_length"] == 64


def test_a_shorter_context_changes_its_length_alone(tmp_path: Path, target: Path, donor: Path) -> None:
    transplant(donor, target, tmp_path / "d.gguf", context=100)
    keys = read_header(tmp_path / "d.gguf").keys
    assert keys["llama.context_length"] == 100
    assert not [key for key in keys if "scaling" in key]


def test_what_the_donor_has_for_each_layer_is_cut_with_the_layers(tmp_path: Path, target: Path) -> None:
    donor = tp.donor_gguf(tmp_path, {**tiny.LLAMA, "num_hidden_layers": 3})
    header = read_header(donor)
    tensors = [Tensor(t.name, t.shape, t.type, bytes(read_tensor(header, t))) for t in header.tensors]
    each = {
        "llama.feed_forward_length": Typed(U32, [96] * 3),
        "llama.attention.head_count_kv": Typed(U32, [2] * 3),
    }
    plain = {key: v for key, v in header.keys.items() if isinstance(v, str | int | float)}
    write_gguf(donor, {**plain, **vocab_keys(Vocab.from_gguf(donor)), **each}, tensors)
    transplant(donor, target, tmp_path / "draft.gguf", layers="0,2")
    found = read_header(tmp_path / "draft.gguf").keys
    assert [len(found[key]) for key in each] == [2, 2]  # type: ignore[arg-type]
    assert np.isfinite(lowlevel.logits(tmp_path / "draft.gguf", IDS)).all()
