"""A download that goes on where it stopped: a part file grows until it is whole, then it is checked."""

from __future__ import annotations

import hashlib
import logging
import re
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from ..errors import DiskFull, HubError

_log = logging.getLogger(__name__)

_REQUEST_CAP = 8 << 30  # the Hub's CDN refuses answers above 50 GB
_TRIES = 5
_BLOCK = 1 << 20

Read = Callable[[int, int], Iterable[bytes]]


def fill(
    goal: Path,
    size: int,
    sha256: str,
    read: Read,
    tell: Callable[[int], None],
    transient: Callable[[Exception], bool],
) -> None:
    """Makes `goal`, `size` bytes from `read(start, stop)`, by way of a part file beside it that survives.

    `sha256` is compared where it is 64 hex digits. `tell(bytes so far)` may raise to stop. After an
    error that is `transient` it goes on, up to five times without progress. Raises DiskFull, HubError, or
    what `read` raises.
    """
    if goal.exists():
        return
    part = goal.with_name(f"{goal.name}.gguftools.incomplete")
    have = part.stat().st_size if part.exists() else 0
    if shutil.disk_usage(goal.parent).free < size - have:
        raise DiskFull(f"{goal.parent}: not enough space", f"{(size - have) / 1e9:.1f} GB are needed")
    fails = 0
    while have < size:
        before = have
        try:
            have = _append(part, read(have, min(size, have + _REQUEST_CAP)), have, tell)
            problem: Exception = HubError(
                "the download stands still", f"at byte {have}", "run again to go on"
            )
        except Exception as error:
            if not transient(error):
                raise
            have = part.stat().st_size
            problem = error
        fails = 0 if have > before else fails + 1
        if fails >= _TRIES:
            raise problem
        if have < size:
            _log.info("going on at byte %d after: %s", have, problem)
            time.sleep(min(fails**2 / 4, 4.0))
    _verify(part, size, sha256)
    part.replace(goal)


def _append(part: Path, blocks: Iterable[bytes], have: int, tell: Callable[[int], None]) -> int:
    with part.open("ab") as out:
        for block in blocks:
            out.write(block)
            have += len(block)
            tell(have)
    return have


def _verify(part: Path, size: int, sha256: str) -> None:
    found = part.stat().st_size
    good = found == size
    if good and re.fullmatch(r"[0-9a-f]{64}", sha256):
        digest = hashlib.sha256()
        with part.open("rb") as data:
            while block := data.read(_BLOCK):
                digest.update(block)
        good = digest.hexdigest() == sha256
    if not good:
        part.unlink()
        why = (
            f"{found} of {size} bytes, and the sha256 is another"
            if found == size
            else f"{found} bytes, not {size}"
        )
        raise HubError("the download is damaged and was removed", why, "run again")
