"""Text to calibrate on that the donor writes itself, in its own language and style."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from ...errors import LoadAborted, TemplateError
from ...session.model import Model
from ...session.session import Session
from .text import Text

N_CTX = 2048
MIN_ANSWER, MAX_ANSWER = 96, 512  # tokens
ROUNDS = 8  # times that all prompts are asked, with other seeds
LOOP = 3.0  # text that zlib shortens by more repeats itself; ordinary ones stay below 2.7
TEMPERATURE = 0.5  # small models derail with more, and run in circles with less

PROMPTS = (
    "Explain to a curious ten-year-old why the moon seems to change its shape.",
    "Write a Python function that merges two sorted lists, with comments and a short test.",
    "A shop sells pens at $1.35 and pads at $4.80. What do 14 pens and 9 pads cost? Show each step.",
    "Write a polite e-mail that asks a landlord to repair a heater before December 15, 2024.",
    "请用中文介绍三种适合初学者的运动，并说明各自的优点。",
    "List the advantages and drawbacks of electric cars in a table and draw a conclusion.",
    "Tell a short story about a postman who finds a letter addressed to himself.",
    "Write an SQL query for the five best-selling products of each month, and explain it.",
    "What happened in Europe between 1789 and 1815? Give a timeline with dates.",
    "用中文一步一步地解答：一辆汽车3小时行驶了216千米，照这样计算，行驶504千米需要几小时？",
    "Erkläre auf Deutsch, wie man einen Fahrradreifen flickt.",
    "Write a JavaScript class for a stack with push, pop and peek, and an HTML page that uses it.",
    "Summarize how vaccines work, then answer three questions that people often ask about them.",
    "Translate into French and Spanish: The library opens at nine and closes at half past six.",
)

Progress = Callable[[str, float], "bool | None"]


def written_by(
    donor: Path,
    n_tokens: int,
    *,
    prompts: Sequence[str] = PROMPTS,
    seed: int = 1,
    progress: Progress | None = None,
) -> list[Text]:
    """The donor's answers, one Text each, about `n_tokens` of its tokens; the same for a seed and a build.

    Sampled at TEMPERATURE, else as the model's own defaults say. Answers that run in circles or come twice
    count but are dropped, so a weak donor gives fewer. progress("writing", fraction): False stops.
    Raises what Model.load raises, and LoadAborted.
    """
    found: dict[str, Text] = {}
    done = 0
    most = min(MAX_ANSWER, max(MIN_ANSWER, n_tokens // max(1, len(prompts))))
    with Model.load(donor) as model, model.session(n_ctx=min(N_CTX, model.target.n_ctx_train)) as session:
        for i in range(ROUNDS * len(prompts)):
            if done >= n_tokens:
                break
            text, n = _answer(session, prompts[i % len(prompts)], min(most, n_tokens - done), seed + i)
            done += n
            if text and not _runs_in_circles(text):
                found.setdefault(text, Text("written", f"{donor.name}: answer {i + 1}", text))
            if progress is not None and progress("writing", min(1.0, done / n_tokens)) is False:
                raise LoadAborted("the writing was stopped", "nothing was kept", "run it again")
    return list(found.values())


def _answer(session: Session, prompt: str, max_tokens: int, seed: int) -> tuple[str, int]:
    """An answer, reasoning included, and its number of tokens (at least 1)."""
    try:
        messages = [{"role": "user", "content": prompt}]
        stream = session.chat(messages, max_tokens=max_tokens, temperature=TEMPERATURE, seed=seed)
    except TemplateError:  # a base model: it continues text
        start = f"{prompt}\n\n"
        stream = session.generate(start, max_tokens=max_tokens, temperature=TEMPERATURE, seed=seed)
    result = stream.result()
    parts = (result.reasoning.strip(), result.text.strip())
    return "\n\n".join(part for part in parts if part), max(1, result.stats.predicted_n)


def _runs_in_circles(text: str) -> bool:
    data = text.encode()
    return len(data) > LOOP * len(zlib.compress(data, 9))
