"""What llama.cpp's own quantizer makes of a file, importance matrices in both formats, and tiny models."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import llama_cpp
import numpy as np
import tiny_models
from gguf_files import I32, Tensor, Typed, write_split
from numpy.typing import NDArray

from gguftools.header import read_header, read_tensor
from gguftools.header.ggml_types import TENSOR_TYPES
from gguftools.libllama import compat

Weights = Mapping[str, NDArray[np.float32]]


def narrow(path: Path) -> Path:
    """Rows of 320 and 96, neither whole blocks of 256; nine layers, so that a mix differs between them."""
    return tiny_models.llama(path, 40, n_embd=320, n_layer=9, n_ff=96)


def wide(path: Path, n_layer: int = 2) -> Path:
    """Rows of 256 and 512, whole blocks of every type."""
    return tiny_models.llama(path, 40, n_embd=256, n_layer=n_layer, n_ff=512)


def experts(path: Path, n_expert: int = 4, arch: str = "qwen3moe") -> Path:
    """Two layers with experts in three dimensions, and an embedding that is the output matrix too."""
    n_embd, n_ff, head = 256, 64, 64
    w = gguf.GGUFWriter(path, arch)
    w.add_context_length(512)
    w.add_embedding_length(n_embd)
    w.add_block_count(2)
    w.add_feed_forward_length(n_ff)
    w.add_expert_feed_forward_length(n_ff)
    w.add_expert_count(n_expert)
    w.add_expert_used_count(2)
    w.add_head_count(4)
    w.add_head_count_kv(1)
    w.add_key_length(head)
    w.add_value_length(head)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_vocab_size(32)
    w.add_tokenizer_model("none")
    out = tiny_models.Writer(w, 5, 0.0)
    out.normal("token_embd.weight", 32, n_embd)
    out.full("output_norm.weight", n_embd)
    for i in range(2):
        b = f"blk.{i}."
        for name, shape in {
            "attn_q": (4 * head, n_embd),
            "attn_k": (head, n_embd),
            "attn_v": (head, n_embd),
            "attn_output": (n_embd, 4 * head),
            "ffn_gate_inp": (n_expert, n_embd),
            "ffn_gate_exps": (n_expert, n_ff, n_embd),
            "ffn_up_exps": (n_expert, n_ff, n_embd),
            "ffn_down_exps": (n_expert, n_embd, n_ff),
        }.items():
            out.normal(f"{b}{name}.weight", *shape)
        out.full(b + "attn_norm.weight", n_embd)
        out.full(b + "ffn_norm.weight", n_embd)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


def theirs(src: Path, out: Path, file_type: int, weights: Weights | None = None, **fields: Any) -> Path:
    """llama_model_quantize; `fields` are those of its parameters, tt_overrides as (pattern, type) pairs."""
    compat.library()
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.nthread = file_type, 1
    rules = fields.pop("tt_overrides", None)
    if rules:
        array = llama_cpp.llama_model_tensor_override * (len(rules) + 1)
        params.tt_overrides = array(*rules)
    if weights is not None:
        kind = llama_cpp.llama_cpp.llama_model_imatrix_data
        pointer = ctypes.POINTER(ctypes.c_float)
        rows = [(name.encode(), w.ctypes.data_as(pointer), w.size) for name, w in weights.items()]
        params.imatrix = (kind * (len(rows) + 1))(*rows)
    for name, value in fields.items():
        setattr(params, name, value)
    assert llama_cpp.llama_model_quantize(os.fsencode(src), os.fsencode(out), params) == 0
    return out


def tensors(path: Path) -> dict[str, tuple[str, bytes]]:
    """Type and bytes of each tensor."""
    header = read_header(path)
    return {
        info.name: (TENSOR_TYPES[info.type].name, bytes(read_tensor(header, info))) for info in header.tensors
    }


def keys(path: Path) -> dict[str, tuple[int, str]]:
    """Type and value of each key."""
    header = read_header(path)
    return {name: (int(header.types[name]), repr(value)) for name, value in header.keys.items()}


def importances(src: Path, seed: int = 1, skip: Sequence[str] = ("token_embd.weight",)) -> Weights:
    """Random ones, very different from column to column, for the matrices of a model."""
    rng = np.random.default_rng(seed)
    found = {}
    for info in read_header(src).tensors:
        if len(info.shape) > 1 and info.name not in skip:
            n = info.shape[0] * int(np.prod(info.shape[2:]))
            found[info.name] = np.exp(rng.normal(0, 2, n)).astype(np.float32)
    return found


def write_gguf_imatrix(
    path: Path, sums: Weights, counts: Mapping[str, Sequence[float]], chunks: int = 7
) -> Path:
    """As llama-imatrix writes one: sums of squares and how often each expert was asked."""
    w = gguf.GGUFWriter(path, "imatrix")
    w.add_type("imatrix")
    w.add_array("imatrix.datasets", ["some text.txt", "other.txt"])
    w.add_uint32("imatrix.chunk_count", chunks)
    w.add_uint32("imatrix.chunk_size", 512)
    for name, values in sums.items():
        n = len(counts[name])
        w.add_tensor(name + ".in_sum2", values.astype(np.float32).reshape(n, -1))
        w.add_tensor(name + ".counts", np.array(counts[name], np.float32).reshape(n, 1))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


def dat_bytes(sums: Weights, calls: int, tail: tuple[int, str] | None = (7, "some text.txt")) -> bytes:
    """The format before GGUF; `tail`: chunks and the text's name, which old files lack."""
    parts = [struct.pack("<i", len(sums))]
    for name, values in sums.items():
        data = name.encode()
        parts.append(struct.pack("<i", len(data)) + data + struct.pack("<ii", calls, values.size))
        parts.append(values.astype("<f4").tobytes())
    if tail:
        text = tail[1].encode()
        parts.append(struct.pack("<ii", tail[0], len(text)) + text)
    return b"".join(parts)


def split(src: Path, folder: Path) -> list[Path]:
    """The same model in three files."""
    header = read_header(src)
    plain = {
        key: Typed(int(header.types[key]), value.tolist() if isinstance(value, np.ndarray) else value)
        for key, value in header.keys.items()
    }
    rows = [
        Tensor(info.name, info.shape, info.type, bytes(read_tensor(header, info))) for info in header.tensors
    ]
    third = len(rows) // 3
    plain["general.note"] = Typed(I32, -3)
    return write_split(folder, "m", plain, [rows[:third], rows[third : 2 * third], rows[2 * third :]])


def llama_keys() -> dict[str, Any]:
    """What libllama demands of a llama."""
    own = {
        "context_length": 64,
        "embedding_length": 32,
        "block_count": 1,
        "feed_forward_length": 32,
        "attention.head_count": 1,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "vocab_size": 4,
    }
    return {"general.architecture": "llama", **{f"llama.{key}": value for key, value in own.items()}}
