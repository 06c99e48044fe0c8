"""Stream: one request, token by token."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .. import _native
from ..errors import DecodeError
from .answer import Answer
from .results import FinishReason, Result, Round, Stats, Token

if TYPE_CHECKING:
    from .session import Session

log = logging.getLogger("gguftools.session.stream")
_COUNTERS = ("n_draft", "n_accepted", "verify_steps")


@dataclass(frozen=True, slots=True)
class Request:
    """What a Stream needs to know. seed None: greedy. accept: the rule, "" where there is none to choose."""

    prompt: tuple[int, ...]
    max_tokens: int
    draft_tokens: int
    draft_p_min: float
    accept: str
    logprobs: bool
    cached: int
    seed: int | None
    sampling_source: str


class Stream:
    """Iterable, async-iterable and a context manager.

    Rounds run in the consumer's thread; `async for` uses one worker. finish_reason: None while running, then
    "stop" (end token or stop string), "length" or "cancelled". prompt_tokens: the ids that were put in.
    rounds: what each verify step did, so far.
    Leaving early, close(), cancel() and dropping a stream all free the session for the next call.
    """

    def __init__(
        self, session: Session, request: Request, answer: Answer, release: Callable[[], None]
    ) -> None:
        self.prompt_tokens = request.prompt
        self.rounds: list[Round] = []
        self.finish_reason: FinishReason | None = None
        self._session = session  # keeps the contexts alive
        self._engine = session.engine
        self._rounds = session.rounds  # held during each call into the engine
        self._request = request
        self._answer = answer
        self._queue: deque[Token] = deque()
        self._state = threading.RLock()  # a signal handler may cancel in the middle of anything
        self._cancelled = False
        self._error: DecodeError | None = None
        self._prefilled = False
        self._prompt_s = self._predicted_s = 0.0
        self._worker: ThreadPoolExecutor | None = None
        with self._rounds:
            self._before = self._engine.counters
            self._stats = self._measure()
        self._release = weakref.finalize(
            self, release
        )  # last: a constructor that fails leaves it to the caller

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Token:
        while not self._queue:
            if self.finish_reason is not None:
                raise StopIteration
            self._advance()
        return self._queue.popleft()

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Token:
        while not self._queue:
            if self.finish_reason is not None:
                raise StopAsyncIteration
            if self._worker is None:
                self._worker = ThreadPoolExecutor(1, "gguftools-stream")
            try:
                round_ = asyncio.get_running_loop().run_in_executor(self._worker, self._advance)
            except RuntimeError:
                if self.finish_reason is None:
                    raise
                continue  # another thread ended the request, and with it the worker
            try:
                await round_
            except asyncio.CancelledError:
                self.cancel()
                raise
        return self._queue.popleft()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()
        await asyncio.to_thread(self.close)

    def cancel(self) -> None:
        """Ends the request, from any thread: at once between rounds, else before the next decode."""
        with self._state:
            self._cancelled = True
            if self.finish_reason is None:
                self._engine.cancel()
        if self._rounds.acquire(blocking=False):
            try:
                self._end("cancelled")
            finally:
                self._rounds.release()

    def close(self) -> None:
        """Cancels what still runs and waits for the round in progress; twice is fine.

        A signal's handler that interrupted that very round does not wait: the round ends after it.
        """
        self.cancel()
        if self._session.round_of == threading.get_ident():
            return
        with self._rounds:
            self._end("cancelled")

    def result(self) -> Result:
        """Runs to the end and gives the whole answer; after cancel() what there was. Raises DecodeError."""
        while self.finish_reason is None:
            self._advance()
        if self._error is not None:
            raise self._error
        answer = self._answer
        return Result(answer.text, answer.reasoning, tuple(answer.ids), self.finish_reason, self.stats)

    @property
    def stats(self) -> Stats:
        """Counts so far; final once finish_reason is set."""
        return self._stats

    def _measure(self) -> Stats:
        if not self._session.is_open:
            return self._stats
        now = self._engine.counters
        drafted, accepted, steps = (now[name] - self._before[name] for name in _COUNTERS)
        copied, kept = (
            now["by_kind"][name]["ngram"] - self._before["by_kind"][name]["ngram"]
            for name in ("n_draft", "n_accepted")
        )
        failed = self._engine.draft_failed
        request = self._request
        prompt = len(request.prompt) if self._prefilled else self._engine.cached[0]
        return Stats(
            cache_n=request.cached,
            prompt_n=max(0, prompt - request.cached),
            prompt_ms=1000 * self._prompt_s,
            predicted_n=len(self._answer.ids),
            predicted_ms=1000 * self._predicted_s,
            draft_n=drafted,
            draft_n_accepted=accepted,
            ngram_n=copied,
            ngram_n_accepted=kept,
            verify_steps=steps,
            accept=request.accept,
            seed=request.seed,
            sampling_source=request.sampling_source,
            draft_failed=describe(failed) if failed else "",
        )

    def _advance(self) -> None:
        """One chunk of the prompt or one round."""
        with self._rounds:
            if self.finish_reason is not None:
                return
            self._session.round_of = threading.get_ident()
            try:
                self._round()
                self._stats = self._measure()
            except _native.NativeCancelled:
                self._end("cancelled")
            except _native.EngineError as error:
                why = describe(error.code)
                self._fail(DecodeError("libllama failed in this request", why, code=error.code))
            except BaseException:
                self._end("cancelled")
                raise
            finally:
                self._session.round_of = 0

    def _round(self) -> None:
        if self._cancelled or not self._session.is_open:
            return self._end("cancelled")
        self._session.check()
        if self._request.max_tokens <= 0:
            return self._end("length")
        started = time.perf_counter()
        if not self._prefilled:
            try:
                done, total = self._engine.prefill()
            finally:
                self._prompt_s += time.perf_counter() - started
            self._prefilled = done >= total
            return None
        request = self._request
        left = request.max_tokens - len(self._answer.ids)
        before = self._engine.counters
        try:
            block = self._engine.step(request.draft_tokens, request.draft_p_min, left)
        finally:
            self._predicted_s += time.perf_counter() - started
        if block:
            self.rounds.append(_round_between(before, self._engine.counters))
        return self._take(block)

    def _take(self, block: list[tuple[int, bool]]) -> None:
        request, answer, eog = self._request, self._answer, self._session.model.eog
        full = len(request.prompt) + len(answer.ids) + len(block) >= self._session.n_ctx
        most = len(answer.ids) + len(block) >= request.max_tokens
        for i, (token, from_draft) in enumerate(block):
            piece, is_open_tag = self._session.piece(token)
            ended = eog[token] == 1
            last = ended or ((full or most) and i == len(block) - 1)
            tokens = answer.push(token, piece, from_draft, is_open_tag, last)
            if request.logprobs:
                own, top = self._engine.logprobs(i)
                tokens[0] = replace(tokens[0], logprob=own, top_logprobs=tuple(top))
            self._queue.extend(tokens)
            if ended or answer.stopped:
                return self._end("stop")
        return self._end("length") if full or most or not block else None

    def _fail(self, error: DecodeError) -> None:
        self._error = error
        self._end("cancelled")
        raise error

    def _end(self, reason: FinishReason) -> None:
        """The session is free again; what was held back is queued. Only with _rounds held."""
        with self._state:
            if self.finish_reason is not None:
                self._release()  # once more, should an interrupt have come between; a second time is nothing
                return
            if reason == "cancelled":
                self._queue.extend(self._answer.finish())
            if self._answer.stopped and self._session.is_open:
                self._engine.truncate(len(self._request.prompt) + len(self._answer.ids))
            self._engine.clear_cancel()
            self._stats = self._measure()
            if self._stats.draft_failed:
                log.warning("the draft was switched off in this request: %s", self._stats.draft_failed)
            if self._session.is_open:
                self._session.learned.keep()
            self.finish_reason = reason
            self._release()
        if self._worker is not None:
            self._worker.shutdown(wait=False)


def _round_between(before: Mapping[str, Any], after: Mapping[str, Any]) -> Round:
    def done(name: str) -> int:
        return int(after[name] - before[name])

    drafted = (after["by_kind"]["n_draft"], before["by_kind"]["n_draft"])
    sources = [kind for kind in drafted[0] if drafted[0][kind] > drafted[1][kind]]
    source: Any = "both" if len(sources) > 1 else "".join(sources)
    return Round(
        done("n_draft"), done("n_accepted"), source, done("target_us"), done("draft_us"), done("select_us")
    )


def describe(code: int) -> str:
    """What a code of the engine means."""
    name, meaning = _native.CODES.get(code, ("code", str(code)))
    return f"{meaning} ({name})"
