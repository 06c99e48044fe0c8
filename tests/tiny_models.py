"""Tiny GGUFs with random weights and no tokenizer: a llama, a mamba (recurrent) and an lfm2 (hybrid)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gguf
import numpy as np


class Writer:
    """A GGUFWriter that draws its tensors; shapes are given in numpy's order."""

    def __init__(self, writer: gguf.GGUFWriter, seed: int) -> None:
        self.writer, self.rng = writer, np.random.default_rng(seed)

    def normal(self, name: str, *shape: int, scale: float | None = None) -> None:
        values = self.rng.standard_normal(shape, np.float32) * np.float32(scale or shape[-1] ** -0.5)
        self.writer.add_tensor(
            name, values.astype(np.float16) if len(shape) > 1 and shape[-1] > 31 else values
        )

    def full(self, name: str, *shape: int, value: float = 1.0) -> None:
        self.writer.add_tensor(name, np.full(shape, value, np.float32))


@contextmanager
def _model(
    path: Path, arch: str, n_vocab: int, n_embd: int, n_layer: int, n_ff: int, seed: int
) -> Iterator[Writer]:
    w = gguf.GGUFWriter(path, arch)
    w.add_context_length(4096)
    w.add_embedding_length(n_embd)
    w.add_block_count(n_layer)
    w.add_feed_forward_length(n_ff)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_vocab_size(n_vocab)
    w.add_tokenizer_model("none")
    out = Writer(w, seed)
    out.normal("token_embd.weight", n_vocab, n_embd, scale=1.0)
    out.normal(
        "output.weight", n_vocab, n_embd
    )  # tied to the input, a random model only repeats its last token
    yield out
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def _ffn(out: Writer, i: int, n_embd: int, n_ff: int) -> None:
    out.full(f"blk.{i}.ffn_norm.weight", n_embd)
    out.normal(f"blk.{i}.ffn_gate.weight", n_ff, n_embd)
    out.normal(f"blk.{i}.ffn_up.weight", n_ff, n_embd)
    out.normal(f"blk.{i}.ffn_down.weight", n_embd, n_ff)


def _attention(out: Writer, i: int, n_embd: int, n_kv: int) -> None:
    out.normal(f"blk.{i}.attn_q.weight", n_embd, n_embd)
    out.normal(f"blk.{i}.attn_k.weight", n_kv, n_embd)
    out.normal(f"blk.{i}.attn_v.weight", n_kv, n_embd)


def llama(
    path: Path, n_vocab: int, *, n_embd: int = 64, n_layer: int = 1, n_ff: int = 64, seed: int = 0
) -> Path:
    """Heads of 64 dimensions, a third of them (at least one) for keys and values."""
    n_head = n_embd // 64
    n_head_kv = max(1, n_head // 3)
    with _model(path, "llama", n_vocab, n_embd, n_layer, n_ff, seed) as out:
        out.writer.add_head_count(n_head)
        out.writer.add_head_count_kv(n_head_kv)
        out.writer.add_rope_dimension_count(64)
        out.full("output_norm.weight", n_embd)
        for i in range(n_layer):
            out.full(f"blk.{i}.attn_norm.weight", n_embd)
            _attention(out, i, n_embd, 64 * n_head_kv)
            out.normal(f"blk.{i}.attn_output.weight", n_embd, n_embd)
            _ffn(out, i, n_embd, n_ff)
    return path


def mamba(path: Path, n_vocab: int = 64, *, n_embd: int = 32, n_layer: int = 2, seed: int = 0) -> Path:
    inner, state, rank, kernel = 2 * n_embd, 8, 4, 4
    with _model(path, "mamba", n_vocab, n_embd, n_layer, 0, seed) as out:
        out.writer.add_head_count(0)
        out.writer.add_ssm_conv_kernel(kernel)
        out.writer.add_ssm_inner_size(inner)
        out.writer.add_ssm_state_size(state)
        out.writer.add_ssm_time_step_rank(rank)
        out.full("output_norm.weight", n_embd)
        for i in range(n_layer):
            out.full(f"blk.{i}.attn_norm.weight", n_embd)
            out.normal(f"blk.{i}.ssm_in.weight", 2 * inner, n_embd)
            out.normal(f"blk.{i}.ssm_conv1d.weight", inner, kernel)
            out.full(f"blk.{i}.ssm_conv1d.bias", inner, value=0.0)
            out.normal(f"blk.{i}.ssm_x.weight", rank + 2 * state, inner)
            out.normal(f"blk.{i}.ssm_dt.weight", inner, rank)
            out.full(f"blk.{i}.ssm_dt.bias", inner, value=0.0)
            out.full(f"blk.{i}.ssm_a", inner, state, value=-0.3)
            out.full(f"blk.{i}.ssm_d", inner)
            out.normal(f"blk.{i}.ssm_out.weight", n_embd, inner)
    return path


def lfm2(path: Path, n_vocab: int = 64, *, n_embd: int = 64, seed: int = 0) -> Path:
    """Two short convolutions around one attention layer: a hybrid memory with snapshots."""
    n_ff, kv = 64, [0, 1, 0]
    with _model(path, "lfm2", n_vocab, n_embd, len(kv), n_ff, seed) as out:
        out.writer.add_head_count(1)
        out.writer.add_head_count_kv(kv)
        out.writer.add_shortconv_l_cache(3)
        out.full("token_embd_norm.weight", n_embd)
        for i, heads in enumerate(kv):
            out.full(f"blk.{i}.attn_norm.weight", n_embd)
            _ffn(out, i, n_embd, n_ff)
            if heads:
                _attention(out, i, n_embd, 64)
                out.full(f"blk.{i}.attn_q_norm.weight", 64)
                out.full(f"blk.{i}.attn_k_norm.weight", 64)
                out.normal(f"blk.{i}.attn_output.weight", n_embd, n_embd)
            else:
                out.normal(f"blk.{i}.shortconv.conv.weight", n_embd, 3)
                out.normal(f"blk.{i}.shortconv.in_proj.weight", 3 * n_embd, n_embd)
                out.normal(f"blk.{i}.shortconv.out_proj.weight", n_embd, n_embd)
    return path
