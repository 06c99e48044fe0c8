"""EAGLE-3 heads in libllama beside their target: states, layers and logits against the formulas in NumPy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import eagle3_heads as heads
import numpy as np
import numpy_forward
import pytest
import tiny

from gguftools.header import read_header
from gguftools.verbs.convert import convert

pytest.importorskip("llama_cpp")

IDS = np.random.default_rng(5).integers(0, 262, 40).tolist()


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory, tokenizer: Path) -> tuple[Path, dict[str, Any]]:
    """A llama of six layers and its weights."""
    folder = tmp_path_factory.mktemp("target")
    weights = tiny.weights(heads.TARGET)
    tiny.write_checkpoint(folder / "m", heads.TARGET, weights, tokenizer=tokenizer)
    convert(folder / "m", folder / "target.gguf", outtype="f32")
    return folder / "target.gguf", weights


def run(target: Path, head: Path, beta_fast: float = -1) -> Any:
    """What libllama computes for IDS; the test is skipped where this build hides the functions."""
    out = head.with_suffix(".npz")
    child = Path(__file__).with_name("eagle3_pair.py")
    ids = ",".join(str(i) for i in IDS)
    env = {**os.environ, "GGML_NO_BACKTRACE": "1"}
    command: list[Any] = [sys.executable, child, target, head, out, ids, str(beta_fast)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=env)
    if done.returncode == 77:
        pytest.skip("this build of libllama does not show the functions")
    assert done.returncode == 0, done.stderr[-3000:]
    return np.load(out)


# As SpecForge and transformers compute it: m(1) / m(1), so 1; numpy_forward reads attention_factor alone.
MSCALE = {**tiny.YARN, "mscale": 1.0, "mscale_all_dim": 1.0}
KIMI = {**MSCALE, "beta_fast": 1.0}
KINDS: dict[str, tuple[dict[str, Any], str, list[int]]] = {  # config, names, the layers that llama.cpp reads
    "SpecForge": (heads.SPECFORGE, "specforge", [2, 4, 5]),
    "AngelSlim, no layer ids": (heads.ANGELSLIM, "angelslim", [2, 3, 3]),
    "vLLM's names": (heads.ANGELSLIM, "vllm", [2, 3, 3]),
    "speculators": (heads.SPECULATORS, "speculators", [2, 4, 5]),
    "norm_before_fc": ({**heads.SPECFORGE, "norm_before_fc": True}, "specforge", [2, 4, 5]),
    "llama3 frequencies": ({**heads.SPECFORGE, "rope_scaling": tiny.LLAMA3}, "specforge", [2, 4, 5]),
    "yarn": ({**heads.SPECFORGE, "rope_scaling": tiny.YARN}, "specforge", [2, 4, 5]),
    "yarn with an mscale pair": ({**heads.SPECFORGE, "rope_scaling": MSCALE}, "specforge", [2, 4, 5]),
    "yarn as Kimi-K2 has it": ({**heads.SPECFORGE, "rope_scaling": KIMI}, "specforge", [2, 4, 5]),
}


def inputs(w: dict[str, Any], layers: list[int]) -> Any:
    """The inputs of these layers of the target, side by side."""
    config, found = heads.TARGET, []
    cos, sin = numpy_forward.rotary(config, len(IDS))
    x = w["model.embed_tokens.weight"][IDS].astype(np.float64)
    for i in range(config["num_hidden_layers"]):
        found.append(x)
        p = f"model.layers.{i}."
        state = numpy_forward.norm(x, w[p + "input_layernorm.weight"], config["rms_norm_eps"])
        x = x + numpy_forward.attention(config, w, p + "self_attn.", state, cos, sin)
        state = numpy_forward.norm(x, w[p + "post_attention_layernorm.weight"], config["rms_norm_eps"])
        x = x + numpy_forward.mlp(w, p + "mlp.", state)
    return np.concatenate([found[i] for i in layers], axis=1)


@pytest.mark.parametrize("kind", KINDS)
def test_libllamas_states_and_logits_are_those_of_the_formulas(
    tmp_path: Path, target: tuple[Path, dict[str, Any]], kind: str
) -> None:
    config, style, layers = KINDS[kind]
    w = heads.weights(config)
    heads.write(tmp_path / "head", config, w, style)
    convert(tmp_path / "head", tmp_path / "head.gguf", outtype="f32", target=target[0])
    beta_fast = read_header(tmp_path / "head.gguf").get_float("eagle3.rope.scaling.yarn_beta_fast", -1)
    said = run(target[0], tmp_path / "head.gguf", beta_fast)
    assert said["layers"].tolist() == layers
    assert np.abs(said["features"] - inputs(target[1], layers)).max() < 1e-3
    assert np.abs(said["states"] - heads.encode(config, w, said["features"])).max() < 1e-3
    logits = heads.decode(config, w, w["embed_tokens.weight"], IDS[1:], said["states"][:-1])
    ids = heads.draft_ids()
    assert np.abs(logits).max() > 1
    assert np.abs(said["logits"][:, ids] - logits).max() < 1e-3
    assert (np.delete(said["logits"], ids, axis=1) == -np.inf).all()


def test_a_head_without_embedding_and_output_uses_its_targets(
    tmp_path: Path, target: tuple[Path, dict[str, Any]]
) -> None:
    config = {**heads.SPECFORGE, "draft_vocab_size": 288}
    w = heads.weights(config)
    borrowed = ("embed_tokens.weight", "lm_head.weight", "d2t", "t2d")
    own = {name: tensor for name, tensor in w.items() if name not in borrowed}
    heads.write(tmp_path / "head", config, own)
    done = convert(tmp_path / "head", tmp_path / "head.gguf", outtype="f32", target=target[0])
    assert done.types == {"F32": 12}
    said = run(target[0], tmp_path / "head.gguf")
    own["lm_head.weight"] = target[1]["lm_head.weight"]
    embedding = target[1]["model.embed_tokens.weight"]
    logits = heads.decode(config, own, embedding, IDS[1:], said["states"][:-1])
    assert np.abs(said["logits"] - logits).max() < 1e-3


@pytest.mark.parametrize("outtype", ["f16", "bf16", "q8_0", "q4_0"])
def test_each_output_type_drafts_nearly_the_same(
    tmp_path: Path, target: tuple[Path, dict[str, Any]], outtype: Any
) -> None:
    w = heads.weights(heads.SPECFORGE)
    heads.write(tmp_path / "head", heads.SPECFORGE, w)
    done = convert(tmp_path / "head", tmp_path / "head.gguf", outtype=outtype, target=target[0])
    assert done.types["I64"] == 1
    assert done.types[outtype.upper()] >= 9
    said = run(target[0], tmp_path / "head.gguf")
    exact = heads.decode(heads.SPECFORGE, w, w["embed_tokens.weight"], IDS[1:], said["states"][:-1])
    error = np.abs(said["logits"][:, heads.draft_ids()] - exact).max() / np.abs(exact).max()
    assert error < {"f16": 0.01, "bf16": 0.03, "q8_0": 0.03, "q4_0": 0.3}[outtype]
