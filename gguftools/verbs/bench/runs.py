"""One prompt answered once: what was measured, and how it is measured here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from ...errors import TemplateError
from ...header import read_header
from ...libllama import hardware
from ...session.results import Round
from .prompts import Prompt

if TYPE_CHECKING:
    from ...session.model import Model

WARM_UP = 16  # tokens of an answer that is thrown away

Length = int | str  # tokens to draft per step: a number or "auto"


@dataclass(frozen=True, slots=True)
class Run:
    """n tokens in ms milliseconds after the prompt's prompt_ms.

    Counts of drafted tokens and steps are None where a server does not tell them; tokens and rounds are empty
    for a server.
    """

    text: str
    n: int
    ms: float
    prompt_ms: float
    draft_n: int | None = None
    draft_n_accepted: int | None = None
    verify_steps: int | None = None
    draft_failed: str = ""  # why the draft was switched off
    tokens: tuple[int, ...] = ()
    rounds: tuple[Round, ...] = ()

    @property
    def tokens_per_second(self) -> float:
        return 1000 * self.n / self.ms if self.ms > 0 else 0.0


def load_mode(target: Path) -> str:
    """How weights that are measured are best loaded: locked, since mapped ones that lie idle may be dropped.

    Only where they take at most two thirds of the free memory, else as libllama chooses.
    """
    files = read_header(target).files
    nbytes = sum(file.stat().st_size for file in files)
    return "mlock" if 3 * nbytes <= 2 * hardware.free_memory() else "auto"


# Of one way to answer: the runs of each prompt, in the prompts' order.
Runs = list[list[Run]]
Ask = Callable[[int, int], Run]  # (index of the prompt, most tokens) → the answer
Progress = Callable[[str, float], "bool | None"]


def warm_up(ways: Sequence[Ask], max_tokens: int, progress: Progress | None) -> None:
    """Each way answers the first prompt briefly, for nothing: weights come into memory, kernels are made."""
    for i, ask in enumerate(ways):
        if progress:
            progress("warming up", i / len(ways))
        ask(0, min(WARM_UP, max_tokens))


def interleaved(
    ways: Sequence[Ask], n_prompts: int, max_tokens: int, repeats: int, progress: Progress | None
) -> list[Runs]:
    """Asks each prompt in every way, in turns that begin with the first and with the last way (A B B A).

    A machine that gets slower or faster meanwhile then does so for all of them.
    """
    show = progress or (lambda _stage, _fraction: None)
    total = len(ways) * n_prompts * repeats
    found: list[Runs] = [[[] for _ in range(n_prompts)] for _ in ways]
    done = 0
    for prompt in range(n_prompts):
        for repeat in range(repeats):
            order = list(range(len(ways)))
            for way in order if (prompt * repeats + repeat) % 2 == 0 else reversed(order):
                show("measuring", done / total)
                found[way][prompt].append(ways[way](prompt, max_tokens))
                done += 1
    show("measuring", 1.0)
    return found


def speeds(runs: Runs) -> list[float]:
    """Tokens per second of each prompt: the median of its repeats."""
    return [median(run.tokens_per_second for run in repeats) for repeats in runs]


def overall(runs: Runs) -> float:
    """Tokens per second over all prompts, each at its median speed."""
    pairs = [(repeats[0].n, speed) for repeats, speed in zip(runs, speeds(runs), strict=True) if speed > 0]
    seconds = sum(n / speed for n, speed in pairs)
    return sum(n for n, _ in pairs) / seconds if seconds else 0.0


class Local:
    """Answers with a loaded model, each time with contexts of its own.

    ids: the prompts' tokens. n_ctx: what the longest prompt and its answer need, when not given.
    """

    def __init__(
        self, model: Model, prompts: Sequence[Prompt], max_tokens: int, n_ctx: int | None, **request: Any
    ) -> None:
        think = request.pop("think", None)
        self.ids = [_encoded(model, prompt, think) for prompt in prompts]
        needed = max(map(len, self.ids)) + max_tokens
        self.n_ctx = n_ctx or -(-needed // 256) * 256
        self._model = model
        self._request = request

    def way(self, draft_tokens: Length) -> Ask:
        """Asks with this many drafted tokens per step, 0 for none."""

        def ask(prompt: int, max_tokens: int) -> Run:
            with self._model.session(n_ctx=self.n_ctx) as session:
                request = {**self._request, "max_tokens": max_tokens, "draft_tokens": draft_tokens}
                stream = session.generate(self.ids[prompt], **request)
                result = stream.result()
            stats = result.stats
            return Run(
                text=result.text,
                n=stats.predicted_n,
                ms=stats.predicted_ms,
                prompt_ms=stats.prompt_ms,
                draft_n=stats.draft_n,
                draft_n_accepted=stats.draft_n_accepted,
                verify_steps=stats.verify_steps,
                draft_failed=stats.draft_failed,
                tokens=result.tokens,
                rounds=tuple(stream.rounds),
            )

        return ask


def _encoded(model: Model, prompt: Prompt, think: bool | None) -> list[int]:
    """By the model's chat template; the bare text where it has none."""
    try:
        template = model.template()
    except TemplateError:
        return model.encoder.encode(prompt.text)
    return model.encoder.encode_chat(template.render(prompt.messages, think=think))
