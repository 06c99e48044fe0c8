"""Tiny GGUFs with random weights and no tokenizer, one for each way that libllama keeps a text in memory.

llama: attention; gemma3: sliding windows; mamba: recurrent; lfm2, qwen35, kimi_linear: hybrid, the first two
with snapshots to go back to. `noise` disturbs the weights: such a model often agrees with the one without.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gguf
import numpy as np


class Writer:
    """A GGUFWriter that draws its tensors; shapes are given in numpy's order."""

    def __init__(self, writer: gguf.GGUFWriter, seed: int, noise: float) -> None:
        self.writer, self.noise = writer, noise
        self.rng, self.other = np.random.default_rng(seed), np.random.default_rng(seed + 1000)

    def normal(self, name: str, *shape: int, scale: float | None = None) -> None:
        values = self.rng.standard_normal(shape, np.float32)
        values += np.float32(self.noise) * self.other.standard_normal(shape, np.float32)
        values *= np.float32(scale or shape[-1] ** -0.5)
        self.writer.add_tensor(
            name, values.astype(np.float16) if len(shape) > 1 and shape[-1] > 31 else values
        )

    def full(self, name: str, *shape: int, value: float = 1.0) -> None:
        self.writer.add_tensor(name, np.full(shape, value, np.float32))


@contextmanager
def _model(
    path: Path, arch: str, n_vocab: int, n_embd: int, n_layer: int, n_ff: int, seed: int, noise: float = 0
) -> Iterator[Writer]:
    w = gguf.GGUFWriter(path, arch)
    w.add_context_length(4096)
    w.add_embedding_length(n_embd)
    w.add_block_count(n_layer)
    w.add_feed_forward_length(n_ff)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_vocab_size(n_vocab)
    w.add_tokenizer_model("none")
    out = Writer(w, seed, noise)
    out.normal("token_embd.weight", n_vocab, n_embd, scale=1.0)
    out.normal(
        "output.weight", n_vocab, n_embd
    )  # tied to the input, a random model only repeats its last token
    yield out
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def _ffn(out: Writer, i: int, n_embd: int, n_ff: int, norm: bool = True) -> None:
    if norm:
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


def mamba(
    path: Path, n_vocab: int = 64, *, n_embd: int = 32, n_layer: int = 2, seed: int = 0, noise: float = 0
) -> Path:
    inner, state, rank, kernel = 2 * n_embd, 8, 4, 4
    with _model(path, "mamba", n_vocab, n_embd, n_layer, 0, seed, noise) as out:
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


def lfm2(path: Path, n_vocab: int = 64, *, n_embd: int = 64, seed: int = 0, noise: float = 0) -> Path:
    """Two short convolutions around one attention layer: a hybrid memory with snapshots."""
    n_ff, kv = 64, [0, 1, 0]
    with _model(path, "lfm2", n_vocab, n_embd, len(kv), n_ff, seed, noise) as out:
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


def gemma3(
    path: Path, n_vocab: int = 64, *, n_swa: int = 16, n_embd: int = 64, seed: int = 0, noise: float = 0
) -> Path:
    """Four layers, of which the second and the fourth see the whole text, the others n_swa tokens."""
    n_ff, head = 64, 32
    with _model(path, "gemma3", n_vocab, n_embd, 4, n_ff, seed, noise) as out:
        out.writer.add_head_count(2)
        out.writer.add_head_count_kv(1)
        out.writer.add_key_length(head)
        out.writer.add_value_length(head)
        out.writer.add_sliding_window(n_swa)
        out.writer.add_sliding_window_pattern(2)
        out.full("output_norm.weight", n_embd)
        for i in range(4):
            out.full(f"blk.{i}.attn_norm.weight", n_embd)
            _attention(out, i, n_embd, head)
            out.normal(f"blk.{i}.attn_output.weight", n_embd, n_embd)
            for name in ("attn_q_norm", "attn_k_norm"):
                out.full(f"blk.{i}.{name}.weight", head)
            for name in ("post_attention_norm", "post_ffw_norm"):
                out.full(f"blk.{i}.{name}.weight", n_embd, value=4.0)  # the input is scaled up by eight
            _ffn(out, i, n_embd, n_ff)
    return path


