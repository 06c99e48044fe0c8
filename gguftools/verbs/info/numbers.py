"""Numbers out of a header that is not trusted."""

from __future__ import annotations

import numpy as np

from ...errors import FormatError
from ...header import Header

MAX_NUMBER = 1 << 24  # of heads, of a width, of a window: above any model


class Numbers:
    """Reads `ARCHITECTURE.key`. Raises FormatError for what is no number or cannot be one of a model."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.architecture = header.architecture

    def one(self, key: str, default: int = 0, high: int = MAX_NUMBER) -> int:
        """The number under `key`; of an array the largest."""
        return max(self.each(key, 1, default, high))

    def each(self, key: str, n: int, default: int = 0, high: int = MAX_NUMBER) -> tuple[int, ...]:
        """n numbers, one a layer: those of an array, or one for all."""
        name = f"{self.architecture}.{key}"
        value = self.header.keys.get(name)
        if value is None:
            return (default,) * n
        whole = isinstance(value, np.ndarray) and value.size > 0 and value.dtype.kind in "iub"
        found = value.tolist() if whole and isinstance(value, np.ndarray) else [value]
        if not all(isinstance(i, int) and 0 <= i <= high for i in found):
            why = f"{name} is {str(value)[:40]}, which is not a number from 0 to {high:,}"
            raise FormatError(self.header.path, self.header.where[name], why)
        numbers = tuple(int(i) for i in found if isinstance(i, int))
        if len(numbers) == 1 or n == 1:
            return (max(numbers),) * n
        if len(numbers) < n:
            why = f"{name} has {len(numbers)} numbers for {n} layers"
            raise FormatError(self.header.path, self.header.where[name], why)
        return numbers[:n]

    def is_array(self, key: str) -> bool:
        """Whether there is an array under `key`."""
        return isinstance(self.header.keys.get(f"{self.architecture}.{key}"), np.ndarray)
