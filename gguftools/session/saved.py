"""A session in a file: its history and both caches, for another process to go on from.

Little-endian: MAGIC, the format's version (u32), the size of the head (u32), the head (JSON: what the session
was made of, the sizes of what follows), the history (i32 each), the target's state, the draft's, SHA-256 of
all before it. The states are libllama's own, which it reads trustingly: they are handed to it only when all
that they depend on is the same as when they were written and the digest is right.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from .. import _native, goal
from ..errors import DecodeError, FormatError, InputError, LoadError, NotFound, OutputExists
from ..header.fingerprint import fingerprint
from ..libllama import hardware
from ..libllama.compat import complaints, library, version

if TYPE_CHECKING:
    from .session import Session

MAGIC = b"ggufses\n"
VERSION = 1
MAX_HEAD = 64 << 10
START = struct.Struct("<8sII")
DIGEST = hashlib.sha256().digest_size
AGAIN = "save it again; until then the prompt is decoded anew"


@dataclass(frozen=True, slots=True)
class State:
    """A cache's state: its bytes, and which tokens of the history are in it."""

    nbytes: int
    n: int
    first: int


@dataclass(frozen=True, slots=True)
class Head:
    """made: see _made(). The history's tokens, and the states of target and draft, follow in the file."""

    made: Mapping[str, Any]
    n_history: int
    target: State
    draft: State


