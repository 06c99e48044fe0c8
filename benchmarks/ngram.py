"""Drafts copied from the text: how many are accepted, by match length, and what looking for them costs.

    python benchmarks/ngram.py [--prompts FOLDER] [--draft 8]

No model runs: Python's own sources and pages are read as Kimi-K2's tokens (which needs splintr-rs), and a
draft is accepted as far as it equals the text. A task is a prompt, from which may be copied, and an answer:

    code, prose   a module, a page of pydoc: the answer is how it goes on
    rewrite       a function, and the same without comments and with a parameter renamed
    quote         a page, and paragraphs of it with a few words before each
    long          60,000 tokens of other modules between the function and the answer of `rewrite`
    prompts       the questions in FOLDER in a row (no answers): plain text of strangers

The gain that is printed is that of a length chosen from `sure` alone, its truth counted beforehand per half
unit of log odds: what pacing can get once it has learned. Costs are those of a verify batch by width.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import itertools
import json
import math
import random
import tempfile
import textwrap
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

from gguftools import assets
from gguftools._native import Ngram
from gguftools.vocab import Vocab

REPO = Path(__file__).resolve().parent.parent
MODULES = [
    *(
        "argparse",
        "shutil",
        "tarfile",
        "zipfile",
        "smtplib",
        "ssl",
        "socket",
        "threading",
        "pathlib",
        "inspect",
    ),
    *("dataclasses", "typing", "email.message", "http.client", "logging", "pickle", "subprocess", "tempfile"),
    *("unittest.mock", "urllib.request", "xmlrpc.client"),
]
LEADS = ("The page says: ", "It notes that ", "Further down one reads: ", "It also explains: ", "Finally, ")
WIDTHS = np.arange(1, 34)
COSTS = {
    "F16, two cores": np.interp(WIDTHS, [1, 2, 4, 6, 8, 33], [1, 1.65, 2.05, 2.1, 2.85, 11]),
    "flat up to 8": np.interp(WIDTHS, [1, 8, 9, 33], [1, 1.15, 1.6, 2.5]),
    "experts in RAM": np.interp(WIDTHS, [1, 2, 4, 8, 33], [1, 1.79, 3.22, 6.04, 24]),
}
Task = tuple[list[int], list[int]]


class Rename(ast.NodeTransformer):
    """A parameter gets another name, wherever it is used."""

    def __init__(self, name: str) -> None:
        self.name = name

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(f"new_{node.id}", node.ctx) if node.id == self.name else node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(f"new_{node.arg}", node.annotation) if node.arg == self.name else node


def functions() -> Iterator[str]:
    """Sources of middle length of the modules' functions and methods."""
    for name in MODULES:
        module = importlib.import_module(name)
        classes = [c for c in vars(module).values() if inspect.isclass(c) and c.__module__ == name]
        for f in itertools.chain(*(vars(thing).values() for thing in (module, *classes))):
            if inspect.isfunction(f) and f.__module__ == name:
                source = textwrap.dedent(inspect.getsource(f))
                if 1000 < len(source) < 5000 and f.__code__.co_argcount > 1 and source.startswith("def"):
                    yield source


def rewritten(source: str) -> str:
    tree = ast.parse(source)
    names = [arg.arg for arg in ast.walk(tree) if isinstance(arg, ast.arg) and arg.arg not in ("self", "cls")]
    return f"Here it is:\n\n```python\n{ast.unparse(Rename(names[0]).visit(tree))}\n```\n"


def quoted(page: str, rng: random.Random) -> str:
    parts = [p for p in page.split("\n\n") if len(p) > 60]
    chosen = sorted(rng.sample(range(len(parts)), min(5, len(parts))))
    return "".join(f'{rng.choice(LEADS)}"{" ".join(parts[i].split())}"\n\n' for i in chosen)


