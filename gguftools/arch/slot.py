"""Slot: one tensor in both worlds, and the one change that lies between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray


class Change(Protocol):
    """What turns rows of the checkpoint into rows of the GGUF, a piece of whole units at a time."""

    @property
    def unit(self) -> int:
        """Rows of the source that belong together."""

    @property
    def exact(self) -> bool:
        """It only moves numbers, so it is given any plain type's bits; else it gets and gives float32."""

    def shape_of_source(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape in the checkpoint of what has `shape` in the GGUF, both outermost first."""

    def __call__(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Some units of source rows as the GGUF has them: the parts of all pieces follow one another."""


@dataclass(frozen=True, slots=True)
class Slot:
    """`gguf` and `hf` are its names, `shape` is the GGUF's, outermost first: (rows, width) or (length,).

    `hf` may be several names: equal tensors stacked along a new outermost axis, as experts are.
    `head_dim` > 0: rows are regrouped inside each head, see `to_gguf`. `made` holds a tensor that the
    checkpoint has only as numbers in its config (`hf` is empty). `change` stands between the two worlds.
    `kind` is the ggml type of a tensor that has no choice (a router's F32; I64 for whole numbers).
    """

    gguf: str
    hf: str | tuple[str, ...]
    shape: tuple[int, ...]
    head_dim: int = 0
    made: NDArray[Any] | None = None
    change: Change | None = None
    kind: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The tensors of the checkpoint that it is made of."""
        if self.made is not None:
            return ()
        return (self.hf,) if isinstance(self.hf, str) else self.hf

    @property
    def source_shape(self) -> tuple[int, ...]:
        """The shape that each of `names` has in the checkpoint."""
        shape = self.shape if isinstance(self.hf, str) else self.shape[1:]
        return shape if self.change is None else self.change.shape_of_source(shape)

    @property
    def unit(self) -> int:
        """Rows of the source that must be read together."""
        return self.change.unit if self.change is not None else self.head_dim or 1


def to_gguf(rows: NDArray[Any], head_dim: int) -> NDArray[Any]:
    """Whole heads of a q or k projection: RoPE pairs (i, i + head_dim/2) become the neighbours (2i, 2i + 1).

    llama.cpp rotates neighbours for this architecture, Hugging Face halves.
    """
    turned: NDArray[Any] = rows.reshape(-1, 2, head_dim // 2, *rows.shape[1:]).swapaxes(1, 2)
    return turned.reshape(rows.shape)


def to_hf(rows: NDArray[Any], head_dim: int) -> NDArray[Any]:
    """The way back from `to_gguf`."""
    turned: NDArray[Any] = rows.reshape(-1, head_dim // 2, 2, *rows.shape[1:]).swapaxes(1, 2)
    return turned.reshape(rows.shape)
