"""Model: a target and maybe its draft, checked against each other and loaded."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from . import fit, hardware, libllama, sampling
from .devices import Layers, Placement, placement
from .errors import Closed, FormatError, IncompatibleDraft, InputError, Unsupported
from .header import Header, read_header
from .libllama import Context, ContextParams, Weights
from .pairing import IdMaps, id_maps
from .prompts import Encoder
from .session import N_DRAFT_MAX, Session
from .template import ChatTemplate
from .vocab import Vocab

if TYPE_CHECKING:
    from .verbs.check import Report

DRAFT_N_CTX = 4096
IGNORES_BETA_FAST = ("deepseek2",)  # architectures whose graph takes YaRN's beta_fast from the context alone

Progress = Callable[[str, float], bool | None]
Source = str | os.PathLike[str] | Any  # a path, or a llama_cpp.Llama

log = logging.getLogger("gguftools.model")


@dataclass(frozen=True, slots=True)
class _Settings:
    """What sessions are made with unless they say otherwise."""

    n_ctx: int | None
    draft_n_ctx: int | None
    threads: int
    flash_attn: bool | None
    cache_type_k: str
    cache_type_v: str
    draft_cache_type_k: str
    draft_cache_type_v: str
    mapped: bool  # weights are memory-mapped, so not resident yet


class Model:
    """Made by Model.load(). session() gives contexts to talk to; close() frees all.

    report: check's findings on the pair, None without a draft. target, draft: the loaded weights.
    vocab, header: the target's. sampling: its own sampling values and where they come from.
    """

    report: Report | None

    def __init__(
        self,
        target: tuple[Header, Vocab, Weights],
        draft: tuple[Header, Vocab, Weights] | None,
        report: Report | None,
        settings: _Settings,
        gpu_shares: tuple[tuple[float, int], tuple[float, int]],
    ) -> None:
        self.header, self.vocab, self.target = target
        self.draft = draft[2] if draft else None
        self.report = report
        self.sampling = sampling.defaults(self.header)
        self.eog = self.target.eog()
        self.encoder = Encoder(self.vocab, self.target)
        unshared = report.unshared if report is not None else ()
        self.maps = id_maps(self.vocab, draft[1], unshared) if draft else IdMaps(None, None)
        self._draft_header = draft[0] if draft else None
        self._settings = settings
        self._gpu_shares = gpu_shares
        self._templates: dict[bool, ChatTemplate] = {}
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()
        self._closed = False
