"""What AUTO has learned of a pair of models on this machine, kept in a small file for the next process.

A file holds JSON: {"schema": 1, "learned": [numbers]}. Its name is a digest of all that costs depend on.
Losing one costs a second's measuring, so nothing that goes wrong here is an error.
"""

from __future__ import annotations

import hashlib
import json
import logging
import platform
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platformdirs import user_cache_path

from .. import goal
from ..errors import GGUFToolsError
from ..header.fingerprint import fingerprint
from ..libllama import hardware
from ..libllama.compat import version
from ..libllama.devices import Placement

if TYPE_CHECKING:
    from .session import Session

SCHEMA = 1
MAX_BYTES = 1 << 20
MEASURE = 1.0  # seconds at most, where nothing is known yet
WRITE_AFTER = 20.0  # seconds between two writes of one session
GPU_WIDTHS = (1, 2, 4, 8)  # a GPU's fast kernels take up to 8 columns, and each new shape costs a graph

log = logging.getLogger("gguftools.session.learned")


class Learned:
    """The numbers of one session's engine: from another session of the model, from the file, or measured.

    With remember False no file is read or written.
    """

    def __init__(self, session: Session, remember: bool) -> None:
        self._session = session
        self._path = _path(session) if remember else None
        self._written = time.monotonic()
        self._ready = False

    def prepare(self) -> None:
        """Before the first request that wants AUTO; the engine must be free. Raises NativeCancelled."""
        if self._ready:
            return
        self._ready = True
        session = self._session
        if session.model.uses_gpu:
            session.engine.set_widths(GPU_WIDTHS)
        for numbers in (session.model.learned, _read(self._path)):
            if numbers and _given(session, numbers):
                return
        if session.engine.n_history == 0:  # measuring empties the caches
            session.engine.measure(MEASURE)

    def keep(self) -> None:
        """After a request: for the model's other sessions and, now and then, for other processes."""
        if not self._ready:
            return
        self._session.model.learned = self._session.engine.learned
        if time.monotonic() - self._written > WRITE_AFTER:
            self.write()

    def write(self) -> None:
        """Into the file, if there is one and a request was made."""
        if not self._ready or self._path is None or not self._session.model.learned:
            return
        self._written = time.monotonic()
        text = json.dumps({"schema": SCHEMA, "learned": self._session.model.learned})
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            goal.put(self._path, text.encode())
        except (GGUFToolsError, OSError) as error:
            log.info("what was learned is not kept: %s", error)


def _given(session: Session, numbers: list[float]) -> bool:
    try:
        session.engine.learned = numbers
    except (ValueError, OverflowError, TypeError):
        return False
    return True


def _read(path: Path | None) -> list[float] | None:
    """Numbers from the file; None where it is missing or not what `write` makes."""
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            found: Any = json.loads(file.read(MAX_BYTES))
        return [float(number) for number in found["learned"]] if found["schema"] == SCHEMA else None
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _path(session: Session) -> Path | None:
    """The file of this pair: models, where they are, how they run, the machine."""
    model = session.model
    parts = [part for part in model._parts if part is not None]
    try:
        made = [
            [fingerprint(part.header) for part in parts],
            [_place(part.place) for part in parts],
            [*model._settings.cache_types, *model._settings.draft_cache_types, model._settings.threads],
            [platform.machine(), _processor(), hardware.physical_cores(), version()],
        ]
    except OSError:
        return None
    name = hashlib.sha256(json.dumps(made).encode()).hexdigest()[:32]
    return user_cache_path("gguftools") / "learned" / f"{name}.json"


def _place(place: Placement) -> list[Any]:
    devices = [device.description for device in place.gpus]
    return [place.gpu_layers, devices, place.tensor_split, [pattern for pattern, _ in place.overrides]]


def _processor() -> str:
    """The processor's name, as far as the system tells."""
    try:
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line
    except OSError:
        pass
    return platform.processor()
