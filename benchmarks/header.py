"""How long a Kimi-K2-sized header takes to open: read_header against gguf.GGUFReader.

python benchmarks/header.py [FILE.gguf]
"""

from __future__ import annotations

import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gguftools import assets
from gguftools.header import StringArray, read_header
from gguftools.vocab import Vocab


def kimi_gguf(folder: Path) -> Path:
    """A vocab-only GGUF of Kimi-K2."""
    vocab = Vocab.from_checkpoint(assets.kimi_k2(folder))
    keys = [("general.architecture", "deepseek2", 8), *vocab.gguf_keys()]
    parts = [b"GGUF", struct.pack("<IQQ", 3, 0, len(keys))]
    parts += [_string(key) + _value(value, int(kind)) for key, value, kind in keys]
    path = folder / "kimi.gguf"
    path.write_bytes(b"".join(parts))
    return path


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _value(value: Any, kind: int) -> bytes:
    if isinstance(value, StringArray):
        return struct.pack("<IIQ", 9, kind, len(value)) + bytes(value.raw)
    if isinstance(value, str):
        return struct.pack("<I", kind) + _string(value)
    if isinstance(value, int):
        return struct.pack("<II", kind, value)
    return struct.pack("<IIQ", 9, kind, len(value)) + value.tobytes()


def median(call: Callable[[], object], times: int) -> float:
    """Seconds of the middle one of `times` calls."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def main() -> None:
    from gguf import GGUFReader

    with tempfile.TemporaryDirectory() as folder:
        path = Path(sys.argv[1]) if len(sys.argv) > 1 else kimi_gguf(Path(folder))
        ours = median(lambda: read_header(path), 21)

        def digest() -> None:
            vocab = Vocab.from_gguf(path)
            assert vocab.digest_ordinary
            assert vocab.digest_merges
            assert vocab.eog()

        digests = median(digest, 21)
        theirs = median(lambda: GGUFReader(path), 1)
    print(f"read_header                    {ours * 1000:9.1f} ms")
    print(f"Vocab, its digests and eog ids {digests * 1000:9.1f} ms")
    print(f"gguf.GGUFReader                {theirs * 1000:9.1f} ms, {theirs / ours:,.0f} times read_header")


if __name__ == "__main__":
    main()
