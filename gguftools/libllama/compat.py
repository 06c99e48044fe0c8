"""The installed llama-cpp-python: found, checked once, its logs sent to logging, its functions to C."""

from __future__ import annotations

import ctypes
import logging
import re
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from .. import _native
from ..errors import AbiMismatch, Unsupported

NEWEST = ("llama_load_mode_from_str", "llama_n_rs_seq")  # the youngest functions that Python calls
LIBRARIES = ("llama", "ggml-base", "ggml", "ggml-cpu", "ggml-rpc")
# What llama.cpp says of a decode that was cancelled, or of what we ask for with intent: no error of anybody.
NO_ERROR = re.compile(
    r"failed with error 1$|compute status: 1$|removing memory module entries|failed to decode, ret = 2$"
    r"|model default pooling_type is \[-1\]"
)
LEVELS = {1: logging.DEBUG, 2: logging.INFO, 3: logging.WARNING, 4: logging.ERROR}
GPU_BUILDS = (
    "install a build of llama-cpp-python with a GPU backend, for example: "
    'CMAKE_ARGS="-DGGML_CUDA=on" pip install --force-reinstall --no-cache-dir llama-cpp-python '
    "(-DGGML_METAL=on, -DGGML_VULKAN=on for the others)"
)

log = logging.getLogger("gguftools.llama")
_lock = threading.Lock()
_ready: Any = None


def library() -> Any:
    """The module llama_cpp.llama_cpp, with the backend started and the function table handed to C.

    The first call does all of it: nothing happens at import. Raises Unsupported without llama-cpp-python,
    AbiMismatch when its structs or functions are not those that the extension was built for.
    """
    global _ready
    with _lock:
        if _ready is None:
            lib = _import()
            for name in NEWEST:
                address(lib, "llama", name)
            lib.llama_log_set(_log_callback(lib), ctypes.c_void_p(0))
            check_abi(lib, _native.STRUCTS, version())
            _native.set_api([address(lib, *entry) for entry in _native.API])
            lib.llama_backend_init()
            _ready = lib
    return _ready


def _import() -> Any:
    try:
        from llama_cpp import llama_cpp
    except ImportError as error:
        why = str(error)
    except (OSError, RuntimeError) as error:
        why = f"its library does not load: {error}"
    else:
        return llama_cpp
    raise Unsupported(
        "llama-cpp-python cannot be used", why, 'run: python -m pip install "llama-cpp-python>=0.3.36,<0.4"'
    )


def version() -> str:
    """The version of the installed llama-cpp-python."""
    import llama_cpp

    return str(llama_cpp.__version__)


def check_abi(lib: Any, structs: Mapping[str, Mapping[str, int]], installed: str) -> None:
    """Compares sizes and field offsets of the shared structs. Raises AbiMismatch naming both versions."""
    from .. import __version__

    for name, expected in structs.items():
        struct = getattr(lib, name)
        fields = {field[0]: getattr(struct, field[0]).offset for field in struct._fields_}
        found = {"sizeof": ctypes.sizeof(struct), **fields}
        keys = sorted(key for key in {*expected, *found} if expected.get(key) != found.get(key))
        wrong = [f"{key} {expected.get(key)} != {found.get(key)}" for key in keys]
        if wrong:
            raise AbiMismatch(
                f"gguftools {__version__} does not fit llama-cpp-python {installed}",
                f"{name}: {', '.join(wrong)} (expected != installed)",
                'run: python -m pip install "llama-cpp-python>=0.3.36,<0.4"',
            )


def address(lib: Any, home: str, name: str) -> int:
    """Where a function is; on Windows only the library that defines it (`home`) knows. Raises AbiMismatch."""
    for handle in _handles(lib, home):
        found = getattr(handle, name, None)
        if found is not None:
            return int(ctypes.cast(found, ctypes.c_void_p).value or 0)
    from .. import __version__

    raise AbiMismatch(
        f"gguftools {__version__} does not fit llama-cpp-python {version()}",
        f"its library has no function {name}",
        'run: python -m pip install "llama-cpp-python>=0.3.36,<0.4"',
    )


def _handles(lib: Any, home: str) -> Iterator[Any]:
    yield lib._lib
    from llama_cpp._ctypes_extensions import load_shared_library

    for name in (home, *LIBRARIES):
        try:
            yield load_shared_library(name, lib._base_path)
        except (FileNotFoundError, RuntimeError):
            continue


@cache
def function(name: str, result: Any, *arguments: Any) -> Any:
    """A function of ggml that llama-cpp-python does not declare."""
    where = address(library(), "ggml", name)
    return ctypes.CFUNCTYPE(result, *arguments)(where)


class _Log:
    """llama.cpp logs in pieces: joins them to lines and keeps the newest complaints for error messages."""

    def __init__(self) -> None:
        self.complaints: deque[str] = deque(maxlen=8)
        self._part = ""
        self._level = logging.INFO

    def write(self, level: int, text: bytes, _data: object) -> None:
        if level != 5:  # 5 goes on with the line before
            self._flush()
            self._level = LEVELS.get(level, logging.INFO)
        self._part += text.decode("utf-8", "replace")
        if self._part.endswith("\n"):
            self._flush()

    def _flush(self) -> None:
        line, self._part = self._part.rstrip(), ""
        if not line:
            return
        level = logging.DEBUG if NO_ERROR.search(line) else self._level
        if level >= logging.WARNING:
            self.complaints.append(line)
        log.log(level, "%s", line)


_log = _Log()


@cache
def _log_callback(lib: Any) -> Any:
    return lib.llama_log_callback(_native.Callback(_log.write))


@contextmanager
def complaints() -> Iterator[deque[str]]:
    """What llama.cpp warns of and complains about meanwhile, newest last.

    At its end what was raised in llama.cpp's callbacks is raised: a progress function's error, Ctrl-C.
    """
    _log.complaints.clear()
    try:
        yield _log.complaints
    finally:
        _native.raise_kept()
