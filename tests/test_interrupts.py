"""Signals at bad moments, forked processes, and a caller's Llama that is closed too early."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest
import tiny_session

from gguftools import Model, Session, _native
from gguftools.errors import Closed, DecodeError, InputError, SessionBusy

pytestmark = [
    pytest.mark.usefixtures("real_api"),
    pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs POSIX signals"),
]


class Rang(Exception):
    """What the tests' alarm raises."""


def ring(_signal: int, _frame: FrameType | None) -> None:
    raise Rang


@contextmanager
def alarm(seconds: float, handler: Callable[[int, FrameType | None], None] = ring) -> Iterator[None]:
    old = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_session.write(tmp_path_factory.mktemp("interrupts") / "tiny.gguf")


@pytest.fixture(scope="module")
def model(tiny: Path) -> Iterator[Model]:
    with Model.load(tiny, tiny, threads=1) as model:
        yield model


def test_a_signal_at_any_moment_of_a_load_comes_through(
    smollm2: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    begun = time.monotonic()
    Model.load(smollm2, load_mode="none").close()
    whole = time.monotonic() - begun

    def load() -> None:
        Model.load(smollm2, load_mode="none", progress=lambda *_: None).close()
        time.sleep(2 + whole)  # when this load was faster than the first one

    for i in range(12):
        with pytest.raises(Rang), alarm(0.01 + whole * i / 14):
            load()
    assert capfd.readouterr() == ("", "")  # Python says there what it had to ignore


def test_what_a_callback_raises_is_kept_for_its_own_thread() -> None:
    error = ValueError("mine")

    def fail() -> None:
        raise error

    callback = _native.Callback(fail)
    other = threading.Thread(target=callback)
    other.start()
    other.join()
    _native.raise_kept()
    assert callback() is False
    with pytest.raises(ValueError, match="mine") as caught:
        _native.raise_kept()
    assert caught.value is error
    _native.raise_kept()


def test_what_a_callback_raised_ends_with_its_thread_though_the_next_one_may_get_its_number() -> None:
    def fail() -> None:
        raise ValueError("of an ended thread")

    heard: list[BaseException] = []

    def listen() -> None:
        try:
            _native.raise_kept()
        except ValueError as error:
            heard.append(error)

    numbers = []
    for target in (_native.Callback(fail), listen) * 20:
        thread = threading.Thread(target=target)
        thread.start()
        numbers.append(thread.ident)
        thread.join()
    assert len(set(numbers)) < len(numbers)
    assert not heard


def test_an_exception_of_a_signal_in_a_round_ends_the_request(model: Model) -> None:
    with model.session(n_ctx=2048) as session:

        def talk() -> None:
            while True:
                session.generate([5] * 1000, max_tokens=900, seed=1).result()

        for wait in (0.001, 0.01, 0.03):
            with pytest.raises(Rang), alarm(wait):
                talk()
        assert session.generate("the", max_tokens=4).result().finish_reason == "length"


def test_closing_in_a_signal_handler_never_waits_for_the_round_that_it_interrupted(model: Model) -> None:
    busy: list[SessionBusy] = []
    session = model.session(n_ctx=2048)
    stream = session.generate([5] * 1000, max_tokens=1000)

    def close(_signal: int, _frame: FrameType | None) -> None:
        stream.close()
        try:
            session.close()
        except SessionBusy as error:
            busy.append(error)

    with alarm(0.03, close):
        assert stream.result().finish_reason == "cancelled"
    session.close()
    assert all("cancel()" in error.hint for error in busy)


FORK = """
import os, sys, threading, time
from gguftools import Model, errors
model = Model.load(sys.argv[1])
session = model.session(n_ctx=1024)
thread = threading.Thread(target=lambda: session.generate([5] * 500, max_tokens=500).result())
thread.start()
time.sleep(0.02)
if os.fork() == 0:
    for call in (lambda: session.generate("the"), model.session):
        try:
            call()
        except errors.Unsupported as error:
            print(error.what)
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.wait()[1]))
session.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_is_told_so_and_ends(tiny: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK, str(tiny)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(__file__).parent.parent,
    )
    assert done.stdout == "tiny.gguf was loaded by another process\n" * 2 + "7\n", done.stderr


def test_a_llama_that_its_owner_closes_in_the_middle_ends_the_request(tiny: Path) -> None:
    import llama_cpp

    llama = llama_cpp.Llama(str(tiny), n_ctx=64, verbose=False)
    with Model.load(llama, tiny) as model, model.session(n_ctx=64) as session:
        stream = session.generate("the", max_tokens=40)
        next(stream)
        llama.close()
        with pytest.raises(Closed):
            list(stream)
        assert stream.finish_reason == "cancelled"


@pytest.mark.parametrize("threads", [-1, 513, 1_000_000])
def test_a_senseless_number_of_threads_is_refused(tiny: Path, threads: int) -> None:
    with pytest.raises(InputError, match="from 1 to 512"):
        Model.load(tiny, threads=threads)


def test_a_failed_start_is_a_decode_error_and_frees_the_session(
    model: Model,
) -> None:
    session: Session = model.session(n_ctx=64)

    class Broken:
        def __getattr__(self, name: str) -> object:
            return getattr(engine, name)

        def begin(self, *_: object, **__: object) -> int:
            raise _native.EngineError(-101)

    engine = session.engine
    session.engine = Broken()  # type: ignore[assignment]
    with pytest.raises(DecodeError, match="exception"):
        session.generate("the")
    session.engine = engine
    tiny_session.still_works(session)
