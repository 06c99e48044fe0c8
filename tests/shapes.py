"""Headers in the shapes of known models, without their data: what a plan or a memory figure is made from."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gguf_files import I32, STR, Typed, text, value_bytes

from gguftools.header import Header, read_header
from gguftools.header.ggml_types import TENSOR_TYPES

F32, F16, Q8_0, Q4_K, Q6_K, Q4_0 = 0, 1, 8, 12, 14, 2
ALIGN = 32
Row = tuple[str, tuple[int, ...], int]


@dataclass(frozen=True)
class Shape:
    """What a header says: keys without the architecture's name, tensors, and how many tokens."""

    arch: str
    keys: Mapping[str, Any]
    rows: Sequence[Row]
    n_vocab: int
    more: Mapping[str, Any] = field(default_factory=dict)

    def data(self, *, tokens: bool = False) -> bytes:
        """The bytes of the header; with `tokens` a vocabulary that libllama takes, else three tokens."""
        keys: dict[str, Any] = {"general.architecture": self.arch, **self.more}
        keys |= {f"{self.arch}.{key}": value for key, value in self.keys.items()}
        return header_bytes({**keys, **vocabulary(self.n_vocab if tokens else 3)}, self.rows)

    def header(self) -> Header:
        """Parsed; `nbytes` is the whole file's."""
        from dataclasses import replace

        found = read_header(self.data(), name=f"{self.arch}.gguf")
        return replace(found, nbytes=max(t.offset + t.nbytes for t in found.tensors))

    def write(self, path: Path) -> Path:
        """A sparse file of the whole size, with a vocabulary: libllama loads it where it reads no data."""
        data = self.data(tokens=True)
        end = max(t.offset + t.nbytes for t in read_header(data).tensors)
        with path.open("wb") as file:
            file.write(data)
            file.truncate(-(-end // ALIGN) * ALIGN)
        return path


def vocabulary(n: int) -> dict[str, Any]:
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": Typed(STR, ["Ċ", *(f"t{i}" for i in range(n - 1))]),
        "tokenizer.ggml.token_type": Typed(I32, [1] * n),
        "tokenizer.ggml.merges": Typed(STR, ["t o"]),
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 0,
    }


def header_bytes(keys: Mapping[str, Any], rows: Iterable[Row]) -> bytes:
    rows = list(rows)
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(rows), len(keys))]
    parts += [text(key) + value_bytes(value) for key, value in keys.items()]
    offset = 0
    for name, shape, kind in rows:
        parts.append(text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape))
        parts.append(struct.pack("<IQ", kind, offset))
        form = TENSOR_TYPES[kind]
        size = math.prod(shape) // form.block * form.nbytes
        offset += -(-size // ALIGN) * ALIGN
    head = b"".join(parts)
    return head + bytes(-len(head) % ALIGN)


def ends(n_embd: int, n_vocab: int, kind: int, *, tied: bool) -> list[Row]:
    rows: list[Row] = [("token_embd.weight", (n_embd, n_vocab), kind), ("output_norm.weight", (n_embd,), F32)]
    return rows if tied else [*rows, ("output.weight", (n_embd, n_vocab), Q6_K)]


def gated(i: int, n_embd: int, n_ff: int, kind: int, suffix: str = "") -> list[Row]:
    b = f"blk.{i}.ffn_"
    return [
        (f"{b}gate{suffix}.weight", (n_embd, n_ff), kind),
        (f"{b}up{suffix}.weight", (n_embd, n_ff), kind),
        (f"{b}down{suffix}.weight", (n_ff, n_embd), kind),
    ]


def experts(i: int, n_embd: int, n_ff: int, n: int, kind: int) -> list[Row]:
    b = f"blk.{i}.ffn_"
    return [
        (f"{b}gate_inp.weight", (n_embd, n), F32),
        (f"{b}gate_exps.weight", (n_embd, n_ff, n), kind),
        (f"{b}up_exps.weight", (n_embd, n_ff, n), kind),
        (f"{b}down_exps.weight", (n_ff, n_embd, n), kind),
    ]


def grouped_query(i: int, n_embd: int, heads: int, kv: int, head: int, kind: int) -> list[Row]:
    b = f"blk.{i}."
    return [
        (f"{b}attn_norm.weight", (n_embd,), F32),
        (f"{b}ffn_norm.weight", (n_embd,), F32),
        (f"{b}attn_q.weight", (n_embd, heads * head), kind),
        (f"{b}attn_k.weight", (n_embd, kv * head), kind),
        (f"{b}attn_v.weight", (n_embd, kv * head), kind),
        (f"{b}attn_output.weight", (heads * head, n_embd), kind),
    ]


def dense_keys(layers: int, n_embd: int, n_ff: int, heads: int, kv: int, n_ctx: int) -> dict[str, Any]:
    return {
        "block_count": layers,
        "context_length": n_ctx,
        "embedding_length": n_embd,
        "feed_forward_length": n_ff,
        "attention.head_count": heads,
        "attention.head_count_kv": kv,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 10000.0,
    }


def llama(
    layers: int,
    n_embd: int,
    n_ff: int,
    heads: int,
    kv: int,
    n_vocab: int,
    *,
    kind: int = Q4_K,
    tied: bool = False,
    n_ctx: int = 131_072,
) -> Shape:
    keys = dense_keys(layers, n_embd, n_ff, heads, kv, n_ctx)
    keys["rope.dimension_count"] = n_embd // heads
    rows = ends(n_embd, n_vocab, kind, tied=tied)
    for i in range(layers):
        rows += grouped_query(i, n_embd, heads, kv, n_embd // heads, kind) + gated(i, n_embd, n_ff, kind)
    return Shape("llama", keys, rows, n_vocab)


def latent(
    layers: int,
    heads: int,
    n_expert: int,
    dense: int,
    n_vocab: int,
    *,
    kind: int = Q4_K,
    n_embd: int = 7168,
    n_ff_exp: int = 2048,
    nextn: int = 0,
) -> Shape:
    """deepseek2 with latent attention: Kimi-K2 and DeepSeek-V3 differ in these numbers."""
    keys: dict[str, Any] = {
        **dense_keys(layers + nextn, n_embd, 18_432, heads, 1, 131_072),
        "attention.q_lora_rank": 1536,
        "attention.kv_lora_rank": 512,
        "attention.key_length": 576,
        "attention.value_length": 512,
        "attention.key_length_mla": 192,
        "attention.value_length_mla": 128,
        "rope.dimension_count": 64,
        "leading_dense_block_count": dense,
        "expert_count": n_expert,
        "expert_used_count": 8,
        "expert_shared_count": 1,
        "expert_feed_forward_length": n_ff_exp,
        "expert_weights_scale": 2.5,
        "expert_weights_norm": True,
        "expert_gating_func": 2,
    }
    if nextn:
        keys["nextn_predict_layers"] = nextn
    rows = ends(n_embd, n_vocab, kind, tied=False)
    for i in range(layers + nextn):
        b = f"blk.{i}."
        rows += [
            (f"{b}attn_norm.weight", (n_embd,), F32),
            (f"{b}ffn_norm.weight", (n_embd,), F32),
            (f"{b}attn_q_a.weight", (n_embd, 1536), Q8_0),
            (f"{b}attn_q_a_norm.weight", (1536,), F32),
            (f"{b}attn_q_b.weight", (1536, heads * 192), Q8_0),
            (f"{b}attn_kv_a_mqa.weight", (n_embd, 576), Q8_0),
            (f"{b}attn_kv_a_norm.weight", (512,), F32),
            (f"{b}attn_k_b.weight", (128, 512, heads), Q8_0),
            (f"{b}attn_v_b.weight", (512, 128, heads), Q8_0),
            (f"{b}attn_output.weight", (heads * 128, n_embd), Q8_0),
        ]
        if i < dense:
            rows += gated(i, n_embd, 18_432, kind)
        else:
            rows += experts(i, n_embd, n_ff_exp, n_expert, kind)
            rows += [(f"{b}exp_probs_b.bias", (n_expert,), F32)]
            rows += gated(i, n_embd, n_ff_exp, kind, "_shexp")
    return Shape("deepseek2", keys, rows, n_vocab)


def kimi_k2(kind: int = Q4_K) -> Shape:
    return latent(61, 64, 384, 1, 163_840, kind=kind)


def deepseek_v3(kind: int = Q4_K, nextn: int = 0) -> Shape:
    return latent(61, 128, 256, 3, 129_280, kind=kind, nextn=nextn)


def qwen3_30b_a3b(kind: int = Q4_K) -> Shape:
    keys = {
        **dense_keys(48, 2048, 6144, 32, 4, 40_960),
        "attention.key_length": 128,
        "attention.value_length": 128,
        "expert_count": 128,
        "expert_used_count": 8,
        "expert_feed_forward_length": 768,
    }
    rows = ends(2048, 151_936, kind, tied=False)
    for i in range(48):
        rows += grouped_query(i, 2048, 32, 4, 128, kind) + experts(i, 2048, 768, 128, kind)
        rows += [(f"blk.{i}.attn_q_norm.weight", (128,), F32), (f"blk.{i}.attn_k_norm.weight", (128,), F32)]
    return Shape("qwen3moe", keys, rows, 151_936)


def llama_70b(kind: int = Q4_K) -> Shape:
    return llama(80, 8192, 28_672, 64, 8, 128_256, kind=kind)


def smollm2(kind: int = Q8_0) -> Shape:
    return llama(30, 576, 1536, 9, 3, 49_152, kind=kind, tied=True, n_ctx=8192)


def gemma3_27b(kind: int = Q4_K) -> Shape:
    keys = {
        **dense_keys(62, 5376, 21_504, 32, 16, 131_072),
        "attention.key_length": 128,
        "attention.value_length": 128,
        "attention.sliding_window": 1024,
        "rope.freq_base": 1_000_000.0,
    }
    rows = ends(5376, 262_144, kind, tied=True)
    for i in range(62):
        rows += grouped_query(i, 5376, 32, 16, 128, kind) + gated(i, 5376, 21_504, kind)
        names = ("attn_q_norm", "attn_k_norm", "post_attention_norm", "post_ffw_norm")
        rows += [(f"blk.{i}.{n}.weight", (128 if n.startswith("attn") else 5376,), F32) for n in names]
    return Shape("gemma3", keys, rows, 262_144)


ALL = {
    "kimi-k2": kimi_k2,
    "deepseek-v3": deepseek_v3,
    "qwen3-30b-a3b": qwen3_30b_a3b,
    "llama-70b": llama_70b,
    "smollm2": smollm2,
    "gemma3-27b": gemma3_27b,
}
