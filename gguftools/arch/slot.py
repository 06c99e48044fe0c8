"""Slot: one tensor in both worlds, and the one change that lies between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Slot:
    """`gguf` and `hf` are its names, `shape` is outermost first (rows, width) or (length,).

    `head_dim` > 0: rows are regrouped inside each head, see `to_gguf`. `made` holds a tensor that the
    checkpoint has only as numbers in its config (float32, `hf` is empty).
    """

    gguf: str
    hf: str
    shape: tuple[int, ...]
    head_dim: int = 0
    made: NDArray[np.float32] | None = None


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
