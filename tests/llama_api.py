"""libllama's functions in the engine's table, for tests below session.py."""

from __future__ import annotations

import ctypes

from llama_cpp import llama_cpp as low

from gguftools import _native

LIBRARY = low._lib


def addresses() -> dict[str, int]:
    """Function name → address, in the table's order."""
    return {name: ctypes.cast(getattr(LIBRARY, name), ctypes.c_void_p).value or 0 for _, name in _native.API}


def install() -> None:
    _native.set_api(list(addresses().values()))
