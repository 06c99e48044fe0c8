"""Stream: one request from start to end, on a tiny model and on a scripted engine."""

from __future__ import annotations

import asyncio
import gc
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny_session

from gguftools import Model, Session, Stream, _native
from gguftools.errors import ContextFull, DecodeError, InputError, SessionBusy

EOG, OPEN, CLOSE = 260, 261, 262

pytestmark = pytest.mark.usefixtures("real_api")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    folder = tmp_path_factory.mktemp("stream")
    target = tiny_session.write(folder / "target.gguf")
    draft = tiny_session.write(folder / "draft.gguf", seed=1)
    with Model.load(target, draft, threads=1) as model:
        yield model


@pytest.fixture
def session(model: Model) -> Iterator[Session]:
    with model.session(n_ctx=512) as session:
        yield session


def still_works(session: Session) -> None:
    """The next call gives what a fresh session gives."""
    expected = fresh(session)
    assert session.generate("the", max_tokens=12, temperature=0).result().tokens == expected


def fresh(session: Session) -> tuple[int, ...]:
    with session.model.session(n_ctx=64) as other:
        return other.generate("the", max_tokens=12, temperature=0, draft_tokens=0).result().tokens


class Scripted:
    """An engine that gives prepared blocks; `error` is raised when they are used up."""

    def __init__(self, *blocks: list[int], error: Exception | None = None) -> None:
        self.blocks = [[(token, i > 0) for i, token in enumerate(block)] for block in blocks]
        self.error = error
        self.truncated: list[int] = []
        self.draft_failed = 0
        self.counters = dict.fromkeys(("n_draft", "n_accepted", "verify_steps"), 0)

    def begin(self, tokens: list[int], **_: int) -> int:
        return 0

    def prefill(self) -> tuple[int, int]:
        return 1, 1

    def step(self, _n: int, _p: float, most: int) -> list[tuple[int, bool]]:
        if not self.blocks and self.error is not None:
            raise self.error
        return self.blocks.pop(0)[:most] if self.blocks else []

    def truncate(self, n: int) -> None:
        self.truncated.append(n)

    def cancel(self) -> None: ...
    def clear_cancel(self) -> None: ...
    def set_draft(self, on: bool) -> None: ...


def scripted(session: Session, *blocks: str | list[int], **options: object) -> tuple[Scripted, Stream]:
    ids = [list(block.encode()) if isinstance(block, str) else block for block in blocks]
    error = options.pop("error", None)
    engine = Scripted(*ids, error=error)  # type: ignore[arg-type]
    session.engine = engine  # type: ignore[assignment]
    prompt = options.pop("prompt", "q")
    return engine, session.generate(prompt, **options)  # type: ignore[arg-type]


def test_a_stop_string_across_blocks_ends_at_its_last_token_and_cuts_history_there(session: Session) -> None:
    engine, stream = scripted(session, "ab", "<E", "ND", ">xyz", stop="<END>")
    assert [token.text for token in stream] == ["a", "b", "", "", "", "", ""]
    result = stream.result()
    assert (result.text, result.finish_reason) == ("ab", "stop")
    assert bytes(result.tokens) == b"ab<END>"
    assert engine.truncated == [1 + 7]


def test_a_stop_string_inside_one_block_drops_what_follows(session: Session) -> None:
    engine, stream = scripted(session, "ab<END>xyz", stop=["nothing", "<END>"])
    assert stream.result().text == "ab"
    assert engine.truncated == [8]


def test_an_end_token_is_the_last_token_and_has_no_text(session: Session) -> None:
    _, stream = scripted(session, [97, EOG])
    assert [(token.id, token.text) for token in stream] == [(97, "a"), (EOG, "")]
    assert stream.finish_reason == "stop"
    assert stream.result().tokens == (97, EOG)


def test_the_end_token_carries_what_was_held_back(session: Session) -> None:
    _, stream = scripted(session, [*b"a<E", EOG], stop="<END>")
    assert [token.text for token in stream] == ["a", "", "", "<E"]
    assert stream.result().text == "a<E"


