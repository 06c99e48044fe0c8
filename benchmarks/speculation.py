"""What drafting brings, beside no draft, fixed lengths and other programs, as ratios within one run.

    python benchmarks/speculation.py [--only PART …] [--models DIR] [--prompts DIR] [--json FILE]
                                     [--llama-server PROGRAM] [--repeats N] [--number N]

Needs Qwen2.5-Coder-0.5B- and -1.5B-Instruct (Q4_K_M GGUFs) in --models; the target in F16 is made from the
latter, there too. Prompts: humaneval.jsonl (code) and mt-bench.jsonl (prose) in --prompts, --number of each;
128 tokens, greedy where nothing else is said. Weights are locked in memory. Parts:

    q4        Q4_K_M + 0.5B: auto against no draft, prompt by prompt
    f16       F16 + 0.5B: the same, and against fixed lengths
    copy      F16 alone, prompts whose answers repeat them: n-grams
    moe       a generated mixture of experts with its own Q4_0 as the draft (see moe.py)
    sampled   F16 + 0.5B at temperature 1: tokens per step by rule of acceptance
    server    llama-server (--llama-server) with the same files, its own draft settings
    lookup    llama_cpp.Llama with LlamaPromptLookupDecoding, the prompts of `copy`
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np
from copying import prompts as copy_prompts
from peers import lookup_way, running
from wide import f16

from gguftools import Model, bench
from gguftools.intervals import geometric_mean
from gguftools.verbs.bench.prompts import Prompt, read
from gguftools.verbs.bench.report import Report
from gguftools.verbs.bench.runs import Ask, Local, interleaved, speeds, warm_up

REPO = Path(__file__).resolve().parent.parent
HALF, BIG = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
MAX_TOKENS = 128
SWEEP = (1, 2, 3, 4, 6, 8)


@dataclass(frozen=True, slots=True)
class Row:
    """A measure, what it should be, what was found. met None: no target."""

    measure: str
    wanted: str
    found: str
    met: bool | None = None

    def __str__(self) -> str:
        mark = {True: "ok", False: "MISSED", None: ""}[self.met]
        return f"{self.measure:<60} {self.found}   [{self.wanted}] {mark}"


def both_kinds(options: argparse.Namespace) -> list[Prompt]:
    files = {"code": "humaneval.jsonl", "prose": "mt-bench.jsonl"}
    found = {kind: read(options.prompts / name)[: options.number] for kind, name in files.items()}
    return [Prompt(one.messages, kind) for kind, some in found.items() for one in some]


def load(target: Path, draft: Path | None, **more: object) -> Model:
    return Model.load(target, draft, load_mode="mlock", **more)  # type: ignore[arg-type]


def of_kind(report: Report, ratios: Sequence[float], kind: str) -> list[float]:
    return [ratio for ratio, prompt in zip(ratios, report.prompts, strict=True) if prompt.kind == kind]


def spread(ratios: Sequence[float]) -> str:
    mean = geometric_mean(np.array(ratios))
    return (
        f"median {median(ratios):.3f}, geometric mean {mean}, worst {min(ratios):.3f}, best {max(ratios):.3f}"
    )


def outside(report: Report, name: str) -> Row:
    """Time of the draft's side that is spent outside llama_decode."""
    share = report.time_share or {}
    rest = share.get("selection", 0.0) + share.get("elsewhere", 0.0)
    return Row(f"{name}: time outside llama_decode", "≤ 1 %", f"{rest:.2%}", rest <= 0.01)


def q4(options: argparse.Namespace) -> Iterator[Row]:
    with load(options.models / BIG, options.models / HALF) as model:
        report = measured(model, both_kinds(options), options.repeats)
    ratios = report.ratios(report.draft)
    good = median(ratios) >= 0.98 and min(ratios) >= 0.95
    yield Row("Q4_K_M + 0.5B: auto ÷ plain", "median ≥ 0.98, worst ≥ 0.95", spread(ratios), good)
    yield outside(report, "Q4_K_M + 0.5B")
    yield same(report, "Q4_K_M + 0.5B")


def f16_pair(options: argparse.Namespace) -> Iterator[Row]:
    with load(f16(options.models / BIG), options.models / HALF) as model:
        report = measured(model, both_kinds(options), 1, sweep=SWEEP)
    ratios = report.ratios(report.draft)
    for kind, least in (("code", 1.3), ("prose", 1.0)):
        some = of_kind(report, ratios, kind)
        mean = float(geometric_mean(np.array(some)).value)
        yield Row(f"F16 + 0.5B: auto ÷ plain, {kind}", f"≥ {least}", spread(some), mean >= least)
    means = {side.draft_tokens: report.speedup_of(side).value for side in report.sweep}
    fixed = max((length for length in means if length != "auto"), key=lambda length: means[length])
    share = means["auto"] / means[fixed]
    found = f"{share:.3f} ({', '.join(f'{n}: {value:.3f}' for n, value in means.items())})"
    yield Row(f"F16 + 0.5B: auto ÷ best fixed length ({fixed})", "≥ 0.97", found, share >= 0.97)
    yield outside(report, "F16 + 0.5B")
    yield same(report, "F16 + 0.5B")


def copy(options: argparse.Namespace) -> Iterator[Row]:
    with load(f16(options.models / BIG), None, ngram=True) as model:
        report = measured(model, copy_prompts(), 1)
    ratios = report.ratios(report.draft)
    mean = float(geometric_mean(np.array(ratios)).value)
    yield Row("F16 alone, answers that copy: n-grams ÷ plain", "≥ 1.6", spread(ratios), mean >= 1.6)
    yield outside(report, "F16 alone, n-grams")
    yield same(report, "F16 alone, n-grams")


