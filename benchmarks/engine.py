"""Time that the engine spends outside llama_decode and llama_synchronize, as a share of the whole.

    python benchmarks/engine.py [--tokens 64] [--repeats 5] [--threads 2]

SmolLM2 (49,152 tokens; its own draft) and a model of its shape with random weights and 163,840 tokens; greedy
and a chain that begins with top-k; without a draft and with five proposals a round, each with its probability
computed. Ratios are medians over the repeats; the whole is taken by Python's clock, so wrapping counts.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

from gguftools import _native, assets, libllama
from gguftools.libllama.devices import Placement
from gguftools.session.sampling import Sampling, chain

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
import tiny_models

CPU = Placement(gpu_layers=0, devices=(), tensor_split=(), overrides=())
N_CTX, PROMPT = 1024, 32
CHAINS = {
    "greedy": Sampling(temperature=0.0),
    "top-k first": Sampling(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05),
    "penalties": Sampling(temperature=0.8, top_k=40, top_p=0.95, repeat_penalty=1.1, presence_penalty=0.1),
    "all kept": Sampling(temperature=1.0, top_k=0, top_p=1.0),
}


def measure(
    engine: _native.Engine, prompt: list[int], n: int, n_draft: int, p_min: float, made: object
) -> float:
    """Share of one answer's time that was spent outside decoding; the prompt is not counted."""
    engine.begin(prompt, chain=made.values, n_penalty=made.n_penalty, seed=7, rule="coupled")
    while len(set(engine.prefill())) > 1:
        pass
    before = engine.counters
    start, left = time.perf_counter(), n
    while left > 0:
        left -= len(engine.step(n_draft, p_min, left))
    whole = (time.perf_counter() - start) * 1e6
    after = engine.counters
    inside = sum(after[name] - before[name] for name in ("target_us", "draft_us"))
    return (whole - inside) / whole


def rows(path: Path, p_min: float, options: argparse.Namespace) -> None:
    weights = libllama.load(path, CPU, "auto", None)
    wanted = libllama.ContextParams(n_ctx=N_CTX, threads=options.threads, n_outputs=17)
    target, draft = libllama.Context(weights, wanted), libllama.Context(weights, wanted)
    size = {"n_ctx": N_CTX, "n_batch": target.n_batch, "n_ubatch": target.n_ubatch}
    engine = _native.Engine(
        target.handle, draft.handle, n_vocab=weights.n_vocab, draft_n_vocab=weights.n_vocab,
        eog=bytes(weights.n_vocab), **size, **{f"draft_{name}": value for name, value in size.items()},
    )  # fmt: skip
    for name, values in CHAINS.items():
        made = chain(values, 7, weights, N_CTX, None)
        for n_draft in (0, 5):
            shares = []
            for repeat in range(options.repeats):
                prompt = [(repeat * 1009 + i * 97) % 40000 for i in range(PROMPT)]
                shares.append(measure(engine, prompt, options.tokens, n_draft, p_min, made))
            verdict = "ok" if statistics.median(shares) <= 0.01 else "above 1 %"
            print(
                f"{weights.n_vocab:>9,}  {name:<12} {n_draft:>6}  {statistics.median(shares):>8.2%}"
                f"  {min(shares):>8.2%}  {max(shares):>8.2%}  {verdict}"
            )
    engine.close()
    target.close()
    draft.close()
    weights.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    print("   tokens  chain         drafts   outside       min       max")
    rows(assets.smollm2(), 0.5, options)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random.gguf"
        rows(tiny_models.llama(path, 163_840, n_embd=576, n_layer=30, n_ff=1536), 0.0001, options)


if __name__ == "__main__":
    main()