def test_the_last_token_within_max_tokens_carries_the_rest(session: Session) -> None:
    _, stream = scripted(session, "ab<", "Exyz", stop="<END>", max_tokens=4)
    assert [token.text for token in stream] == ["a", "b", "", "<E"]
    assert stream.finish_reason == "length"


def test_thinking_tokens_are_marked_and_kept_apart(session: Session) -> None:
    _, stream = scripted(session, [OPEN], "hm", "m", [CLOSE, 10, 10, 97], [EOG])
    tokens = list(stream)
    assert [(token.text, token.thinking) for token in tokens if token.text] == [
        ("h", True),
        ("m", True),
        ("m", True),
        ("a", False),
    ]
    result = stream.result()
    assert (result.text, result.reasoning) == ("a", "hmm")


def test_thinking_that_is_written_out_is_kept_apart_too(session: Session) -> None:
    _, stream = scripted(session, "<thi", "nk>hm</th", "ink>a", [EOG])
    assert (stream.result().text, stream.result().reasoning) == ("a", "hm")


@pytest.mark.parametrize("prompt", ["q<think>\n", [97, OPEN]])
def test_a_prompt_may_end_inside_thinking(session: Session, prompt: object) -> None:
    _, stream = scripted(session, "hm", [CLOSE, 97, EOG], prompt=prompt)
    assert (stream.result().text, stream.result().reasoning) == ("a", "hm")


def test_a_failed_decode_is_an_error_with_its_code_and_frees_the_session(session: Session) -> None:
    real = session.engine
    _, stream = scripted(session, "ab", error=_native.EngineError(-3))
    assert [next(stream).text, next(stream).text] == ["a", "b"]
    with pytest.raises(DecodeError, match="GT_FATAL_COMPUTE") as caught:
        next(stream)
    assert caught.value.code == -3
    with pytest.raises(DecodeError):
        stream.result()
    session.engine = real
    still_works(session)


def test_ctrl_c_in_a_round_ends_the_request_and_keeps_what_there_was(session: Session) -> None:
    real = session.engine
    _, stream = scripted(session, "ab", error=KeyboardInterrupt())  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        list(stream)
    assert stream.result().text == "ab"
    assert stream.finish_reason == "cancelled"
    session.engine = real
    still_works(session)


def test_a_second_call_is_busy_at_once_and_the_first_goes_on(session: Session) -> None:
    stream = session.generate("the", max_tokens=12, temperature=0)
    next(stream)
    started = time.monotonic()
    with pytest.raises(SessionBusy):
        session.generate("x")
    with pytest.raises(SessionBusy):
        session.chat([{"role": "user", "content": "x"}])
    assert time.monotonic() - started < 0.1
    assert stream.result().tokens == fresh(session)


def test_leaving_the_loop_early_leaves_the_session_usable(session: Session) -> None:
    with session.generate("the", temperature=0) as stream:
        for _ in stream:
            break
    assert stream.finish_reason == "cancelled"
    still_works(session)


def test_an_exception_in_the_loop_passes_through_and_frees_the_session(session: Session) -> None:
    def broken() -> None:
        with session.generate("the", temperature=0) as stream:
            for token in stream:
                token.id / 0

    with pytest.raises(ZeroDivisionError):
        broken()
    still_works(session)


def test_a_dropped_stream_lets_go_of_its_session(session: Session) -> None:
    stream = session.generate("the", max_tokens=50, temperature=0)
    next(stream)
    del stream
    gc.collect()
    still_works(session)


def test_a_stream_that_was_never_started_lets_go_too(session: Session) -> None:
    session.generate("the", temperature=0)
    gc.collect()
    still_works(session)


def test_cancel_between_rounds_frees_the_session_at_once(session: Session) -> None:
    stream = session.generate("the", temperature=0)
    next(stream)
    stream.cancel()
    stream.cancel()
    still_works(session)
    assert stream.finish_reason == "cancelled"
    list(stream)


