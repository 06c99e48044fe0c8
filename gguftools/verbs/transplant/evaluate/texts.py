"""The texts that a draft is measured on, none of which it is calibrated on; they come with the package."""

from __future__ import annotations

from .... import recipes
from ..number_text import number_text
from ..text import BETWEEN, FILES, Text

KINDS = ("english", "code", "numbers", "chinese")
NUMBERS_SEED = 20_251  # calibration draws its numbers with another


def held_out(kind: str, nbytes: int) -> list[Text]:
    """The first documents of a kind with at least `nbytes` bytes together; all if they have fewer."""
    found: list[Text] = []
    for i, text in enumerate(_documents(kind, nbytes)):
        if nbytes <= 0:
            break
        found.append(Text(kind, f"{kind} {i + 1}", text))
        nbytes -= len(text.encode())
    return found


def _documents(kind: str, nbytes: int) -> list[str]:
    if kind == "numbers":
        return number_text(nbytes, NUMBERS_SEED)
    return recipes.text(f"evaluation-{FILES[kind]}.txt").strip().split(BETWEEN)


def answers() -> list[tuple[str, str]]:
    """(question, answer) pairs, short."""
    pairs = [entry.split("\n", 1) for entry in recipes.text("evaluation-turns.txt").strip().split("\n\n")]
    return [(question, answer) for question, answer in pairs]
