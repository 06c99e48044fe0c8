"""StringArray: a GGUF array of strings that stays as its bytes until an element is asked for."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from .. import _native


class StringArray(Sequence[bytes]):
    """Strings as a GGUF stores them: u64 length (little endian) and bytes, repeated.

    Elements are sliced when asked for; where they begin is found on first use (8 bytes each).
    Equal to another StringArray with the same bytes.
    """

    __slots__ = ("_count", "_starts", "raw")

    def __init__(self, raw: memoryview | bytes, count: int) -> None:
        """`raw` must hold `count` whole strings: ValueError otherwise, on first use."""
        self.raw = memoryview(raw)
        self._count = count
        self._starts: NDArray[np.uint64] | None = None

    @classmethod
    def pack(cls, texts: Iterable[bytes]) -> StringArray:
        """The array of these strings."""
        length = struct.Struct("<Q").pack
        parts = [length(len(text)) + text for text in texts]
        return cls(b"".join(parts), len(parts))

    @property
    def starts(self) -> NDArray[np.uint64]:
        """[count + 1]; text i is raw[starts[i] : starts[i + 1] - 8]. Read only."""
        if self._starts is None:
            starts = np.empty(self._count + 1, np.uint64)
            _native.string_starts(self.raw, starts)
            starts.flags.writeable = False
            self._starts = starts
        return self._starts

    @property
    def lengths(self) -> NDArray[np.int64]:
        """[count]: bytes of each string."""
        starts = self.starts.view(np.int64)
        return starts[1:] - starts[:-1] - 8

    def span(self, begin: int, end: int) -> memoryview:
        """The raw bytes (lengths and texts) of elements begin … end - 1."""
        starts = self.starts
        return self.raw[int(starts[begin]) - 8 : int(starts[end]) - 8]

    def find(self, text: bytes) -> int | None:
        """The first index that holds `text`, or None; no index of all strings is built."""
        starts = self.starts[:-1]
        hits = np.flatnonzero(self.lengths == len(text))
        data = np.frombuffer(self.raw, np.uint8)
        for i in range(min(len(text), 8)):
            hits = hits[data[starts[hits] + np.uint64(i)] == text[i]]
        return next((int(hit) for hit in hits if self[int(hit)] == text), None)

    def tolist(self, begin: int = 0, end: int | None = None) -> list[bytes]:
        """The strings begin … end - 1 (all by default), faster than one by one."""
        raw = bytes(self.raw)
        starts = self.starts[begin : None if end is None else end + 1].tolist()
        return [raw[a : b - 8] for a, b in pairwise(starts)]

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if isinstance(index, slice):
            begin, end, step = index.indices(self._count)
            return self.tolist(begin, max(begin, end)) if step == 1 else self.tolist()[index]
        if not -self._count <= index < self._count:
            raise IndexError(f"string {index} of {self._count}")
        index %= self._count
        starts = self.starts
        return bytes(self.raw[int(starts[index]) : int(starts[index + 1]) - 8])

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.tolist())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, StringArray):
            return self._count == other._count and bytes(self.raw) == bytes(other.raw)  # views compare slowly
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"StringArray({self._count} strings, {self.raw.nbytes} bytes)"

    def __reduce__(self) -> tuple[Any, ...]:
        return (StringArray, (bytes(self.raw), self._count))
