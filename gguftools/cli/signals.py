"""SIGTERM and SIGHUP end a command as Ctrl-C does: what it began to write is removed."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import NoReturn


def end_in_order() -> None:
    """Makes both signals raise SystemExit in the main thread; one that is ignored (nohup) stays so."""
    if threading.current_thread() is not threading.main_thread():
        return
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _end)


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_DFL)  # a second one does not wait for the tidying
    raise SystemExit(128 + number)
