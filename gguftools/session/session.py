"""Session: one conversation's contexts, one request at a time."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .. import _native
from ..errors import Closed, ContextFull, DecodeError, SessionBusy
from ..libllama import Context, free_here
from . import limits, sampling, saved
from .answer import Answer
from .drafting import Accept, Drafting, Length, drafting
from .engine import engine
from .learned import Learned
from .sampling import Chain, chain, check_seed
from .stream import Request, Stream, describe
from .text import check_stops
from .thinking import CLOSE, OPEN

if TYPE_CHECKING:
    from .model import Model

REQUEST = (
    "max_tokens", "seed", "grammar", "stop", "draft_tokens", "draft_p_min", "accept", "logprobs",
)  # fmt: skip
OPTIONS = {*sampling.NAMES, *REQUEST}

log = logging.getLogger("gguftools.session.session")


class Session:
    """Made by Model.session(). generate() and chat() give a Stream; a second one meanwhile: SessionBusy.

    n_ctx, draft_n_ctx: tokens that each context holds. has_draft: a draft model, or n-grams (has_ngram).
    Sampling values of None take Model.sampling's.
    """

    def __init__(
        self, model: Model, target: Context, draft: Context | None, ngram: bool, remember: bool
    ) -> None:
        self.n_ctx = target.n_ctx
        self.draft_n_ctx = draft.n_ctx if draft else 0
        self.has_ngram = ngram
        self.has_draft = draft is not None or ngram
        self.model = model
        self._pieces: dict[int, tuple[bytes, bool]] = {}
        self._lock = threading.Lock()  # held by a request from start to end
        self.rounds = threading.Lock()  # held during each call into the engine
        self.round_of = 0  # the thread that is in such a call
        self._stream: weakref.ref[Stream] | None = None
        self.engine = engine(model, target, draft)
        self.learned = Learned(self, remember)
        self._free = weakref.finalize(
            self, free_here, os.getpid(), _free, self.rounds, self.engine, target, draft
        )

    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        repeat_penalty: float | None = None,
        frequency_penalty: float | None = None,
        presence_penalty: float | None = None,
        repeat_last_n: int | None = None,
        seed: int | None = None,
        grammar: str | None = None,
        stop: str | Sequence[str] | None = None,
        draft_tokens: Length | None = None,
        draft_p_min: float | None = None,
        accept: Accept | None = None,
        logprobs: int | None = None,
        parse_special: bool = False,
    ) -> Stream:
        """Continues raw text or token ids. Control tokens written out in it count only with parse_special.
        max_tokens None: until the context is full. seed None: a new one (in Stats). grammar: GBNF with the
        rule `root`. draft_tokens: proposals per round, at most 16; 0: none; "auto" and None: as many as are
        found worth it. draft_p_min: no proposal is less probable than this to the draft (None: 0.5, with
        "auto" 0). accept: the rule by which proposals are kept, see docs/speculation.md; None: "coupled",
        with a grammar "match". logprobs: Token.logprob, and so many Token.top_logprobs, at most 20.
        Raises SessionBusy, Closed, ContextFull, InputError, GrammarError.
        """
        options = {name: value for name, value in locals().items() if name in OPTIONS}
        release = self._begin()
        try:
            ids = self.model.encoder.encode(prompt, parse_special)
            thinking = self.piece(ids[-1])[1] or (isinstance(prompt, str) and prompt.rstrip().endswith(OPEN))
            return self._start(release, ids, thinking, **options)
        except BaseException:
            release()
            raise

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        think: bool | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> Stream:
        """The next message of a conversation, by the model's own chat template.

        messages: {"role", "content"} and what else the template reads ("reasoning_content", "tool_calls").
        What they hold is ordinary text: a control token's name in it is no control token. think sets the
        template's own variable. options: as generate's. Raises TemplateError and what generate raises.
        """
        release = self._begin()
        try:
            unknown = options.keys() - OPTIONS
            if unknown:
                raise TypeError(f"chat() has no argument {min(unknown)!r}")
            template = self.model.template(tools=bool(tools))
            if think is not None and template.think_variable is None:
                log.warning("think=%s has no effect: this chat template has no such variable", think)
            prompt = template.render(messages, think=think, tools=tools)
            return self._start(release, self.model.encoder.encode_chat(prompt), prompt.thinking, **options)
        except BaseException:
            release()
            raise

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the history and both caches to a file, in place of one that was saved before.

        Raises SessionBusy, Closed, OutputExists over any other file, InputError, DiskFull, DecodeError.
        """
        self._filed(saved.save, path)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Goes on from a saved session, also one of another process: the next call finds its prompt decoded.

        The file must be of the same models, context sizes, cache types and version of llama.cpp. When it is
        refused this session stays usable. Raises SessionBusy, Closed, NotFound, FormatError, InputError,
        LoadError.
        """
        self._filed(saved.load, path)

    def _filed(self, work: Callable[[Session, Path], None], path: str | os.PathLike[str]) -> None:
        release = self._begin()
        try:
            with self.rounds:
                self.round_of = threading.get_ident()
                try:
                    work(self, Path(path))
                finally:
                    self.round_of = 0
        finally:
            release()

    @property
    def is_open(self) -> bool:
        """False once close() or the end of the process has begun to free it."""
        return self._free.alive

    def check(self) -> None:
        """Raises Closed after close(), also that of a caller's Llama, and Unsupported in a forked process."""
        if not self.is_open:
            raise Closed("the session was closed")
        self.model.target.check()
        if self.model.draft is not None:
            self.model.draft.check()

    def _begin(self) -> _Release:
        self.check()
        if not self._lock.acquire(blocking=False):
            raise SessionBusy(
                "this session is busy",
                "one request at a time",
                "finish, cancel or close its stream, or make another session",
            )
        return _Release(self._lock)

    def _start(
        self,
        release: _Release,
        ids: list[int],
        thinking: bool,
        *,
        max_tokens: int | None = None,
        seed: int | None = None,
        grammar: str | None = None,
        stop: str | Sequence[str] | None = None,
        draft_tokens: Length | None = None,
        draft_p_min: float | None = None,
        accept: Accept | None = None,
        logprobs: int | None = None,
        **sampling: Any,
    ) -> Stream:
        """Checks all values, then hands the prompt to the engine. With the lock held."""
        room = self._room(ids)
        values = self.model.sampling.using(sampling, "argument")
        seed = check_seed(seed)
        most = room if max_tokens is None else max_tokens
        limits.check("max_tokens", most)
        if logprobs is not None:
            limits.check("logprobs", logprobs)
        answer = Answer(check_stops(stop), thinking)
        release.made = made = chain(values, seed, self.model.target, self.n_ctx, grammar)
        how = drafting(
            draft_tokens, draft_p_min, accept,
            model=self.draft_n_ctx > 0, ngram=self.has_ngram, draws=made.draws, scores=self.engine.scores,
        )  # fmt: skip
        request = Request(
            prompt=tuple(ids),
            max_tokens=min(room, most),
            draft_tokens=how.length,
            draft_p_min=how.p_min,
            accept=how.rule if made.draws and self.has_draft else "",
            logprobs=logprobs is not None,
            cached=self._engine_begin(ids, made, how, seed, -1 if logprobs is None else logprobs),
            seed=None if values.is_greedy else seed,
            sampling_source=values.source,
        )
        stream = Stream(self, request, answer, release)
        self._stream = weakref.ref(stream)
        return stream

    def _room(self, ids: list[int]) -> int:
        room = self.n_ctx - len(ids)
        if room < 1:
            raise ContextFull(
                f"the prompt has {len(ids):,} tokens, the context holds {self.n_ctx:,}",
                "nothing is left for an answer",
                "use a larger n_ctx or a shorter prompt",
            )
        return room

    def _engine_begin(self, ids: list[int], made: Chain, how: Drafting, seed: int, n_logprobs: int) -> int:
        with self.rounds:
            self.round_of = threading.get_ident()
            try:
                self.engine.clear_cancel()
                self.engine.set_draft(how.model, how.ngram)
                if how.is_auto:
                    with suppress(_native.NativeCancelled):  # the stream is told at its first step
                        self.learned.prepare()
                return self.engine.begin(
                    ids,
                    sampler=made.sampler.handle if made.sampler else 0,
                    grammar=made.sampler.grammar if made.sampler else 0,
                    preselect=made.preselect,
                    chain=made.values,
                    n_penalty=made.n_penalty,
                    seed=seed,
                    rule=how.rule,
                    compares=how.compares,
                    lazy=how.is_auto,
                    logprobs=n_logprobs,
                )
            except _native.EngineError as error:
                why = describe(error.code)
                raise DecodeError("libllama failed at the start", why, code=error.code) from error
            finally:
                self.round_of = 0

    def piece(self, token: int) -> tuple[bytes, bool]:
        """A token's bytes, those of thinking tags always, and whether it is the model's own <think>."""
        found = self._pieces.get(token)
        if found is None:
            name = self.model.target.piece(token, special=True)
            is_tag = name in (OPEN.encode(), CLOSE.encode())
            found = (name if is_tag else self.model.target.piece(token), name == OPEN.encode())
            self._pieces[token] = found
        return found

    def close(self) -> None:
        """Ends a running request and frees both contexts; twice is fine.

        Raises SessionBusy in a signal handler that interrupted a round of this session; the request ends.
        """
        stream = self._stream() if self._stream else None
        if stream is not None:
            stream.close()
        if self.round_of == threading.get_ident():
            why = "a signal's handler interrupted it in the middle of its work"
            raise SessionBusy("this session cannot be closed here", why, "call cancel() there, close() later")
        self.learned.write()
        self._free()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Release:
    """Lets go of a session once after a request; a stream's finalizer, so it must not know the stream."""

    def __init__(self, lock: threading.Lock) -> None:
        self.made: Chain | None = None
        self._held = [lock]

    def __call__(self) -> None:
        if self.made is not None:
            self.made.close()
        if self._held:
            self._held.pop().release()


def _free(rounds: threading.Lock, engine: _native.Engine, target: Context, draft: Context | None) -> None:
    """At the end of the process another thread may be in a round: it is stopped and waited for."""
    engine.cancel()
    with rounds:
        engine.close()
        target.close()
        if draft is not None:
            draft.close()
