"""Weights: one tensor of a checkpoint as rows of numbers, whatever its encoding."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from numpy.typing import NDArray

from ..errors import Unsupported
from . import floats, safetensors
from .safetensors import Entry

if TYPE_CHECKING:
    from . import Checkpoint

_KINDS = {"F32": floats.F32, "F16": floats.F16, "BF16": floats.BF16, "I32": floats.I32, "I64": floats.I64}


class Weights(Protocol):
    """One logical tensor. `shape` is outermost first."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def kind(self) -> int:
        """The ggml type that `read` gives."""

    @property
    def auto(self) -> int:
        """The ggml type that loses nothing, or as little as its makers do: that of outtype auto."""

    def read(self, first_row: int, n_rows: int) -> NDArray[Any]:
        """Rows (numbers of a plain type, or bytes of a block type); of one axis, single numbers.

        Raises FormatError where the file ends before, InputError for a NaN or an infinity.
        """


@dataclass(frozen=True, slots=True)
class Plain:
    """A tensor that is stored as numbers."""

    entry: Entry
    kind: int

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def shape(self) -> tuple[int, ...]:
        return self.entry.shape

    @property
    def auto(self) -> int:
        return self.kind

    def read(self, first_row: int, n_rows: int) -> NDArray[Any]:
        dtype = floats.STORED[self.kind]
        stride = math.prod(self.shape[1:]) * dtype.itemsize
        raw = safetensors.read_bytes(self.entry, first_row * stride, n_rows * stride)
        rows = raw.view(dtype).reshape(n_rows, *self.shape[1:])
        if self.kind in floats.PLAIN:
            floats.check_finite(rows, self.kind, self.name)
        return rows


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A tensor of a type that has no meaning alone; to ask for its type is an error, to have it is none."""

    entry: Entry

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def shape(self) -> tuple[int, ...]:
        return self.entry.shape

    @property
    def kind(self) -> int:
        raise Unsupported(
            f"{self.name} is {self.entry.dtype}",
            "weights in F32, F16 and BF16 can be converted",
            "use the checkpoint that it was made from",
        )

    auto = kind

    def read(self, first_row: int, n_rows: int) -> NDArray[Any]:
        raise NotImplementedError(f"{self.name} has no kind")


def weights(checkpoint: Checkpoint) -> Mapping[str, Weights]:
    """Every tensor of the checkpoint by its name. Raises InputError, Unsupported."""
    return {name: _weight(entry) for name, entry in checkpoint.tensors.items()}


def _weight(entry: Entry) -> Weights:
    kind = _KINDS.get(entry.dtype)
    return Unreadable(entry) if kind is None else Plain(entry, kind)
