"""Model: a target and maybe its draft, checked against each other and loaded."""

from __future__ import annotations

import logging
import os
import shlex
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .. import libllama
from ..errors import Closed, IncompatibleDraft, InputError, LoadError, NotFound, Unsupported
from ..header import Header, read_header
from ..libllama import Context, ContextParams, Weights, hardware
from ..libllama.devices import Layers, Placement, placement
from ..template import ChatTemplate
from ..vocab import Vocab
from . import fit, sampling
from .engine import N_DRAFT_MAX
from .prompts import Encoder
from .session import Session
from .settings import Settings, beta_fast, warn_of_excess

if TYPE_CHECKING:
    from ..verbs.check import Report

DRAFT_N_CTX = 4096

Progress = Callable[[str, float], bool | None]
Source = Any  # a path, or a llama_cpp.Llama of the caller

log = logging.getLogger("gguftools.session.model")


@dataclass(frozen=True, slots=True)
class Part:
    """One loaded model of the pair."""

    header: Header
    vocab: Vocab
    weights: Weights
    place: Placement
    mapped: bool  # memory-mapped, so its weights are not resident yet

    @property
    def gpu_share(self) -> float:
        """Share of the layers that are on GPUs."""
        layers = fit.n_layers(self.header)
        count = layers if self.place.gpu_layers < 0 else min(self.place.gpu_layers, layers)
        return count / layers if self.place.gpus else 0.0


