"""What libllama itself reserves for a model, asked without reading or allocating its weights."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from pathlib import Path

import llama_cpp
import pytest

from gguftools.libllama import CACHE_TYPES, compat

MIB = 1 << 20


@dataclass(frozen=True)
class Reserved:
    """Bytes, rounded as its log rounds them."""

    cache: float
    state: float
    compute: float


def reserved(
    path: Path, log: pytest.LogCaptureFixture, *, n_ctx: int, rows: int, cache_type: str = "f16"
) -> Reserved:
    """On the CPU, with batches of 512 tokens and `rows` rows of logits."""
    log.set_level(logging.DEBUG, "gguftools.llama")
    log.clear()
    lib = compat.library()
    params = llama_cpp.llama_model_default_params()
    params.no_alloc, params.n_gpu_layers = True, 0
    params.load_mode = lib.llama_load_mode_from_str(b"none")
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
    assert model, f"libllama refuses {path}"
    wanted = llama_cpp.llama_context_default_params()
    wanted.n_ctx, wanted.n_batch, wanted.n_ubatch, wanted.n_outputs_max = n_ctx, 512, 512, rows
    wanted.type_k = wanted.type_v = CACHE_TYPES[cache_type]
    context = llama_cpp.llama_init_from_model(model, wanted)
    try:
        assert context
        text = "\n".join(record.message for record in log.records)
    finally:
        llama_cpp.llama_free(context)
        llama_cpp.llama_model_free(model)
        log.clear()
    return Reserved(
        _sum(text, r"llama_kv_cache: size = +([\d.]+) MiB"),
        _sum(text, r"llama_memory_recurrent: size = +([\d.]+) MiB"),
        _sum(text, r"compute buffer size = +([\d.]+) MiB"),
    )


def _sum(text: str, pattern: str) -> float:
    return sum(float(found) for found in re.findall(pattern, text)) * MIB
