"""Time and memory of convert: `python benchmarks/convert.py KIMI_FOLDER [GIGABYTES]`.

KIMI_FOLDER is made by gguftools.assets.kimi_k2. Prints the vocabulary alone (goal: at most 3 s). Then a Llama
of so many GB (2) in BF16 with a small vocabulary: medians over rounds in which `cp` of the same bytes and
each conversion take turns, all until the bytes are on the disk; goal: BF16 and F16 at 70 % of cp's speed or
more. Peak memory above the start as so many chunks. Last, Q8_0 and Q4_0 beside the gguf package's quantizer
(goal: 3 times its speed). The files lie where it is run, and are removed.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
import tiny

from gguftools import arch
from gguftools.checkpoint import floats
from gguftools.checkpoint.safetensors import table_bytes
from gguftools.header import read_header
from gguftools.verbs.convert import convert
from gguftools.verbs.convert.pieces import CHUNK

ROUNDS = 7
OUTTYPES = ("bf16", "f16", "q8_0", "q4_0", "f32")


def config(gigabytes: float) -> dict[str, Any]:
    """A Llama of about so many GB in BF16: 32 MB a layer and a half."""
    layers = max(round(gigabytes * 1e9 / 100.7e6), 1)
    sizes = {"vocab_size": 8192, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": layers}
    return {**tiny.LLAMA, **sizes, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128}


def main(kimi: Path, gigabytes: float) -> None:
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        folder = Path(name)
        print(f"vocabulary alone: {run('vocab', kimi, folder / 'v.gguf')[0]:.2f} s")
        nbytes, largest = run("make", folder / "hf", gigabytes)
        print(f"a checkpoint of {nbytes / 1e9:.2f} GB, largest tensor {largest / 1e6:.0f} MB")
        seconds: dict[str, list[float]] = {kind: [] for kind in ("cp", *OUTTYPES)}
        peaks: dict[str, float] = {}
        for _ in range(ROUNDS):
            seconds["cp"].append(copied(folder))
            for kind in OUTTYPES:
                took, peaks[kind] = run("convert", folder / "hf", folder / "m.gguf", kind)
                seconds[kind].append(took)
                header = read_header(folder / "m.gguf").data_offset
                (folder / "m.gguf").unlink()
        report(seconds, peaks, header)
    quantizers()


def report(seconds: dict[str, list[float]], peaks: dict[str, float], header: int) -> None:
    copy = statistics.median(seconds["cp"])
    print(f"cp and sync: {copy:.2f} s ({min(seconds['cp']):.2f} to {max(seconds['cp']):.2f})")
    for kind in OUTTYPES:
        took = statistics.median(seconds[kind])
        paired = statistics.median(c / s for c, s in zip(seconds["cp"], seconds[kind], strict=True))
        print(
            f"{kind}: {took:.2f} s ({min(seconds[kind]):.2f} to {max(seconds[kind]):.2f}),"
            f" {copy / took:.0%} of cp's speed (round by round {paired:.0%});"
            f" peak {peaks[kind] / 1e6:.0f} MB = header {header / 1e6:.1f} MB"
            f" + {(peaks[kind] - header) / CHUNK:.1f} chunks"
        )


def copied(folder: Path) -> float:
    """Seconds that `cp` takes until the bytes are on the disk."""
    start = time.perf_counter()
    subprocess.run(["cp", folder / "hf" / "model.safetensors", folder / "copy"], check=True)
    with (folder / "copy").open("rb") as file:
        os.fsync(file.fileno())
    took = time.perf_counter() - start
    (folder / "copy").unlink()
    return took


def quantizers() -> None:
    """BF16 rows to block types: this package's pass and the gguf package's quantizer, in turns."""
    from gguf import quants

    random = np.random.default_rng(0)
    rows = (random.standard_normal((1024, 4096), np.float32).view("<u4") >> 16).astype("<u2")
    for kind, name in ((floats.Q8_0, "Q8_0"), (floats.Q4_0, "Q4_0")):
        ours, theirs = [], []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            made = floats.recode(rows, floats.BF16, kind)
            middle = time.perf_counter()
            wide = (rows.astype(np.uint32) << np.uint32(16)).view(np.float32)
            wanted = quants.quantize(wide, quants.GGMLQuantizationType(kind))
            theirs.append(time.perf_counter() - middle)
            ours.append(middle - start)
            assert (made == wanted).all()
        ratio = statistics.median(theirs) / statistics.median(ours)
        speed = rows.nbytes / statistics.median(ours) / 1e9
        print(f"bf16 to {name}: {speed:.1f} GB/s of source, {ratio:.0f} times the numpy quantizer's speed")


def make(folder: Path, gigabytes: float) -> tuple[int, int]:
    """Writes the checkpoint with random BF16 weights; returns its bytes and those of the largest tensor."""
    tiny.write_tokenizer(folder)
    wanted = config(gigabytes)
    (folder / "config.json").write_text(json.dumps(wanted))
    random = np.random.default_rng(0)
    slots = arch.for_config(wanted).slots(wanted)
    sizes = [int(np.prod(slot.shape)) * 2 for slot in slots]
    some = random.standard_normal(max(sizes) // 2, dtype=np.float32) * np.float32(0.02)
    bits = (some.view("<u4") >> 16).astype("<u2")
    with (folder / "model.safetensors").open("wb") as file:
        file.write(table_bytes([(str(s.hf), "BF16", s.shape, n) for s, n in zip(slots, sizes, strict=True)]))
        for size in sizes:
            file.write(bits[: size // 2].data)
    return sum(sizes), max(sizes)


def run(task: str, *args: object) -> list[float]:
    """The numbers that a task prints in a process of its own; this one stays small, its peak is inherited."""
    command = [sys.executable, __file__, "--child", task, *map(str, args)]
    return [
        float(n) for n in subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    ]


def child(task: str, *args: str) -> None:
    if task == "make":
        print(*make(Path(args[0]), float(args[1])))
        return
    import gguf.quants  # noqa: F401 - counted as before the conversion

    before = resident()
    start = time.perf_counter()
    if task == "vocab":
        convert(*args, vocab_only=True)
    else:
        convert(args[0], args[1], outtype=args[2])  # type: ignore[arg-type]
    print(time.perf_counter() - start, resident() - before)


def resident() -> int:
    """The largest resident set so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    else:
        main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 2.0)
