"""Weights: one tensor of a checkpoint as rows of numbers, whatever its encoding."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from numpy.typing import NDArray

from ..arch.nested import text_part
from ..errors import Unsupported
from . import floats, fp8, int4, safetensors
from .fp8 import Fp8
from .int4 import Int4
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
            "weights in F32, F16, BF16, FP8 with scales and packed int4 can be converted",
            "use the checkpoint that it was made from",
        )

    auto = kind

    def read(self, first_row: int, n_rows: int) -> NDArray[Any]:
        raise NotImplementedError(f"{self.name} has no kind")


def weights(checkpoint: Checkpoint) -> Mapping[str, Weights]:
    """Every tensor of the checkpoint by its name, scales with the weights that they belong to.

    Raises InputError for a quantized tensor whose parts do not fit together, Unsupported for a quantization
    that is not read.
    """
    tensors = checkpoint.tensors
    _known(text_part(checkpoint.config).get("quantization_config"))
    narrow: dict[str, Fp8] = fp8.find(tensors)
    packed: dict[str, Int4] = int4.find(tensors)
    of_others = {name + fp8.SCALE for name in narrow}
    of_others |= {part for base in packed for part in int4.parts(base)}
    plain = {name: _plain(entry) for name, entry in tensors.items() if name not in of_others}
    return {**plain, **narrow, **packed}


def settled(source: Weights, outtype: str) -> Weights:
    """A tensor as it is read for an outtype: int4 keeps its bits where Q4_0 can."""
    return source.settled(outtype) if isinstance(source, Int4) else source


def _plain(entry: Entry) -> Weights:
    kind = _KINDS.get(entry.dtype)
    return Unreadable(entry) if kind is None else Plain(entry, kind)


def _known(quantization: Any) -> None:
    """Raises Unsupported for a quantization other than the two that are read."""
    if not quantization:
        return
    found = quantization if isinstance(quantization, Mapping) else {"quant_method": quantization}
    method = found.get("quant_method")
    if method == "fp8":
        fp8.check_config(found)
    elif method == "compressed-tensors":
        int4.check_config(found)
    else:
        raise Unsupported(
            f"the checkpoint is quantized ({method})",
            "weights in F32, F16, BF16, FP8 in blocks and int4 of compressed-tensors can be converted",
            "use the checkpoint that it was made from; llama.cpp's convert_hf_to_gguf.py knows more",
        )
