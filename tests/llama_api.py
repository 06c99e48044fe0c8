"""libllama's functions in the engine's table, for tests below session.py."""

from __future__ import annotations

import ctypes
from typing import Any

from llama_cpp import llama_cpp as low

from gguftools import _native

LIBRARY = low._lib


def addresses() -> dict[str, int]:
    """Function name → address, in the table's order."""
    return {name: ctypes.cast(getattr(LIBRARY, name), ctypes.c_void_p).value or 0 for _, name in _native.API}


def install() -> None:
    _native.set_api(list(addresses().values()))


def address(pointer: Any) -> int:
    """A handle of llama_cpp as a number; 0 for NULL."""
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0


class Chain:
    """One of libllama's sampler chains, freed with the block."""

    def __init__(self, *samplers: Any) -> None:
        self.handle = low.llama_sampler_chain_init(low.llama_sampler_chain_default_params())
        for sampler in samplers:
            low.llama_sampler_chain_add(self.handle, sampler)

    def __enter__(self) -> int:
        return address(self.handle)

    def __exit__(self, *_: object) -> None:
        low.llama_sampler_free(self.handle)