def qwen35(path: Path, n_vocab: int = 64, *, n_embd: int = 64, seed: int = 0, noise: float = 0) -> Path:
    """Three layers of gated delta nets and one of attention."""
    n_ff, head, n_heads, kernel = 64, 32, 2, 4
    inner = head * n_heads
    with _model(path, "qwen35", n_vocab, n_embd, 4, n_ff, seed, noise) as out:
        out.writer.add_head_count(2)
        out.writer.add_head_count_kv(1)
        out.writer.add_key_length(head)
        out.writer.add_value_length(head)
        out.writer.add_rope_dimension_count(16)
        out.writer.add_rope_dimension_sections([4, 2, 2, 0])
        out.writer.add_ssm_conv_kernel(kernel)
        out.writer.add_ssm_inner_size(inner)
        out.writer.add_ssm_state_size(head)
        out.writer.add_ssm_time_step_rank(n_heads)
        out.writer.add_ssm_group_count(n_heads)
        out.full("output_norm.weight", n_embd)
        for i in range(4):
            out.full(f"blk.{i}.attn_norm.weight", n_embd)
            out.full(f"blk.{i}.post_attention_norm.weight", n_embd)
            if i == 3:
                out.normal(f"blk.{i}.attn_q.weight", 2 * inner, n_embd)  # with a gate
                out.normal(f"blk.{i}.attn_k.weight", head, n_embd)
                out.normal(f"blk.{i}.attn_v.weight", head, n_embd)
                out.normal(f"blk.{i}.attn_output.weight", n_embd, inner)
                out.full(f"blk.{i}.attn_q_norm.weight", head)
                out.full(f"blk.{i}.attn_k_norm.weight", head)
            else:
                out.normal(f"blk.{i}.attn_qkv.weight", 3 * inner, n_embd)
                out.normal(f"blk.{i}.attn_gate.weight", inner, n_embd)
                out.normal(f"blk.{i}.ssm_conv1d.weight", 3 * inner, kernel)
                out.full(f"blk.{i}.ssm_dt.bias", n_heads, value=0.0)
                out.full(f"blk.{i}.ssm_a", n_heads, value=-0.3)
                out.normal(f"blk.{i}.ssm_beta.weight", n_heads, n_embd)
                out.normal(f"blk.{i}.ssm_alpha.weight", n_heads, n_embd)
                out.full(f"blk.{i}.ssm_norm.weight", head)
                out.normal(f"blk.{i}.ssm_out.weight", n_embd, inner)
            _ffn(out, i, n_embd, n_ff, norm=False)
    return path


def kimi_linear(path: Path, n_vocab: int = 64, *, n_embd: int = 64, seed: int = 0, noise: float = 0) -> Path:
    """Kimi-Linear's shape: delta, latent and again delta attention; a dense layer, then two of experts."""
    n_ff, n_head, head, kernel, rank, rope = 64, 2, 32, 4, 32, 16
    inner, kv = n_head * head, [0, 1, 0]
    with _model(path, "kimi-linear", n_vocab, n_embd, len(kv), n_ff, seed, noise) as out:
        out.writer.add_head_count(n_head)
        out.writer.add_head_count_kv(kv)
        out.writer.add_ssm_conv_kernel(kernel)
        out.writer.add_kda_head_dim(head)
        out.writer.add_kv_lora_rank(rank)
        out.writer.add_rope_dimension_count(rope)
        out.writer.add_key_length(rank + rope)
        out.writer.add_value_length(rank)
        out.writer.add_key_length_mla(head + rope)
        out.writer.add_value_length_mla(head)
        out.writer.add_expert_count(4)
        out.writer.add_expert_used_count(2)
        out.writer.add_expert_feed_forward_length(n_ff)
        out.writer.add_expert_shared_count(1)
        out.writer.add_leading_dense_block_count(1)
        out.writer.add_expert_weights_scale(1.0)
        out.writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        out.full("output_norm.weight", n_embd)
        for i, heads in enumerate(kv):
            out.full(f"blk.{i}.attn_norm.weight", n_embd)
            if heads:
                out.normal(f"blk.{i}.attn_q.weight", n_head * (head + rope), n_embd)
                out.normal(f"blk.{i}.attn_kv_a_mqa.weight", rank + rope, n_embd)
                out.full(f"blk.{i}.attn_kv_a_norm.weight", rank)
                out.normal(f"blk.{i}.attn_k_b.weight", n_head, rank, head)
                out.normal(f"blk.{i}.attn_v_b.weight", n_head, head, rank)
            else:
                _delta_attention(out, i, n_embd, n_head, head, kernel)
            out.normal(f"blk.{i}.attn_output.weight", n_embd, inner)
            if i < 1:
                _ffn(out, i, n_embd, n_ff)
            else:
                _experts(out, i, n_embd, n_ff, 4)
    return path


def _delta_attention(out: Writer, i: int, n_embd: int, n_head: int, head: int, kernel: int) -> None:
    inner = n_head * head
    for name in "qkv":
        out.normal(f"blk.{i}.attn_{name}.weight", inner, n_embd)
        out.normal(f"blk.{i}.ssm_conv1d_{name}.weight", inner, 1, kernel)
    for name in "fg":
        out.normal(f"blk.{i}.ssm_{name}_a.weight", head, n_embd)
        out.normal(f"blk.{i}.ssm_{name}_b.weight", inner, head)
    out.normal(f"blk.{i}.ssm_beta.weight", n_head, n_embd)
    out.full(f"blk.{i}.ssm_a", n_head, 1, value=-0.3)
    out.full(f"blk.{i}.ssm_dt.bias", inner, value=0.0)
    out.full(f"blk.{i}.ssm_norm.weight", head)


def _experts(out: Writer, i: int, n_embd: int, n_ff: int, n_expert: int) -> None:
    out.full(f"blk.{i}.ffn_norm.weight", n_embd)
    out.normal(f"blk.{i}.ffn_gate_inp.weight", n_expert, n_embd)
    out.full(f"blk.{i}.exp_probs_b.bias", n_expert, value=0.0)
    for name, shape in (("gate", (n_ff, n_embd)), ("up", (n_ff, n_embd)), ("down", (n_embd, n_ff))):
        out.normal(f"blk.{i}.ffn_{name}_exps.weight", n_expert, *shape)
        out.normal(f"blk.{i}.ffn_{name}_shexp.weight", *shape)
