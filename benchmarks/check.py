"""How long `gguftools check` takes for a pair of Kimi-sized GGUFs: the whole command, interpreter included.

Writes two vocabulary files from Kimi-K2's tokenizer (splintr-rs) and runs the command 15 times.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import gguf

from gguftools import assets
from gguftools.vocab import Vocab

RUNS = 15


def write(vocab: Vocab, path: Path) -> None:
    writer = gguf.GGUFWriter(path, "deepseek2")
    for key, value, kind in vocab.gguf_keys():
        if isinstance(value, (str, int, float)):
            writer.add_key_value(key, value, gguf.GGUFValueType(int(kind)))
        else:
            writer.add_array(key, list(value.tolist()))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        vocab = Vocab.from_checkpoint(assets.kimi_k2(here / "kimi"))
        pair = [here / "target.gguf", here / "draft.gguf"]
        for path in pair:
            write(vocab, path)
        seconds = []
        for _ in range(RUNS):
            start = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "gguftools", "check", *map(str, pair)],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            seconds.append(time.perf_counter() - start)
    print(f"check of a Kimi-sized pair: median {statistics.median(seconds):.2f} s, best {min(seconds):.2f} s")


if __name__ == "__main__":
    main()
