"""The table of architectures that give layer inputs, against libllama with tiny models of random weights."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from tiny_gguf import letters

from gguftools.verbs.check.pair import llama_cpp as table

pytest.importorskip("llama_cpp")

# Asks for the input of layer 0, as an eagle3 draft does, and decodes one token. The function has a C++ name.
CHILD = """
import ctypes, sys
import llama_cpp.llama_cpp as lib
name = "_Z30llama_set_embeddings_layer_inpP13llama_contextjb"
try:
    want = getattr(lib._lib, name)
except AttributeError:
    sys.exit(77)
params = lib.llama_model_default_params()
model = lib.llama_model_load_from_file(sys.argv[1].encode(), params)
if not model:
    sys.exit(78)
settings = lib.llama_context_default_params()
settings.n_ctx = 64
context = lib.llama_init_from_model(model, settings)
want.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_bool]
want.restype = None
want(context, 0, True)
tokens = (lib.llama_token * 1)(3)
sys.exit(79 if lib.llama_decode(context, lib.llama_batch_get_one(tokens, 1)) else 0)
"""
EMBD, HEADS, SIZE, FF, N = 64, 2, 32, 64, 40


def tensors(arch: str) -> dict[str, tuple[int, ...]]:
    """name → numpy shape (rows first) of one layer."""
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (N, EMBD),
        "output_norm.weight": (EMBD,),
        "blk.0.attn_norm.weight": (EMBD,),
        "blk.0.ffn_norm.weight": (EMBD,),
        "blk.0.ffn_gate.weight": (FF, EMBD),
        "blk.0.ffn_up.weight": (FF, EMBD),
        "blk.0.ffn_down.weight": (EMBD, FF),
    }
    if arch == "deepseek2":
        latent = {"attn_q_a_norm": (16,), "attn_kv_a_norm": (32,), "attn_q_a": (16, EMBD)}
        latent |= {"attn_q_b": (HEADS * SIZE, 16), "attn_kv_a_mqa": (32 + 16, EMBD)}
        latent |= {
            "attn_k_b": (HEADS, 32, 16),
            "attn_v_b": (HEADS, 32, 32),
            "attn_output": (EMBD, HEADS * 32),
        }
        return shapes | {f"blk.0.{name}.weight": shape for name, shape in latent.items()}
    shapes |= {f"blk.0.attn_{name}.weight": (EMBD, EMBD) for name in ("q", "k", "v", "output")}
    if arch == "qwen2":
        shapes |= {f"blk.0.attn_{name}.bias": (EMBD,) for name in ("q", "k", "v")}
    if arch in ("qwen3", "gemma3"):
        shapes |= {f"blk.0.attn_{name}_norm.weight": (SIZE,) for name in ("q", "k")}
    if arch == "gemma3":
        shapes |= {f"blk.0.{name}.weight": (EMBD,) for name in ("post_attention_norm", "post_ffw_norm")}
    return shapes


def write(path: Path, arch: str) -> Path:
    writer = gguf.GGUFWriter(path, arch)
    numbers: dict[str, int] = {
        "context_length": 64,
        "embedding_length": EMBD,
        "block_count": 1,
        "feed_forward_length": FF,
        "attention.head_count": HEADS,
        "attention.head_count_kv": HEADS,
        "attention.key_length": SIZE,
        "attention.value_length": SIZE,
        "rope.dimension_count": SIZE,
        "attention.sliding_window": 32,
    }
    if arch == "deepseek2":
        numbers |= {"attention.head_count_kv": 1, "attention.q_lora_rank": 16, "attention.kv_lora_rank": 32}
        numbers |= {"attention.key_length": 48, "attention.value_length": 32, "rope.dimension_count": 16}
        numbers |= {"attention.key_length_mla": SIZE, "attention.value_length_mla": 32, "expert_count": 2}
        numbers |= {"leading_dense_block_count": 1, "expert_shared_count": 1, "expert_used_count": 1}
        numbers |= {"expert_feed_forward_length": FF}
    for key, number in numbers.items():
        writer.add_uint32(f"{arch}.{key}", number)
    writer.add_float32(f"{arch}.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_string("tokenizer.ggml.model", "gpt2")
    writer.add_string("tokenizer.ggml.pre", "gpt-2")
    writer.add_array("tokenizer.ggml.tokens", letters(N))
    writer.add_array("tokenizer.ggml.merges", ["t o"])
    random = np.random.default_rng(1)
    for name, shape in tensors(arch).items():
        writer.add_tensor(name, random.normal(0, 0.1, shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("arch", ["llama", "qwen3", "qwen2", "gemma3", "deepseek2"])
def test_a_target_gives_layer_inputs_exactly_where_the_table_says_so(tmp_path: Path, arch: str) -> None:
    path = write(tmp_path / "m.gguf", arch)
    run: list[Any] = [sys.executable, "-c", CHILD, path]
    quick = {**os.environ, "GGML_NO_BACKTRACE": "1"}
    done = subprocess.run(run, capture_output=True, text=True, timeout=120, check=False, env=quick)
    if done.returncode == 77:
        pytest.skip("this build of libllama does not show the function")
    assert done.returncode not in (78, 79), done.stderr[-2000:]
    assert (done.returncode == 0) is (arch in table()["layer_inputs"]), done.stderr[-2000:]
    if done.returncode:
        assert "layer input tensor" in done.stderr