def tasks(vocab: Vocab, prompts: Path) -> dict[str, list[Task]]:
    rng, encode = random.Random(4), vocab.encode
    sources = [encode(inspect.getsource(importlib.import_module(name))) for name in MODULES]
    pages = rng.sample([page for page in topics.values() if len(page) > 6000], 12)
    read = [encode(page) for page in pages]
    pairs = [(encode(s), encode(rewritten(s))) for s in rng.sample(list(functions()), 24)]
    modules = list(itertools.chain(*sources))[:60_000]
    out = {
        "code": [(ids[:1500], ids[1500:2100]) for ids in sources[:12]],
        "prose": [(ids[:800], ids[800:1300]) for ids in read],
        "rewrite": pairs,
        "quote": [(encode(page[:5000]), encode(quoted(page[:5000], rng))) for page in pages],
        "long": [(source + modules, answer) for source, answer in pairs[:12]],
    }
    lines = [
        line for file in sorted(prompts.glob("*.jsonl")) for line in file.read_text("utf-8").splitlines()
    ]
    texts = [turn for line in rng.sample(lines, min(80, len(lines))) for turn in json.loads(line)["turns"]]
    ids = encode("\n".join(texts))
    return out | ({"prompts": [(ids[:1000], ids[1000:6000])]} if texts else {})


@dataclass(slots=True)
class Seen:
    """What replaying some answers gave."""

    tokens: int = 0
    cost: float = 0.0
    rounds: int = 0
    drafted: int = 0
    checked: list[tuple[int, float, bool]] | None = (
        None  # matching tokens, sure, accepted; up to the first refused
    )


def odds(sure: float) -> int:
    return round(2 * math.log(sure / (1 - sure)))


def length(sures: list[float], truth: dict[int, float], cost: np.ndarray) -> int:
    """How many proposals give the most tokens for the cost."""
    best, at, chance, tokens = 1.0 / cost[0], 0, 1.0, 1.0
    for i, sure in enumerate(sures):
        chance *= truth.get(odds(sure), sure)
        tokens += chance
        if tokens / cost[i + 1] > best:
            best, at = tokens / cost[i + 1], i + 1
    return at


def replay(
    found: list[Task], n_draft: int, shortest: int, cost: np.ndarray, truth: dict[int, float] | None
) -> Seen:
    """All proposals are verified, or as many as pay by `truth`."""
    seen = Seen(checked=[])
    for prompt, answer in found:
        text = memoryview(array("i", prompt + answer))
        ngram, at, known = Ngram(len(text) + n_draft), len(prompt), 0
        while at < len(text):
            ngram.update(text[:at], known)
            ids, sures = ngram.next(n_draft)
            known, matched = at, ngram.matched
            n = 0 if matched < shortest else len(ids) if truth is None else length(sures, truth, cost)
            n = min(n, len(text) - at)
            agreed = next((i for i in range(n) if ids[i] != text[at + i]), n)
            seen.checked += [(matched + i, sures[i], i < agreed) for i in range(min(agreed + 1, n))]
            seen.rounds += 1
            seen.cost += cost[n]
            seen.drafted += n
            at += agreed + 1
        seen.tokens += len(answer)
    return seen


def truth_of(seen: Seen) -> dict[int, float]:
    groups: dict[int, list[bool]] = {}
    for _, sure, accepted in seen.checked:
        groups.setdefault(odds(sure), []).append(accepted)
    return {key: (sum(hits) + 1) / (len(hits) + 2) for key, hits in groups.items()}


def lookup(found: list[Task], n_draft: int) -> tuple[float, float]:
    """Tokens per round and milliseconds per draft of llama-cpp-python's own prompt lookup."""
    draft, rounds, tokens, spent = LlamaPromptLookupDecoding(num_pred_tokens=n_draft), 0, 0, 0.0
    for prompt, answer in found:
        text, at = np.array(prompt + answer), len(prompt)
        while at < len(text):
            start = time.perf_counter()
            ids = draft(text[:at])
            spent += time.perf_counter() - start
            wrong = [i for i, id in enumerate(ids) if at + i >= len(text) or id != text[at + i]]
            at += (wrong[0] if wrong else len(ids)) + 1
            rounds += 1
        tokens += len(answer)
    return tokens / rounds, 1e3 * spent / rounds


