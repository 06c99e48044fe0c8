"""Latent attention's kv_b as llama.cpp wants it: apart for keys and values, the keys' part turned over.

In the checkpoint each head has `nope` rows that make its keys and then `value` rows that make its values, all
as wide as the latent vector. llama.cpp multiplies queries with the first part, so it needs its transpose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class KeyPart:
    """attn_k_b: (heads, latent, nope), each head's first rows transposed."""

    nope: int
    value: int
    exact: bool = True

    @property
    def unit(self) -> int:
        return self.nope + self.value

    def shape_of_source(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        heads, latent, _ = shape
        return (heads * self.unit, latent)

    def __call__(self, rows: NDArray[Any]) -> NDArray[Any]:
        heads: NDArray[Any] = rows.reshape(-1, self.unit, rows.shape[-1])
        turned: NDArray[Any] = heads[:, : self.nope].swapaxes(1, 2)
        return turned


@dataclass(frozen=True, slots=True)
class ValuePart:
    """attn_v_b: (heads, value, latent), each head's last rows."""

    nope: int
    value: int
    exact: bool = True

    @property
    def unit(self) -> int:
        return self.nope + self.value

    def shape_of_source(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        heads, _, latent = shape
        return (heads * self.unit, latent)

    def __call__(self, rows: NDArray[Any]) -> NDArray[Any]:
        heads: NDArray[Any] = rows.reshape(-1, self.unit, rows.shape[-1])
        return heads[:, self.nope :]
