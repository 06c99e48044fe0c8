"""A mixture of experts of Qwen3-MoE's shape: random weights, 128 experts, 8 used, routing with favourites."""

from __future__ import annotations

from pathlib import Path

import gguf
import llama_cpp
import numpy as np

N_EMBD, N_LAYER, N_FF, N_EXPERT, N_USED, N_HEAD = 1024, 8, 512, 128, 8, 16
N_VOCAB = 260  # bytes, one merged pair, since llama.cpp demands merges, and three control tokens
SHARP = 4.0  # of the router's scores: the favourites get most of the weight


def pair(folder: Path) -> tuple[Path, Path]:
    """Target in F16 and its Q4_0, made when they are missing."""
    target, draft = folder / "moe-128x8.f16.gguf", folder / "moe-128x8.q4_0.gguf"
    if not target.exists():
        part = target.with_suffix(".part")
        write(part)
        part.replace(target)
    if not draft.exists():
        params = llama_cpp.llama_model_quantize_default_params()
        params.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0
        if llama_cpp.llama_model_quantize(str(target).encode(), str(draft).encode(), params) != 0:
            raise SystemExit("the draft cannot be quantized")
    return target, draft


def write(path: Path) -> None:
    w = gguf.GGUFWriter(path, "qwen3moe")
    w.add_context_length(4096)
    w.add_embedding_length(N_EMBD)
    w.add_block_count(N_LAYER)
    w.add_feed_forward_length(N_FF)
    w.add_head_count(N_HEAD)
    w.add_head_count_kv(4)
    w.add_key_length(64)
    w.add_value_length(64)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_freq_base(10000.0)
    w.add_expert_count(N_EXPERT)
    w.add_expert_used_count(N_USED)
    w.add_expert_feed_forward_length(N_FF)
    _vocabulary(w)
    rng = np.random.default_rng(1)

    def normal(name: str, *shape: int, scale: float = 1.0) -> None:
        values = rng.standard_normal(shape, np.float32) * np.float32(scale * shape[-1] ** -0.5)
        w.add_tensor(name, values.astype(np.float16) if len(shape) > 1 else values)

    normal("token_embd.weight", N_VOCAB, N_EMBD, scale=N_EMBD**0.5)
    normal("output.weight", N_VOCAB, N_EMBD, scale=4.0)
    w.add_tensor("output_norm.weight", np.ones(N_EMBD, np.float32))
    for i in range(N_LAYER):
        for name, size in (
            ("attn_norm", N_EMBD),
            ("ffn_norm", N_EMBD),
            ("attn_q_norm", 64),
            ("attn_k_norm", 64),
        ):
            w.add_tensor(f"blk.{i}.{name}.weight", np.ones(size, np.float32))
        normal(f"blk.{i}.attn_q.weight", N_HEAD * 64, N_EMBD)
        normal(f"blk.{i}.attn_k.weight", 4 * 64, N_EMBD)
        normal(f"blk.{i}.attn_v.weight", 4 * 64, N_EMBD)
        normal(f"blk.{i}.attn_output.weight", N_EMBD, N_HEAD * 64)
        normal(f"blk.{i}.ffn_gate_inp.weight", N_EXPERT, N_EMBD, scale=SHARP)
        normal(f"blk.{i}.ffn_gate_exps.weight", N_EXPERT, N_FF, N_EMBD)
        normal(f"blk.{i}.ffn_up_exps.weight", N_EXPERT, N_FF, N_EMBD)
        normal(f"blk.{i}.ffn_down_exps.weight", N_EXPERT, N_EMBD, N_FF)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def _vocabulary(w: gguf.GGUFWriter) -> None:
    """Bytes and one pair, in the letters of byte-level BPE."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list([*(letters[byte] for byte in range(256)), "th", "<bos>", "<eos>", "<pad>"])
    w.add_token_types([gguf.TokenType.NORMAL] * 257 + [gguf.TokenType.CONTROL] * 3)
    w.add_token_merges(["t h"])
    w.add_bos_token_id(257)
    w.add_eos_token_id(258)
    w.add_pad_token_id(259)
