"""Answers of a target, several written at once and kept in a folder: what drafts are measured on."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gguftools import libllama
from gguftools.header import read_header
from gguftools.libllama import hardware
from gguftools.libllama.states import Reader
from gguftools.verbs.transplant.donor import Donor
from gguftools.verbs.transplant.evaluate.scoring import Head, OwnRows
from gguftools.verbs.transplant.evaluate.setup import CPU
from gguftools.verbs.transplant.evaluate.turns import asked
from gguftools.verbs.transplant.tokenizing import Tokenizer
from gguftools.vocab.special import eog

AT_ONCE = 8
N_CTX = AT_ONCE * 1024
MOST_HEAD = 2 << 30  # bytes of a head as float32


@dataclass(frozen=True, slots=True)
class Answer:
    """A prompt and what the target wrote, as its ids."""

    kind: str
    prompt: list[int]
    ids: list[int]


@dataclass(frozen=True, slots=True)
class Target:
    """A target that reads and writes; the scores are its states times its head."""

    model: Donor
    tokenizer: Tokenizer
    reader: Reader
    head: Head

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[Target]:
        model = Donor(read_header(path))
        weights = libllama.load(path, CPU, "auto", None)
        threads = hardware.physical_cores()
        with Tokenizer(model.vocab) as tokenizer, Reader(weights, N_CTX, threads, AT_ONCE) as reader:
            yield cls(model, tokenizer, reader, Head(OwnRows(model), MOST_HEAD))
        weights.close()
        model.close()


def prompts(folder: Path, name: str, n: int) -> list[tuple[str, str]]:
    """(kind, first turn) of the first n prompts of a file."""
    lines = (folder / f"{name}.jsonl").read_text("utf-8").splitlines()[:n]
    return [(name, json.loads(line)["turns"][0]) for line in lines]


def answers(
    target: Path, questions: Sequence[tuple[str, str]], temperature: float, n_tokens: int, cache: Path
) -> list[Answer]:
    """Answers of at most n_tokens, from the folder where they were written before."""
    key = json.dumps([target.name, target.stat().st_size, questions, temperature, n_tokens])
    path = cache / f"{target.stem}-{temperature}-{_digest(key)}.json"
    if not path.is_file():
        with Target.open(target) as model:
            found = write(model, questions, temperature, n_tokens)
        cache.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps([asdict(answer) for answer in found]))
    return [Answer(**answer) for answer in json.loads(path.read_text())]


def states(target: Path, found: Sequence[Answer], cache: Path) -> list[NDArray[np.float32]]:
    """What the target writes each token of its answers from, [n, n_embd] each; kept in the folder too."""
    key = json.dumps([target.name, target.stat().st_size, [asdict(answer) for answer in found]])
    path = cache / f"{target.stem}-states-{_digest(key)}.npz"
    if not path.is_file():
        with Target.open(target) as model:
            read = [
                model.reader.read([*answer.prompt, *answer.ids[:-1]])[len(answer.prompt) - 1 :]
                for answer in found
            ]
        np.savez(path, *[some.astype(np.float16) for some in read])
    with np.load(path) as data:
        return [data[f"arr_{i}"].astype(np.float32) for i in range(len(found))]


def target_head(target: Path) -> Head:
    """The output matrix of a target."""
    return Head(OwnRows(Donor(read_header(target))), MOST_HEAD)


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:12]


def write(
    target: Target, questions: Sequence[tuple[str, str]], temperature: float, n_tokens: int
) -> list[Answer]:
    """AT_ONCE answers grow together, by a token each."""
    starts = asked(target.tokenizer, [question for _, question in questions])
    assert starts is not None, "the target has no chat template"
    every = [Answer(kind, start, []) for (kind, _), start in zip(questions, starts, strict=True)]
    ends, rng = eog(target.model.vocab), np.random.default_rng(1)
    waiting, live = list(every), {}
    while waiting or live:
        for text in range(AT_ONCE):
            if text not in live and waiting:
                live[text] = waiting.pop(0)
        parts = []
        for text, answer in live.items():
            seen = len(answer.prompt) + len(answer.ids) - 1
            parts.append((text, seen, answer.ids[-1:]) if answer.ids else (text, 0, answer.prompt))
        logits = target.head.logits(target.reader.go_on(parts))
        for text, answer, row in zip(list(live), list(live.values()), logits, strict=True):
            answer.ids.append(_pick(row, temperature, rng))
            if len(answer.ids) >= n_tokens or answer.ids[-1] in ends:
                del live[text]
                done = len(every) - len(waiting) - len(live)
                print(f"\r{done} of {len(every)} answers", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return every


def _pick(logits: NDArray[np.float32], temperature: float, rng: np.random.Generator) -> int:
    """The likeliest at temperature 0; else one drawn, by the Gumbel trick."""
    if temperature:
        logits = logits / temperature + rng.gumbel(size=len(logits))
    return int(logits.argmax())