def test_a_cancel_inside_a_decode_is_no_error_in_the_log(
    session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    for i in range(30):
        stream = session.generate("word " * 80 + str(i), temperature=0, max_tokens=50)
        timer = threading.Timer(0.0005 * i, stream.cancel)
        timer.start()
        stream.result()
        timer.join()
    assert not [record.message for record in caplog.records if record.levelno >= 30]


def test_a_late_cancel_does_not_touch_the_next_request(session: Session) -> None:
    first = session.generate("the", max_tokens=2)
    list(first)
    second = session.generate("the", max_tokens=12, temperature=0)
    first.cancel()
    first.close()
    assert second.result().tokens == fresh(session)


def test_a_hundred_cancels_at_random_moments_leave_the_session_usable(session: Session) -> None:
    rng = random.Random(3)
    expected = fresh(session)
    cancelled = 0
    for _ in range(100):
        stream = session.generate("prompt " * rng.randint(1, 20), temperature=0.0)
        timer = threading.Timer(rng.random() * 0.02, stream.cancel)
        timer.start()
        cancelled += stream.result().finish_reason == "cancelled"
        timer.join()
    assert cancelled > 20
    assert session.generate("the", max_tokens=12, temperature=0).result().tokens == expected


def test_close_in_the_middle_ends_the_stream(model: Model) -> None:
    session = model.session(n_ctx=64)
    stream = session.generate("the", temperature=0)
    next(stream)
    session.close()
    list(stream)
    assert stream.finish_reason == "cancelled"
    assert stream.result().tokens
    assert stream.stats.predicted_n == len(stream.result().tokens)


def test_close_while_another_thread_generates_waits_for_the_round(model: Model) -> None:
    for _ in range(20):
        session = model.session(n_ctx=256)
        stream = session.generate("the", temperature=0)
        thread = threading.Thread(target=stream.result)
        thread.start()
        time.sleep(0.003)
        session.close()
        thread.join(10)
        assert not thread.is_alive()


def test_async_for_gives_the_same_tokens_and_lets_others_run(session: Session) -> None:
    async def main() -> tuple[list[int], int]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        async with session.generate("the", max_tokens=12, temperature=0) as stream:
            found = [token.id async for token in stream]
        ticking.cancel()
        return found, ticks

    found, ticks = asyncio.run(main())
    assert tuple(found) == fresh(session)
    assert ticks > 5


def test_a_cancelled_task_ends_its_request(session: Session) -> None:
    async def consume(started: asyncio.Event) -> None:
        async with session.generate("the", temperature=0) as stream:
            async for _ in stream:
                started.set()

    async def main() -> None:
        started = asyncio.Event()
        task = asyncio.create_task(consume(started))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    for _ in range(10):
        asyncio.run(main())
    still_works(session)


def test_an_async_stream_that_is_dropped_lets_go(session: Session) -> None:
    async def main() -> None:
        async for _ in session.generate("the", temperature=0):
            break

    asyncio.run(main())
    gc.collect()
    still_works(session)


def test_a_full_context_ends_at_the_exact_token_with_and_without_a_draft(model: Model) -> None:
    with model.session(n_ctx=20) as session:
        for options in ({"draft_tokens": 0}, {"draft_tokens": 16, "draft_p_min": 0.0}):
            result = session.generate([97] * 7, temperature=0, **options).result()  # type: ignore[arg-type]
            assert len(result.tokens) == 13
            assert result.finish_reason == "length"
        with pytest.raises(ContextFull):
            session.generate([97] * 20)
        assert len(session.generate([97] * 19, temperature=0).result().tokens) == 1


def test_max_tokens_zero_gives_nothing(session: Session) -> None:
    result = session.generate("the", max_tokens=0).result()
    assert (result.tokens, result.finish_reason) == ((), "length")
    still_works(session)


@pytest.mark.parametrize(
    "options",
    [
        {"prompt": ""},
        {"prompt": []},
        {"prompt": [-1]},
        {"prompt": [10**6]},
        {"max_tokens": -1},
        {"temperature": "hot"},
        {"stop": ""},
        {"seed": -5},
        {"draft_tokens": 17},
        {"draft_tokens": -1},
        {"draft_p_min": 2},
    ],
)
def test_a_senseless_argument_is_refused_and_frees_the_session(
    session: Session, options: dict[str, object]
) -> None:
    with pytest.raises(InputError):
        session.generate(**{"prompt": "a", **options})  # type: ignore[arg-type]
    session.generate("a", max_tokens=1).result()


def test_an_unknown_argument_of_chat_is_a_type_error(session: Session) -> None:
    with pytest.raises(TypeError, match="temprature"):
        session.chat([{"role": "user", "content": "a"}], temprature=1)
    session.generate("a", max_tokens=1).result()


def test_a_seed_gives_the_same_text_with_a_draft_without_and_again(session: Session) -> None:
    def text(seed: int | None, draft_tokens: int) -> tuple[int, ...]:
        options = {"temperature": 0.7, "top_k": 20, "max_tokens": 60, "draft_tokens": draft_tokens}
        return session.generate("the", seed=seed, draft_p_min=0, **options).result().tokens  # type: ignore[arg-type]

    assert text(11, 0) == text(11, 0) == text(11, 5) == text(11, 12)
    assert text(12, 5) != text(11, 5)
    assert text(None, 0) != text(None, 0)


def test_the_seed_and_the_source_of_sampling_are_told(session: Session) -> None:
    stats = session.generate("a", max_tokens=1, temperature=0.5).result().stats
    assert stats.seed is not None
    assert (
        stats.sampling_source
        == "temperature 0.5 (argument), top_k 40 (default), top_p 0.95 (default), min_p 0 (default)"
    )
    assert session.generate("a", max_tokens=1, seed=stats.seed).result().stats.seed == stats.seed
    assert session.generate("a", max_tokens=1, temperature=0).result().stats.seed is None


def test_stats_count_what_happened(session: Session) -> None:
    stream = session.generate("the", max_tokens=30, temperature=0, draft_p_min=0)
    tokens = list(stream)
    stats = stream.stats
    assert stats.predicted_n == len(tokens) == 30
    assert stats.draft_n_accepted == sum(token.from_draft for token in tokens)
    assert stats.draft_n >= stats.draft_n_accepted
    assert 0 < stats.verify_steps <= 30
    assert stats.predicted_ms > 0
    assert stats.prompt_n + stats.cache_n == len(stream.prompt_tokens)
    assert stats.to_json()["acceptance_rate"] == pytest.approx(stats.acceptance_rate, abs=1e-3)


def test_a_shared_prefix_is_reused_on_both_contexts(session: Session) -> None:
    prompt = list(range(97, 117)) * 5
    first = session.generate(prompt, max_tokens=8, temperature=0).result()
    before = session.engine.counters["draft_decodes"]
    second = session.generate(
        [*prompt, *first.tokens, 97], max_tokens=1, temperature=0, draft_p_min=0
    ).result()
    assert second.stats.cache_n >= len(prompt) + 7
    assert session.engine.counters["draft_decodes"] - before <= 3


def test_a_grammar_holds_with_and_without_a_draft(session: Session) -> None:
    grammar = 'root ::= ("ab" | "cd") [0-9] [0-9]'
    texts = {
        session.generate("q", grammar=grammar, draft_tokens=n, draft_p_min=0, **options).result().text  # type: ignore[arg-type]
        for n in (0, 5)
        for options in ({"temperature": 0}, {"temperature": 0.0, "presence_penalty": 0.5})
    }
    assert all(text[:2] in ("ab", "cd") and text[2:].isdigit() and len(text) == 4 for text in texts)
    drawn = [session.generate("q", grammar=grammar, seed=4, draft_tokens=n).result().text for n in (0, 5)]
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("running", [False, True])
def test_a_process_may_end_while_a_stream_is_open_or_another_thread_is_in_a_round(
    model: Model, running: bool
) -> None:
    code = (
        "import sys, threading, time\n"
        "from gguftools import Model\n"
        "session = Model.load(sys.argv[1], threads=1).session(n_ctx=2048)\n"
        "stream = session.generate('the', temperature=0)\n"
        "next(stream)\n"
        f"if {running}:\n"
        "    threading.Thread(target=stream.result, daemon=True).start()\n"
        "    time.sleep(0.05)\n"
    )
    run = [sys.executable, "-c", code, model.header.path]
    done = subprocess.run(run, cwd=Path(__file__).parent.parent, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
