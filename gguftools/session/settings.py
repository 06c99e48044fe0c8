"""What a model's sessions are made with, checked before anything is made."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass

from ..header import Header
from . import limits

IGNORES_BETA_FAST = ("deepseek2",)  # their graph takes YaRN's beta_fast from the context's parameters alone

log = logging.getLogger("gguftools.session.settings")


@dataclass(frozen=True, slots=True)
class Settings:
    """n_ctx None: what fits; threads None: the physical cores. Raises InputError for a senseless number."""

    n_ctx: int | None
    draft_n_ctx: int | None
    threads: int | None
    flash_attn: bool | None
    cache_types: tuple[str, str]  # of keys and of values
    draft_cache_types: tuple[str, str]
    ngram: bool  # sessions draft by copying from the text
    remember: bool  # costs are kept for other processes

    def __post_init__(self) -> None:
        for name in ("n_ctx", "draft_n_ctx", "threads"):
            if getattr(self, name) is not None:
                limits.check(name, getattr(self, name))


def warn_of_excess(n_ctx: int, trained: int, threads: int | None) -> None:
    """Warns of what works but helps nobody. trained: the context that the model was trained on."""
    if n_ctx > trained > 0:
        log.warning(
            "n_ctx is %d, but the model was trained on %d tokens: past them its answers get worse",
            n_ctx,
            trained,
        )
    processors = os.cpu_count()
    if threads and processors and threads > processors:
        log.warning("threads is %d, but the machine has %d processors: this is slow", threads, processors)


def beta_fast(header: Header) -> float | None:
    """YaRN's beta_fast where the context must be told of it, else None."""
    if header.architecture not in IGNORES_BETA_FAST:
        return None
    return header.get_float(f"{header.architecture}.rope.scaling.yarn_beta_fast")