class Model:
    """Made by Model.load(). session() gives contexts to talk to; close() frees all.

    report: check's findings on the pair, None without a draft. header, vocab: the target's. target, draft:
    the loaded weights. sampling: the target's own sampling values and where they come from.
    """

    def __init__(self, target: Part, draft: Part | None, report: Report | None, settings: Settings) -> None:
        self.report = report
        self.header, self.vocab, self.target = target.header, target.vocab, target.weights
        self.draft = draft.weights if draft else None
        self.exchange = report.exchange if report is not None else None
        self.sampling = sampling.defaults(self.header)
        self.eog = self.target.eog()
        self.encoder = Encoder(self.vocab, self.target)
        self.learned: list[float] | None = None  # see learned.py
        self._parts = (target, draft)
        self._settings = settings
        self._templates: dict[bool, ChatTemplate] = {}
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()
        self._closed = False

    @classmethod
    def load(
        cls,
        target: Source,
        draft: Source | None = None,
        *,
        gpu_layers: Layers = None,
        draft_gpu_layers: Layers = None,
        n_cpu_moe: Layers = 0,
        override_tensor: Mapping[str, str] | Sequence[str] = (),
        tensor_split: Sequence[float] | None = None,
        devices: Sequence[str] | None = None,
        draft_devices: Sequence[str] | None = None,
        n_ctx: int | None = None,
        draft_n_ctx: int | None = None,
        threads: int | None = None,
        flash_attn: bool | None = None,
        cache_type_k: str = "f16",
        cache_type_v: str = "f16",
        draft_cache_type_k: str = "f16",
        draft_cache_type_v: str = "f16",
        load_mode: str = "auto",
        ngram: bool | None = None,
        remember: bool = True,
        progress: Progress | None = None,
    ) -> Model:
        """Checks the pair and loads it. target, draft: paths, or llama_cpp.Llama objects of the caller.

        gpu_layers: a number or "all"; None: all where there is a GPU. n_cpu_moe: the experts of the first
        N layers, or of "all", stay in main memory. override_tensor: REGEX -> buffer type, or texts
        "REGEX=BUFFER". devices: names, () for the CPU alone. n_ctx None: see fit.py; draft_n_ctx None:
        min(4,096, n_ctx). flash_attn None: libllama decides. load_mode: see libllama.LOAD_MODES.
        ngram: draft by copying from the text, too; None: when there is a draft model. remember: keep what was
        learned of costs in the user's cache folder, for the next process.
        progress(stage, fraction), stage "target" or "draft": False stops (LoadAborted).
        Raises NotFound, FormatError, IncompatibleDraft, Unsupported, InputError, LoadError, LoadAborted.
        """
        settings = Settings(
            n_ctx,
            draft_n_ctx,
            threads,
            flash_attn,
            (cache_type_k, cache_type_v),
            (draft_cache_type_k, draft_cache_type_v),
            draft is not None if ngram is None else ngram,
            remember,
        )
        files = _read(target), None if draft is None else _read(draft)
        report = _checked(*files)
        place = placement(gpu_layers, devices, tensor_split, n_cpu_moe, override_tensor)
        first = _part(target, files[0], place, load_mode, _stage(progress, "target"))
        try:
            second = None
            if files[1] is not None:
                place = placement(draft_gpu_layers, draft_devices)
                second = _part(draft, files[1], place, load_mode, _stage(progress, "draft"))
            return cls(first, second, report, settings)
        except BaseException:
            first.weights.close()
            raise

    @property
    def uses_gpu(self) -> bool:
        """Whether layers of the target are on a GPU."""
        return self._parts[0].gpu_share > 0

    def session(
        self, *, n_ctx: int | None = None, draft_n_ctx: int | None = None, ngram: bool | None = None
    ) -> Session:
        """Contexts for one conversation; several may be open. None: what load() was given, or its default."""
        if self._closed:
            raise Closed("the model was closed")
        target, draft = self._parts
        for weights in (self.target, self.draft):
            if weights is not None:
                weights.check()
        settings = replace(
            self._settings,
            n_ctx=self._settings.n_ctx if n_ctx is None else n_ctx,
            draft_n_ctx=self._settings.draft_n_ctx if draft_n_ctx is None else draft_n_ctx,
        )
        window = settings.draft_n_ctx or DRAFT_N_CTX
        if draft is not None and not settings.draft_n_ctx:
            window = min(window, draft.weights.n_ctx_train)
        size = settings.n_ctx or self._default_ctx(window)
        warn_of_excess(size, self.target.n_ctx_train, settings.threads)
        copies = settings.ngram if ngram is None else ngram
        drafts = copies or draft is not None
        ours = self._context(target, size, settings.cache_types, drafts)
        theirs = None
        if draft is not None:
            theirs = self._context(draft, min(size, window), settings.draft_cache_types, drafts)
        log.info("context of %d tokens, the draft's of %d", ours.n_ctx, theirs.n_ctx if theirs else 0)
        session = Session(self, ours, theirs, copies, settings.remember)
        self._sessions.add(session)
        return session

    def _context(self, part: Part, n_ctx: int, types: tuple[str, str], drafts: bool) -> Context:
        foreign = part.weights.foreign
        self._check_memory(part, n_ctx, types)
        wanted = ContextParams(
            n_ctx,
            self._settings.threads or (foreign.n_threads if foreign else hardware.physical_cores()),
            self._settings.flash_attn,
            *types,
            n_outputs=N_DRAFT_MAX + 1,
            n_rs_seq=N_DRAFT_MAX if drafts and part.weights.is_recurrent else 0,
            yarn_beta_fast=beta_fast(part.header),
        )
        return Context(part.weights, wanted)

    def _default_ctx(self, window: int) -> int:
        """What fits beside the draft's cache of `window` tokens and the weights that are not resident yet."""
        target, draft = self._parts
        if target.weights.foreign is not None:
            return int(target.weights.foreign.n_ctx())
        taken = [part.weights.nbytes * (1 - part.gpu_share) for part in self._parts if part and part.mapped]
        gpu_free = sum(device.memory_free for device in target.place.gpus)  # now, the weights being there
        if draft is not None:
            cache = window * fit.cache_bytes(draft.header, *self._settings.draft_cache_types)
            taken.append(cache * (1 - draft.gpu_share))
            if {gpu.handle for gpu in draft.place.gpus} & {gpu.handle for gpu in target.place.gpus}:
                gpu_free = max(1, gpu_free - int(cache * draft.gpu_share))
        return fit.context_size(
            fit.cache_bytes(target.header, *self._settings.cache_types),
            target.weights.n_ctx_train,
            target.gpu_share,
            gpu_free,
            hardware.free_memory(),
            taken,
        )

    def _check_memory(self, part: Part, n_ctx: int, types: tuple[str, str]) -> None:
        """Refuses a cache that main memory cannot hold by far: the system would kill the process for it."""
        need = n_ctx * fit.cache_bytes(part.header, *types) * (1 - part.gpu_share)
        free = hardware.free_memory()
        if free and need > 2 * free:
            raise LoadError(
                f"a context of {n_ctx:,} tokens does not fit",
                f"its cache takes {need / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB are free",
                "try a smaller n_ctx or smaller cache types",
            )

    def template(self, *, tools: bool = False) -> ChatTemplate:
        """The chat template. Raises TemplateError where there is none, or one that does not compile."""
        if tools not in self._templates:
            self._templates[tools] = self.encoder.template(tools)
        return self._templates[tools]

    def close(self) -> None:
        """Closes the sessions and frees the weights (a caller's Llama stays); twice is fine."""
        self._closed = True
        for session in list(self._sessions):
            session.close()
        for part in self._parts:
            if part is not None:
                part.weights.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _read(source: Source) -> tuple[Header, Vocab]:
    from ..verbs.check.metadata import is_vocabulary_alone

    path = source.model_path if libllama.is_llama(source) else source
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"{type(source).__name__} is no model", "load() takes a path or a llama_cpp.Llama")
    if not Path(path).exists():
        hint = f"gguftools run {path} downloads a model of that name from the Hub"
        raise NotFound(f"there is no file {path}", "load() takes a path", hint)
    header = read_header(Path(path))
    if is_vocabulary_alone(header):
        why = "it has no weights: check and convert can use it, but nothing can run it"
        raise LoadError(f"{path} is a vocabulary alone", why, "give the GGUF of the model itself")
    return header, Vocab.from_header(header)


