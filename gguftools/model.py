"""Model: a target and maybe its draft, loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from .session import Session

Layers = int | Literal["all"] | None
Progress = Callable[[str, float], bool | None]


class Model:
    report: Any  # check's Report of the pair, None without a draft
    vocab: Any  # the target's Vocab
    chat_template: Any  # ChatTemplate or None
    sampling: Any  # SamplingDefaults: temperature … repeat_last_n and `source` ("GGUF general.sampling", "family kimi-k2", "default")

    @classmethod
    def load(
        cls,
        target: str | Path | Any,  # path, or a llama_cpp.Llama of the caller
        draft: str | Path | Any | None = None,
        *,
        gpu_layers: Layers = None,  # None: all where there is a GPU, else none
        draft_gpu_layers: Layers = None,
        n_cpu_moe: Layers = 0,  # experts of the first N layers (or of all) stay in RAM
        override_tensor: Mapping[str, str] | Sequence[str] = (),  # REGEX -> BUFFER, or "REGEX=BUFFER" strings
        tensor_split: Sequence[float] | None = None,
        devices: Sequence[str] | None = None,  # None: all; (): CPU alone
        draft_devices: Sequence[str] | None = None,
        n_ctx: int | None = None,
        draft_n_ctx: int | None = None,
        threads: int | None = None,
        flash_attn: bool | None = None,  # None: libllama decides
        cache_type_k: str = "f16",
        cache_type_v: str = "f16",
        draft_cache_type_k: str = "f16",
        draft_cache_type_v: str = "f16",
        load_mode: Literal["auto", "none", "mmap", "mlock", "mmap+mlock", "dio"] = "auto",
        progress: Progress | None = None,
    ) -> Model: ...

    def session(self, *, n_ctx: int | None = None, draft_n_ctx: int | None = None) -> Session: ...
    def close(self) -> None: ...
    def __enter__(self) -> Model: ...
