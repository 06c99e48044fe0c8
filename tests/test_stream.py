"""Stream: cancel, close, drop, threads, async; the session is free again each time."""

from __future__ import annotations

import asyncio
import gc
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import tiny_session

from gguftools import Model, Session
from gguftools.errors import SessionBusy

pytestmark = pytest.mark.usefixtures("real_api")


def test_a_second_call_is_busy_at_once_and_the_first_goes_on(session: Session) -> None:
    stream = session.generate("the", max_tokens=12, temperature=0)
    next(stream)
    started = time.monotonic()
    with pytest.raises(SessionBusy):
        session.generate("x")
    with pytest.raises(SessionBusy):
        session.chat([{"role": "user", "content": "x"}])
    assert time.monotonic() - started < 0.1
    assert stream.result().tokens == tiny_session.fresh(session)


def test_leaving_the_loop_early_leaves_the_session_usable(session: Session) -> None:
    with session.generate("the", temperature=0) as stream:
        for _ in stream:
            break
    assert stream.finish_reason == "cancelled"
    tiny_session.still_works(session)


def test_an_exception_in_the_loop_passes_through_and_frees_the_session(session: Session) -> None:
    def broken() -> None:
        with session.generate("the", temperature=0) as stream:
            for token in stream:
                token.id / 0

    with pytest.raises(ZeroDivisionError):
        broken()
    tiny_session.still_works(session)


def test_a_dropped_stream_lets_go_of_its_session(session: Session) -> None:
    stream = session.generate("the", max_tokens=50, temperature=0)
    next(stream)
    del stream
    gc.collect()
    tiny_session.still_works(session)


def test_a_stream_that_was_never_started_lets_go_too(session: Session) -> None:
    session.generate("the", temperature=0)
    gc.collect()
    tiny_session.still_works(session)


def test_cancel_between_rounds_frees_the_session_at_once(session: Session) -> None:
    stream = session.generate("the", temperature=0)
    next(stream)
    stream.cancel()
    stream.cancel()
    tiny_session.still_works(session)
    assert stream.finish_reason == "cancelled"
    list(stream)


def test_a_prompt_that_was_cut_short_counts_what_was_decoded_of_it(session: Session) -> None:
    stream = session.generate([97] * 500, max_tokens=8)
    assert stream.stats.prompt_n == 0
    stream.cancel()
    assert stream.stats.prompt_n == 0
    stream = session.generate([97] * 500, max_tokens=8)
    stream._advance()  # the target's only chunk
    assert 499 <= stream.stats.prompt_n <= 500
    assert stream.stats.prompt_ms > 0
    stream.close()


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
    assert second.result().tokens == tiny_session.fresh(session)


def test_a_hundred_cancels_at_random_moments_leave_the_session_usable(session: Session) -> None:
    rng = random.Random(3)
    expected = tiny_session.fresh(session)
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
    assert tuple(found) == tiny_session.fresh(session)
    assert ticks > 5


def test_an_async_stream_whose_worker_is_gone_ends_quietly(session: Session) -> None:
    async def read() -> int:
        stream = session.generate("the", temperature=0)
        count = 0
        async for _ in stream:
            count += 1
            stream._queue.clear()
            submit = stream._worker.submit  # type: ignore[union-attr]

            def late(*arguments: object, submit: Callable[..., object] = submit) -> object:
                stream.cancel()  # between the check and the next round
                return submit(*arguments)

            stream._worker.submit = late  # type: ignore[union-attr, method-assign, assignment]
        return count

    assert asyncio.run(read()) == 1
    tiny_session.still_works(session)


def test_a_cancelled_task_ends_its_request(session: Session) -> None:
    async def consume(started: asyncio.Event) -> None:
        async with session.generate("the", temperature=0) as stream:
            async for _ in stream:
                started.set()

    async def main() -> None:
        started = asyncio.Event()
        task = asyncio.create_task(consume(started))
        waiting = asyncio.create_task(started.wait())
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        assert not task.done(), task.exception()  # else waiting would never end
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    for _ in range(10):
        asyncio.run(main())
    tiny_session.still_works(session)


def test_an_async_stream_that_is_dropped_lets_go(session: Session) -> None:
    async def main() -> None:
        async for _ in session.generate("the", temperature=0):
            break

    asyncio.run(main())
    gc.collect()
    tiny_session.still_works(session)


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
