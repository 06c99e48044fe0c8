"""Tiny GGUFs that can be talked to: one token per byte, control tokens, a template, random weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGUFValueType

from gguftools import Session
from gguftools.vocab import Vocab, byte_letters

CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>")
N_EMBD, HEAD, N_FF = 64, 32, 64
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\n' ~ m.content ~ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    "{% if enable_thinking is defined and not enable_thinking %}{{ '<think>\n\n</think>\n\n' }}{% endif %}"
)


def tokens(specials: Sequence[str] = CONTROL) -> list[str]:
    """256 bytes in GPT-2's letters, two merged tokens, then the specials."""
    letters = [byte_letters.to_letters(bytes([byte])).decode() for byte in range(256)]
    return [*letters, "th", "in", *specials]


def write(
    path: Path,
    *,
    arch: str = "llama",
    n_layer: int = 2,
    n_expert: int = 4,
    specials: Sequence[str] = CONTROL,
    types: Sequence[int] = (),
    add_bos: bool = False,
    vocab: Vocab | None = None,
    keys: Mapping[str, Any] | None = None,
    template: str | None = TEMPLATE,
    seed: int = 0,
) -> Path:
    """A llama, or with arch="qwen3moe" a mixture of experts of Qwen3's shape.

    types: those of the specials, CONTROL when not given. vocab: takes the place of the tiny one.
    """
    n_vocab = vocab.n_tokens if vocab else 258 + len(specials)
    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(2048)
    writer.add_embedding_length(N_EMBD)
    writer.add_block_count(n_layer)
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(N_EMBD // HEAD)
    writer.add_head_count_kv(1)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HEAD)
    if arch == "qwen3moe":
        writer.add_expert_count(n_expert)
        writer.add_expert_used_count(2)
        writer.add_expert_feed_forward_length(N_FF)
    if vocab is None:
        add_tokens(writer, specials, types, add_bos)
        if template is not None:
            writer.add_chat_template(template)
    else:
        for key, value, kind in vocab.gguf_keys():
            if isinstance(value, (str, bool, int)):
                writer.add_key_value(key, value, GGUFValueType(kind))
            else:
                writer.add_array(key, value.tolist() if isinstance(value, np.ndarray) else list(value))
    kinds = {str: writer.add_string, bool: writer.add_bool, float: writer.add_float32, int: writer.add_uint32}
    for key, value in (keys or {}).items():
        kinds[type(value)](key, value)
    for name, array in _weights(arch, n_layer, n_expert, n_vocab, np.random.default_rng(seed)).items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add_tokens(
    writer: gguf.GGUFWriter,
    specials: Sequence[str] = CONTROL,
    types: Sequence[int] = (),
    add_bos: bool = False,
) -> None:
    """Writes the tiny vocabulary's keys."""
    writer.add_string("tokenizer.ggml.model", "gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens(specials))
    writer.add_token_types([1] * 258 + list(types or [3] * len(specials)))
    writer.add_token_merges(["t h", "i n"])
    for name, token in (("bos", 258), ("eos", 260), ("eot", 260)):
        writer.add_uint32(f"tokenizer.ggml.{name}_token_id", token)
    writer.add_bool("tokenizer.ggml.add_bos_token", add_bos)


def _weights(
    arch: str, n_layer: int, n_expert: int, n_vocab: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32) * np.float32(shape[-1] ** -0.5)

    ones, head = np.ones(N_EMBD, np.float32), np.ones(HEAD, np.float32)
    found = {
        "token_embd.weight": normal(n_vocab, N_EMBD) * 8,
        "output_norm.weight": ones,
        "output.weight": normal(n_vocab, N_EMBD) * 3,
    }
    for i in range(n_layer):
        block: dict[str, np.ndarray] = {
            "attn_norm.weight": ones,
            "attn_q.weight": normal(N_EMBD, N_EMBD),
            "attn_k.weight": normal(HEAD, N_EMBD),
            "attn_v.weight": normal(HEAD, N_EMBD),
            "attn_output.weight": normal(N_EMBD, N_EMBD),
            "ffn_norm.weight": ones,
        }
        if arch == "qwen3moe":
            block |= {"attn_q_norm.weight": head, "attn_k_norm.weight": head}
            block |= {"ffn_gate_inp.weight": normal(n_expert, N_EMBD)}
            shapes = {"gate": (N_FF, N_EMBD), "up": (N_FF, N_EMBD), "down": (N_EMBD, N_FF)}
            block |= {f"ffn_{name}_exps.weight": normal(n_expert, *shape) for name, shape in shapes.items()}
        else:
            shapes = {"gate": (N_FF, N_EMBD), "up": (N_FF, N_EMBD), "down": (N_EMBD, N_FF)}
            block |= {f"ffn_{name}.weight": normal(*shape) for name, shape in shapes.items()}
        found |= {f"blk.{i}.{name}": array for name, array in block.items()}
    return found


def still_works(session: Session) -> None:
    """The next call gives what a fresh session gives."""
    expected = fresh(session)
    assert session.generate("the", max_tokens=12, temperature=0).result().tokens == expected


def fresh(session: Session) -> tuple[int, ...]:
    with session.model.session(n_ctx=64) as other:
        return other.generate("the", max_tokens=12, temperature=0, draft_tokens=0).result().tokens
