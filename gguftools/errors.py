"""Every error that a user can cause. Each derives from GGUFToolsError and from the matching builtin."""

from __future__ import annotations

from typing import Any


class GGUFToolsError(Exception):
    """An error in three parts: what happened, why, and what to do next.

    str() joins the parts that are given, one a line.
    """

    def __init__(self, what: str, why: str = "", hint: str = "") -> None:
        super().__init__(what, why, hint)
        self.what = what
        self.why = why
        self.hint = hint

    def __str__(self) -> str:
        return "\n".join(part for part in (self.what, self.why, self.hint) if part)


class FormatError(GGUFToolsError, ValueError):
    """A file that is not what it claims to be; `path` and byte `offset` say where.

    `offset` None: its contents contradict each other or what it is used for, at no one place.
    """

    def __init__(self, path: object, offset: int | None, why: str, hint: str = "") -> None:
        what = f"{path} cannot be used" if offset is None else f"{path}: byte {offset}: not a valid file"
        super().__init__(what, why, hint)
        self.path = str(path)
        self.offset = offset

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.path, self.offset, self.why, self.hint))


class InputError(GGUFToolsError, ValueError):
    """An argument or input that cannot be used as it is."""


class NotFound(GGUFToolsError, FileNotFoundError):
    """A model, file or shard that is not where it was looked for."""


class OutputExists(GGUFToolsError, FileExistsError):
    """The goal of a write exists and `force` was not given."""


class DiskFull(GGUFToolsError, OSError):
    """Not enough free space for what would be written."""


class HubError(GGUFToolsError, OSError):
    """The Hub refused, failed or could not be reached."""


class ServerError(GGUFToolsError, OSError):
    """A running server refused, failed, answered what it should not, or could not be reached."""


class Unsupported(GGUFToolsError, NotImplementedError):
    """An architecture, tensor type or feature that this version or this build of llama.cpp lacks."""


class IncompatibleDraft(GGUFToolsError, ValueError):
    """`check` found that the draft cannot work with the target; `report` holds its findings."""

    def __init__(self, what: str, why: str = "", hint: str = "", report: Any = None) -> None:
        super().__init__(what, why, hint)
        self.report = report


class AbiMismatch(GGUFToolsError, ImportError):
    """The installed llama-cpp-python lays out a shared struct in another way than this build expects."""


class LoadError(GGUFToolsError, RuntimeError):
    """libllama could not load a model or make a context."""


class LoadAborted(GGUFToolsError, RuntimeError):
    """The progress callback asked to stop a load."""


class SessionBusy(GGUFToolsError, RuntimeError):
    """A second call while one is running on the same session."""


class Closed(GGUFToolsError, ValueError):
    """Use of a model or session after close()."""


class DecodeError(GGUFToolsError, RuntimeError):
    """libllama failed in the middle of a request; `code` is the engine's or llama_decode's return code."""

    def __init__(self, what: str, why: str = "", hint: str = "", code: int = 0) -> None:
        super().__init__(what, why, hint)
        self.code = code


class ContextFull(GGUFToolsError, ValueError):
    """A prompt that does not fit into the context."""


class TemplateError(GGUFToolsError, ValueError):
    """A chat template that cannot be rendered."""


class GrammarError(GGUFToolsError, ValueError):
    """A GBNF grammar that libllama does not accept."""