def acceptance(all_tasks: dict[str, list[Task]], n_draft: int) -> None:
    plain = COSTS["flat up to 8"]
    seen = {name: replay(found, n_draft, 1, plain, None) for name, found in all_tasks.items()}
    print(f"Tokens per round, {n_draft} proposals in each; llama-cpp-python's prompt lookup beside it:")
    for name, found in all_tasks.items():
        s, (tokens, ms) = seen[name], lookup(found, n_draft)
        print(f"  {name:<8} {s.tokens / s.rounds:5.2f}   {tokens:5.2f} ({ms:.2f} ms a draft)")
    print("\nProposals accepted, by the tokens that match before them:")
    edges = (1, 2, 3, 4, 5, 7, 9, 13, 17, 33, 65, 10**6)
    print(
        "          "
        + "".join(f"{low if low == high - 1 else f'{low}+':>7}" for low, high in itertools.pairwise(edges))
    )
    for name, s in seen.items():
        row = [[hit for n, _, hit in s.checked if low <= n < high] for low, high in itertools.pairwise(edges)]
        print(
            f"  {name:<8}"
            + "".join(f"{sum(hits) / len(hits):>7.0%}" if len(hits) > 9 else "      –" for hits in row)
        )
    print("\nProposals accepted, by `sure`:")
    edges = (0, 0.15, 0.25, 0.35, 0.5, 0.65, 0.75, 0.85, 0.9, 0.95, 0.98, 1)
    print("          " + "".join(f"{'<' + format(high, '.2f'):>7}" for high in edges[1:]))
    for name, s in seen.items():
        row = [
            [hit for _, said, hit in s.checked if low <= said < high]
            for low, high in itertools.pairwise(edges)
        ]
        print(
            f"  {name:<8}"
            + "".join(f"{sum(hits) / len(hits):>7.0%}" if len(hits) > 9 else "      –" for hits in row)
        )


def gains(all_tasks: dict[str, list[Task]], n_draft: int) -> None:
    """Which matches are long enough to propose."""
    for label, cost in COSTS.items():
        print(f"\nSpeed as a multiple of plain, {label}, with matches of at least so many tokens:")
        print("           " + "".join(f"{name:>9}" for name in all_tasks) + "     mean")
        for shortest in (1, 2, 3, 4, 6):
            row = []
            for found in all_tasks.values():
                truth = truth_of(replay(found, n_draft, shortest, cost, None))
                for _ in range(2):  # what is verified depends on the truth, and the other way round
                    seen = replay(found, n_draft, shortest, cost, truth)
                    truth = truth | truth_of(seen)
                row.append(seen.tokens * cost[0] / seen.cost)
            mean = math.exp(sum(map(math.log, row)) / len(row))
            print(f"  {shortest:>8} " + "".join(f"{gain:>9.3f}" for gain in row) + f"{mean:>9.3f}")


def speed(n_draft: int) -> None:
    rng, n = random.Random(1), 131_072
    texts = {
        "random ids": [rng.randrange(160_000) for _ in range(n)],
        "two ids at random": [rng.randrange(2) for _ in range(n)],
        "one id": [7] * n,
        "a period of 1,000": [i % 1000 for i in range(n)],
    }
    print("\n131,072 tokens: ns per token that comes, and goes; microseconds per draft with Python's call")
    for name, ids in texts.items():
        text = memoryview(array("i", ids))
        ngram = Ngram(n + n_draft)
        start = time.perf_counter()
        ngram.update(text, 0)
        came = time.perf_counter()
        ngram.update(text[: n // 2], n // 2)
        went = time.perf_counter()
        ngram.update(text, n // 2)
        before = time.perf_counter()
        for _ in range(1000):
            ngram.next(n_draft)
        each = (time.perf_counter() - before) * 1e3
        print(f"  {name:<18} {(came - start) / n * 1e9:6.0f} {(went - came) / n * 2e9:6.0f} {each:8.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prompts", type=Path, default=REPO.parent / "shared" / "data" / "prompts")
    parser.add_argument(
        "--draft",
        type=int,
        default=8,
        choices=range(1, len(WIDTHS)),
        metavar="N",
        help="most proposals of a round",
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        vocab = Vocab.from_checkpoint(assets.kimi_k2(Path(folder)))
        found = tasks(vocab, options.prompts)
    acceptance(found, options.draft)
    gains(found, options.draft)
    speed(options.draft)


if __name__ == "__main__":
    main()