def save(session: Session, path: Path) -> None:
    """Writes the file. Raises OutputExists over others, InputError, DiskFull, DecodeError."""
    _spare_others(path)
    engine = session.engine
    history = np.array(engine.history, "<i4").tobytes()
    parts = [_native.state_part(engine, draft) for draft in (False, True)]
    head = {"made": _made(session), "n_history": len(history) // 4, "target": parts[0], "draft": parts[1]}
    text = json.dumps(head).encode()
    start = START.pack(MAGIC, VERSION, len(text))
    total = len(start) + len(text) + len(history) + sum(part[0] for part in parts) + DIGEST
    digest = hashlib.sha256()
    with goal.new_file(path, total, force=True) as file:
        for part in _content(engine, start, text, history):
            digest.update(part)
            file.write(part)
        file.write(digest.digest())


def load(session: Session, path: Path) -> None:
    """Puts the file's content in place of the session's own, which stays as it is when the file is refused.

    Raises NotFound, FormatError, InputError, LoadError.
    """
    with _open(path) as file:
        digest = hashlib.sha256()
        size = os.fstat(file.fileno()).st_size
        head = _read_head(path, file, size, digest)
        _compare(path, head.made, _made(session))
        _check(path, head, session)
        sizes = (4 * head.n_history, head.target.nbytes, head.draft.nbytes)
        history, target, draft = (_read(path, file, n, digest) for n in sizes)
        if file.read(DIGEST) != digest.digest():
            raise FormatError(path, size - DIGEST, "its digest is not that of its content", AGAIN)
    ids = array("i", np.frombuffer(history, "<i4").tolist())
    with complaints() as heard:
        try:
            _native.restore_state(
                session.engine, ids, target, head.target.n, draft, head.draft.n, head.draft.first
            )
        except _native.EngineError as error:
            raise FormatError(path, None, "; ".join([str(error), *heard]), AGAIN) from error


def _made(session: Session) -> dict[str, Any]:
    """All that a state depends on, as JSON has it; of a model its name, which may differ, and fingerprint."""
    target, draft = session.model._parts
    settings = session.model._settings
    return {
        "target": [target.header.path.name, fingerprint(target.header)],
        "draft": [draft.header.path.name, fingerprint(draft.header)] if draft else None,
        "n_ctx": session.n_ctx,
        "draft_n_ctx": session.draft_n_ctx,
        "cache_types": list(settings.cache_types),
        "draft_cache_types": list(settings.draft_cache_types),
        "flash_attn": settings.flash_attn,
        "llama_cpp": f"llama-cpp-python {version()} with libllama {library().llama_version().decode()}",
    }


def _content(engine: _native.Engine, *begin: bytes) -> Iterator[bytes | bytearray]:
    """What was made already, then the states, one in memory at a time."""
    yield from begin
    for draft in (False, True):
        try:
            yield _native.read_state(engine, draft)
        except _native.EngineError as error:
            what = f"the {'draft' if draft else 'target'}'s cache cannot be saved"
            raise DecodeError(what, str(error), code=error.code) from error


def _spare_others(path: Path) -> None:
    if not path.is_file():
        return
    with _open(path) as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise OutputExists(f"{path} is no saved session", "it is not replaced", "choose another name")


def _open(path: Path) -> BinaryIO:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise InputError(f"{path} is no ordinary file", "a saved session is one", "give a file")
        return path.open("rb")
    except FileNotFoundError:
        raise NotFound(f"{path}: no such file", "", "save a session first") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read", error.strerror or str(error)) from None


def _read(path: Path, file: BinaryIO, n: int, digest: Any) -> bytes:
    data = file.read(n)
    if len(data) != n:
        raise FormatError(path, file.tell(), f"the file ends {n - len(data):,} bytes early", AGAIN)
    digest.update(data)
    return data


def _read_head(path: Path, file: BinaryIO, size: int, digest: Any) -> Head:
    """The head, with sizes that add up to the file's."""
    magic, number, length = START.unpack(_read(path, file, START.size, digest))
    if magic != MAGIC:
        raise FormatError(path, 0, "it is no saved session", "give a file that Session.save wrote")
    if number != VERSION:
        why = f"version {number} of the format; this gguftools reads {VERSION}"
        raise FormatError(path, len(MAGIC), why, AGAIN)
    if length > MAX_HEAD:
        raise FormatError(path, 12, f"a head of {length:,} bytes, more than the cap of {MAX_HEAD:,}", AGAIN)
    text = _read(path, file, length, digest)
    try:
        head = _head(json.loads(text))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise FormatError(path, START.size, "its head is not what Session.save writes", AGAIN) from None
    total = START.size + length + 4 * head.n_history + head.target.nbytes + head.draft.nbytes + DIGEST
    if total != size:
        raise FormatError(path, size, f"the file has {size:,} bytes, by its head {total:,}", AGAIN)
    return head


def _head(value: Any) -> Head:
    """Raises ValueError, KeyError or TypeError for anything but what `save` writes."""
    if not isinstance(value["made"], dict):
        raise TypeError("made")
    target, draft = (State(*map(_count, value[name])) for name in ("target", "draft"))
    return Head(value["made"], _count(value["n_history"]), target, draft)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 48:
        raise ValueError("no count")
    return value


def _compare(path: Path, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Refuses a state that this session cannot hold, and says what must be the same."""
    for name in ("target", "draft"):
        a, b = theirs.get(name), ours[name]
        if (isinstance(a, list) and a[1:]) != (isinstance(b, list) and b[1:]):
            why = f"it was saved with {_model(name, a)}, this session has {_model(name, b)}"
            raise FormatError(path, None, why, "load it into a session of the model that it was saved with")
    for name, b in ours.items():
        a = theirs.get(name)
        if name not in ("target", "draft") and a != b:
            hint = AGAIN if name == "llama_cpp" else f"make the session with {name} {_shown(a)}"
            why = f"it was saved with {name} {_shown(a)}, this session has {_shown(b)}"
            raise FormatError(path, None, why, hint)


def _model(what: str, value: Any) -> str:
    return f"the {what} {' '.join(_shown(part)[:40] for part in value)}" if value else f"no {what}"


def _shown(value: Any) -> str:
    """A stranger's value, short and without what a terminal would obey."""
    return (value if isinstance(value, str) and value.isprintable() else ascii(value))[:80]


def _check(path: Path, head: Head, session: Session) -> None:
    ends = [head.n_history - state.first - state.n for state in (head.target, head.draft)]
    if min(ends) < 0 or head.target.first or head.n_history > session.n_ctx:
        raise FormatError(path, START.size, "the counts in its head contradict each other", AGAIN)
    need, free = head.target.nbytes + head.draft.nbytes, hardware.free_memory()
    if free and need > free:
        why = f"its states take {need / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB are free"
        raise LoadError(f"{path} does not fit into memory", why, "close other programs")