def _checked(target: tuple[Header, Vocab], draft: tuple[Header, Vocab] | None) -> Report | None:
    """Refuses what libllama would refuse or die of, and pairs that cannot work together."""
    from ..verbs.check import check

    if draft is None:
        single = check(target[0])
        if not single.usable:
            raise LoadError(
                f"{target[0].path} cannot be loaded",
                _faults(single),
                f"run: gguftools check {shlex.quote(str(target[0].path))}",
            )
        return None
    report = check(target[0], draft[0], quick=True)
    if not report.usable:
        names = [str(target[0].path), str(draft[0].path)]
        what = f"{draft[0].path.name} cannot be a draft for {target[0].path.name}"
        raise IncompatibleDraft(what, _faults(report), f"run: gguftools check {shlex.join(names)}", report)
    if report.unshared:
        texts = [target[1].tokens[i].decode("utf-8", "replace") for i in report.unshared[:8]]
        rest = f" and {len(report.unshared) - 8} more" if len(report.unshared) > 8 else ""
        log.warning("these tokens are never drafted, the draft lacks them: %s%s", " ".join(texts), rest)
    return report


def _faults(report: Report) -> str:
    rules = [rule for rule in report.failed() if rule.level in ("fatal", "refused")] or report.failed()
    return "; ".join(f"{rule.name}: {rule.effect or rule.target}" for rule in rules)


def _part(
    source: Source,
    file: tuple[Header, Vocab],
    place: Placement,
    load_mode: str,
    progress: Callable[[float], bool | None] | None,
) -> Part:
    if libllama.is_llama(source):
        weights = libllama.adopt(source)
    else:
        weights = libllama.load(file[0].files[0], place, load_mode, progress)
    if weights.n_vocab != file[1].n_tokens or weights.has_encoder:
        weights.close()
        raise Unsupported(
            f"{file[0].path.name} is no model that continues text", "it has an encoder or no vocabulary"
        )
    mapped = load_mode in ("auto", "mmap") and weights.foreign is None
    return Part(*file, weights, place, mapped)


def _stage(progress: Progress | None, stage: str) -> Callable[[float], bool | None] | None:
    return None if progress is None else lambda fraction: progress(stage, fraction)
