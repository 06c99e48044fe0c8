"""EAGLE-3 heads of real sizes, with zero or random weights: beside SmolLM2, and for Kimi-K2."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import eagle3_heads as heads
import lowlevel
import numpy as np
import pytest
from test_eagle3_libllama import run

from gguftools import check, gguf_write
from gguftools.checkpoint import floats
from gguftools.checkpoint.safetensors import table_bytes
from gguftools.header import read_header, read_tensor
from gguftools.header.ggml_types import ValueType as T
from gguftools.verbs.convert import convert
from gguftools.vocab import Vocab

llama_cpp = pytest.importorskip("llama_cpp")

SMOL: dict[str, Any] = {  # as SpecForge would make one: no embedding
    **heads.SPECFORGE,
    "vocab_size": 49152,
    "draft_vocab_size": 2000,
    "hidden_size": 576,
    "intermediate_size": 256,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "max_position_embeddings": 8192,
    "rope_theta": 100000.0,
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 14, 26], "use_aux_hidden_state": True},
}
# The width, depth and vocabulary of AQ-MedAI/Kimi-K2-Instruct-eagle3; what is not fixed by them is small.
KIMI: dict[str, Any] = {
    **heads.SPECFORGE,
    "vocab_size": 163840,
    "draft_vocab_size": 512,
    "hidden_size": 7168,
    "intermediate_size": 64,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "rope_theta": 50000.0,
    "rope_scaling": {
        "type": "yarn",
        "factor": 32.0,
        "original_max_position_embeddings": 4096,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    },
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 30, 58], "use_aux_hidden_state": True},
}


def test_a_head_for_smollm2_drafts_beside_it(tmp_path: Path, smollm2: Path) -> None:
    w = heads.weights(SMOL)
    embedding = w.pop("embed_tokens.weight")
    heads.write(tmp_path / "head", SMOL, w)
    convert(tmp_path / "head", tmp_path / "head.gguf", target=smollm2)
    report = check(smollm2, tmp_path / "head.gguf")
    assert (report.verdict, [rule.name for rule in report.failed()]) == ("identical", ["draft kind"])
    said = run(smollm2, tmp_path / "head.gguf")
    assert said["layers"].tolist() == [2, 15, 27]
    assert np.abs(said["states"] - heads.encode(SMOL, w, said["features"])).max() < 1e-2
    header = read_header(smollm2)
    info = next(t for t in header.tensors if t.name == "token_embd.weight")
    rows = np.frombuffer(read_tensor(header, info), np.uint8).reshape(info.shape[1], -1)
    embedding = floats.to_f32(rows, info.type).reshape(embedding.shape)
    logits = heads.decode(SMOL, w, embedding, said["ids"].tolist()[1:], said["states"][:-1])
    ids = heads.draft_ids(2000, 49152)
    assert np.abs(said["logits"][:, ids] - logits).max() < 1e-2 * np.abs(logits).max()
    assert np.isinf(said["logits"]).sum() == (49152 - 2000) * len(logits)


@pytest.fixture(scope="module")
def kimi_target(tmp_path_factory: pytest.TempPathFactory, kimi: Vocab) -> Path:
    """A header like Kimi-K2's, without weights."""
    path = tmp_path_factory.mktemp("target") / "kimi.gguf"
    keys = [("general.architecture", "deepseek2", T.STR), ("deepseek2.block_count", 61, T.U32)]
    keys += [("deepseek2.embedding_length", 7168, T.U32), ("deepseek2.context_length", 131072, T.U32)]
    path.write_bytes(gguf_write.header_bytes([*keys, *kimi.gguf_keys()], []))
    return path


def write_zeros(folder: Path, config: dict[str, Any]) -> Path:
    """A head of zeros in BF16 without an embedding, as a sparse file; d2t names the first tokens of all."""
    tensors = heads.shapes(config)
    del tensors["embed_tokens.weight"]
    table = [(name, "BF16", shape, 2 * int(np.prod(shape))) for name, shape in tensors.items()]
    table.append(("d2t", "I64", (config["draft_vocab_size"],), 8 * config["draft_vocab_size"]))
    heads.write(folder, config, {})
    head = table_bytes(table)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(head)
        file.truncate(len(head) + sum(row[3] for row in table))
    return folder


@pytest.mark.parametrize("where", ["GGUF", "folder"])
def test_a_head_of_kimis_width_has_kimis_vocabulary_and_loads(
    tmp_path: Path, kimi: Vocab, kimi_folder: Path, kimi_target: Path, where: str
) -> None:
    write_zeros(tmp_path / "head", KIMI)
    out = tmp_path / "head.gguf"
    try:
        convert(tmp_path / "head", out, target=kimi_target if where == "GGUF" else kimi_folder)
        header = read_header(out)
        assert Vocab.from_header(header) == kimi
        assert next(t.shape for t in header.tensors if t.name == "fc.weight") == (21504, 7168)
        assert header.get_int("eagle3.target_hidden_size") == 7168
        layers = header.get_array("eagle3.target_layers")
        assert layers is not None
        assert layers.tolist() == [2, 30, 58]
        with lowlevel.model(out) as loaded:
            assert lowlevel.n_tokens(loaded) == 163840
            assert llama_cpp.llama_model_n_embd(loaded) == 7168
        report = check(kimi_target, out)
        assert report.verdict == "incompatible"
        assert [rule.name for rule in report.failed() if rule.level == "fatal"] == ["layer inputs"]
        assert any("Do not load" in line for line in report.advice)
    finally:
        out.unlink(missing_ok=True)  # 308 MB


@pytest.mark.skipif("GGUFTOOLS_BIG" not in os.environ, reason="writes 2 GB: set GGUFTOOLS_BIG=1")
@pytest.mark.parametrize("outtype", ["auto", "q4_0"])
def test_a_whole_head_of_kimis_size_is_converted_and_loads(
    tmp_path: Path, kimi_target: Path, outtype: Any
) -> None:
    config = KIMI | {"draft_vocab_size": 32000, "intermediate_size": 18432, "num_attention_heads": 64}
    config |= {"num_key_value_heads": 8, "head_dim": 128}
    write_zeros(tmp_path / "head", config)
    out = tmp_path / "head.gguf"
    try:
        done = convert(tmp_path / "head", out, outtype=outtype, target=kimi_target)
        assert done.nbytes > {"auto": 1_900_000_000, "q4_0": 500_000_000}[outtype]
        with lowlevel.model(out) as loaded:
            assert llama_cpp.llama_model_n_embd(loaded) == 7168
    finally:
        out.unlink(missing_ok=True)
