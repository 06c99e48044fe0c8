"""gguftools finds, makes, checks and runs draft models for speculative decoding on llama.cpp.

The public names are mapped lazily: importing the package loads nothing else, starts no backend and writes no
environment variable.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_WHERE = {
    "Header": "header",
    "read_header": "header",
    "Vocab": "vocab",
    "Checkpoint": "checkpoint",
    "Model": "session.model",
    "Result": "session.results",
    "Round": "session.results",
    "Session": "session.session",
    "Stats": "session.results",
    "Stream": "session.stream",
    "Token": "session.results",
    "bench": "verbs.bench",
    "check": "verbs.check",
    "convert": "verbs.convert",
    "edit": "verbs.edit",
    "export": "verbs.export",
    "info": "verbs.info",
    "quantize": "verbs.quantize",
    "transplant": "verbs.transplant",
}

__all__ = ["__version__", "errors", *_WHERE]

if TYPE_CHECKING:
    from . import errors as errors
    from .checkpoint import Checkpoint as Checkpoint
    from .header import Header as Header
    from .header import read_header as read_header
    from .session.model import Model as Model
    from .session.results import Result as Result
    from .session.results import Round as Round
    from .session.results import Stats as Stats
    from .session.results import Token as Token
    from .session.session import Session as Session
    from .session.stream import Stream as Stream
    from .verbs.bench import bench as bench
    from .verbs.check import check as check
    from .verbs.convert import convert as convert
    from .verbs.edit import edit as edit
    from .verbs.export import export as export
    from .verbs.info import info as info
    from .verbs.quantize import quantize as quantize
    from .verbs.transplant import transplant as transplant
    from .vocab import Vocab as Vocab


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module(".errors", __name__)
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module("." + _WHERE[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
