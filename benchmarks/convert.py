"""Time and memory of convert: `python benchmarks/convert.py KIMI_FOLDER`, made by gguftools.assets.kimi_k2.

Prints the vocabulary alone (goal: at most 3 s), then a Qwen2 of 0.3 billion weights with that vocabulary in
BF16 to each output type: seconds, share of a plain copy's speed, and the peak memory above the start.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from gguftools import arch
from gguftools.checkpoint.safetensors import table_bytes
from gguftools.header import read_header
from gguftools.verbs.convert import convert

CONFIG = {
    "architectures": ["Qwen2ForCausalLM"],
    "vocab_size": 163840,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 12,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}


def main(kimi: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(f"vocabulary alone: {timed(kimi, folder / 'v.gguf', 'vocab')[0]:.2f} s")
        nbytes, largest = run("make", folder / "hf")
        start = time.perf_counter()
        shutil.copyfile(folder / "hf" / "model.safetensors", folder / "copy")
        with (folder / "copy").open("rb") as file:
            subprocess.run(["sync", file.name], check=True)
        copy = time.perf_counter() - start
        print(f"copy of {nbytes / 1e6:.0f} MB: {copy:.2f} s; largest tensor {largest / 1e6:.0f} MB")
        for outtype in ("bf16", "f16", "f32", "q8_0", "q4_0"):
            seconds, peak = timed(folder / "hf", folder / "m.gguf", outtype, kimi)
            header = read_header(folder / "m.gguf").data_offset
            share = f"{copy / seconds:.0%} of a copy's speed"
            print(
                f"{outtype}: {seconds:.2f} s ({share}), peak {peak / 1e6:.0f} MB"
                f" = header {header / 1e6:.0f} MB + {(peak - header) / largest:.2f} x the largest tensor"
            )


def make(folder: Path) -> tuple[int, int]:
    """Writes the checkpoint with random BF16 weights; returns its bytes and those of the largest tensor."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    random = np.random.default_rng(0)
    slots = arch.for_config(CONFIG).slots(CONFIG)
    sizes = [int(np.prod(slot.shape)) * 2 for slot in slots]
    with (folder / "model.safetensors").open("wb") as file:
        file.write(table_bytes([(s.names[0], "BF16", s.shape, n) for s, n in zip(slots, sizes, strict=True)]))
        for slot in slots:
            values = random.standard_normal(slot.shape, dtype=np.float32) * np.float32(0.02)
            file.write((values.view("<u4") >> 16).astype("<u2").data)
    return sum(sizes), max(sizes)


def timed(src: Path, out: Path, outtype: str, kimi: Path | None = None) -> tuple[float, int]:
    """(seconds, peak bytes above those before the conversion)."""
    seconds, peak = run("convert", src, out, outtype, kimi or "")
    return seconds, int(peak)


def run(task: str, *args: object) -> list[float]:
    """The numbers that a task prints in a process of its own; this one stays small, its peak is inherited."""
    command = [sys.executable, __file__, "--child", task, *map(str, args)]
    return [
        float(n) for n in subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    ]


def child(task: str, *args: str) -> None:
    if task == "make":
        print(*make(Path(args[0])))
        return
    src, out, outtype, kimi = args
    import gguf.quants  # noqa: F401 - counted as before the conversion

    before = resident()
    start = time.perf_counter()
    if outtype == "vocab":
        convert(src, out, vocab_only=True)
    else:
        convert(src, out, outtype=outtype, tokenizer=kimi, force=True)  # type: ignore[arg-type]
    print(time.perf_counter() - start, resident() - before)


def resident() -> int:
    """The largest resident set so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    else:
        main(Path(sys.argv[1]))