def moe(options: argparse.Namespace) -> Iterator[Row]:
    from moe import pair

    target, draft = pair(options.models)
    texts = [
        Prompt(({"role": "user", "content": text},))
        for text in ("ab cd " * 20, "the quick brown " * 8, "x" * 90)
    ]
    with load(target, draft) as model:
        report = measured(model, texts, options.repeats)
    ratios = report.ratios(report.draft)
    yield Row("mixture of experts: auto ÷ plain", "worst ≥ 0.95", spread(ratios), min(ratios) >= 0.95)
    yield outside(report, "mixture of experts")


def sampled(options: argparse.Namespace) -> Iterator[Row]:
    """Three proposals a round, so that only the rule differs."""
    chains = {"all kept": {"top_k": 0, "top_p": 1.0}, "top-k 40, top-p 0.95": {"top_k": 40, "top_p": 0.95}}
    with load(f16(options.models / BIG), options.models / HALF, ngram=False) as model:
        for name, chain in chains.items():
            lengths = {
                rule: steps(model, both_kinds(options), rule, chain)
                for rule in ("match", "coupled", "reject")
            }
            for kind, least in (("code", 1.0), ("prose", 1.1)):
                for rule in ("coupled", "reject"):
                    found = lengths[rule][kind] / lengths["match"][kind]
                    wanted = f"≥ {least}" if rule == "coupled" and name == "all kept" else ""
                    yield Row(
                        f"temperature 1, {name}, {kind}: tokens a step, {rule} ÷ match",
                        wanted,
                        f"{found:.3f} ({lengths[rule][kind]:.3f} and {lengths['match'][kind]:.3f})",
                        found >= least if wanted else None,
                    )


def steps(model: Model, prompts: Sequence[Prompt], rule: str, chain: dict[str, float]) -> dict[str, float]:
    """Tokens per step by kind of prompt."""
    made: dict[str, list[tuple[int, int]]] = {}
    for prompt in prompts:
        with model.session(n_ctx=1024) as session:
            options = {
                "temperature": 1.0,
                "seed": 1,
                "max_tokens": MAX_TOKENS,
                "draft_tokens": 3,
                "draft_p_min": 0.0,
            }
            stats = session.chat(prompt.messages, accept=rule, **options, **chain).result().stats
        made.setdefault(prompt.kind, []).append((stats.predicted_n, stats.verify_steps))
    return {kind: sum(n for n, _ in some) / sum(m for _, m in some) for kind, some in made.items()}


def server(options: argparse.Namespace) -> Iterator[Row]:
    """Ours and llama-server's answer in turns; the other one waits and takes no time."""
    if options.llama_server is None:
        print("server: skipped, no --llama-server", file=sys.stderr)
        return
    prompts = both_kinds(options)
    for name, target, least in (
        ("F16", f16(options.models / BIG), 1.2),
        ("Q4_K_M", options.models / BIG, 1.6),
    ):
        draft = options.models / HALF
        with load(target, draft) as model, running(options.llama_server, target, draft) as peer:
            ways = [
                Local(model, prompts, MAX_TOKENS, 1024, temperature=0, seed=0).way("auto"),
                peer.way(prompts, 0, 0),
            ]
            ratios = compared(ways, len(prompts))
        mean = float(geometric_mean(np.array(ratios)).value)
        yield Row(f"{name} + 0.5B: ours ÷ llama-server's", f"≥ {least}", spread(ratios), mean >= least)


def lookup(options: argparse.Namespace) -> Iterator[Row]:
    target, prompts = f16(options.models / BIG), copy_prompts()
    with load(target, None, ngram=True) as model:
        local = Local(model, prompts, MAX_TOKENS, 2048, temperature=0, seed=0)
        ratios = compared([local.way("auto"), lookup_way(target, local.ids)], len(prompts))
    mean = float(geometric_mean(np.array(ratios)).value)
    yield Row("answers that copy: ours ÷ LlamaPromptLookupDecoding's", "≥ 1.5", spread(ratios), mean >= 1.5)


def compared(ways: Sequence[Ask], n: int) -> list[float]:
    """Speed of the first way over that of the second, prompt by prompt."""
    warm_up(ways, MAX_TOKENS, progress)
    first, second = (speeds(runs) for runs in interleaved(ways, n, MAX_TOKENS, 1, progress))
    return [a / b for a, b in zip(first, second, strict=True)]


def measured(model: Model, prompts: Sequence[Prompt], repeats: int, sweep: Sequence[int] = ()) -> Report:
    return bench(
        model, prompts=prompts, max_tokens=MAX_TOKENS, repeats=repeats, sweep=sweep, progress=progress
    )


def same(report: Report, name: str) -> Row:
    return Row(f"{name}: texts", "none differs", str(report.texts), report.texts["different"] == 0)


def progress(stage: str, fraction: float) -> None:
    print(f"\r{stage}: {fraction:4.0%} ", end="\n" if fraction >= 1 else "", file=sys.stderr, flush=True)


PARTS = {
    "q4": q4,
    "f16": f16_pair,
    "copy": copy,
    "moe": moe,
    "sampled": sampled,
    "server": server,
    "lookup": lookup,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--models", type=Path, default=REPO.parent / "assets" / "gguf")
    parser.add_argument("--prompts", type=Path, default=REPO.parent / "shared" / "data" / "prompts")
    parser.add_argument("--llama-server", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--number", type=int, default=6, help="prompts of each kind")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows: list[Row] = []
    for name in options.only:
        began = time.perf_counter()
        for row in PARTS[name](options):
            rows.append(row)
            print(row, flush=True)
        print(f"{name}: {time.perf_counter() - began:.0f} s", file=sys.stderr)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
