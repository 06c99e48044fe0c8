"""The text that a draft is calibrated on: our own in models/, generated numbers, what Python brings along.

Two uses: counts of tokens need no model and take megabytes; the donor's pass over text takes a small mix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module, util

from ... import recipes
from .number_text import number_text

SHARES = {"english": 0.35, "code": 0.25, "numbers": 0.20, "chinese": 0.15, "other": 0.05}
COUNTED = {"english": 0.25, "code": 0.5, "numbers": 0.125, "chinese": 0.1, "other": 0.025}
MAX_COUNTED = 2_000_000  # characters
FILES = {"english": "en", "code": "code", "chinese": "zh", "other": "other"}
BETWEEN = "\n\n\n\n"  # three blank lines divide the documents of a file; code has up to two
PASSAGE = 3000  # characters; a longer text is taken in such parts
NUMBERS_PER_TOKEN = 4  # characters of generated text per token asked for, more than any vocabulary needs
MODULES = (
    "argparse ast calendar configparser csv dataclasses datetime difflib enum fractions functools heapq "
    "http.client http.cookies imaplib inspect json.decoder json.encoder logging optparse pathlib pdb pickle "
    "random shutil smtplib statistics string subprocess tarfile textwrap threading tokenize traceback turtle "
    "typing unittest.case urllib.parse urllib.request uuid zipfile"
)

Count = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Text:
    """A document or a part of one. kind: a key of SHARES, or "user", "written". name: where it comes from."""

    kind: str
    name: str
    text: str


def model_texts(n_tokens: int, count: Count) -> list[Text]:
    """The mix for the donor's pass: SHARES of `n_tokens`, our own text before Python's.

    count: tokens that a text has in the donor's vocabulary. Fewer tokens where a kind runs out.
    """
    found = []
    for kind, share in SHARES.items():
        goal = round(share * n_tokens)
        ours = take(packaged(kind, NUMBERS_PER_TOKEN * goal), goal, count)
        found += ours
        left = goal - sum(count(text.text) for text in ours)
        if left > goal // 50:
            found += take(list(from_python(kind)), left, count)
    return found


def counting_texts(max_chars: int | None = None) -> list[Text]:
    """All there is to count tokens on: at most `max_chars` characters (MAX_COUNTED), COUNTED of each kind."""
    found = []
    for kind, share in COUNTED.items():
        room = round(share * (MAX_COUNTED if max_chars is None else max_chars))
        for text in [*packaged(kind, room), *from_python(kind)]:
            part = text.text[:room]
            if part:
                found.append(Text(kind, text.name, part))
            room -= len(part)
    return found


def packaged(kind: str, n_chars: int) -> list[Text]:
    """The documents of models/calibration-*.txt, all; or about `n_chars` characters of generated numbers."""
    if kind == "numbers":
        return [Text(kind, "generated", text) for text in number_text(n_chars)]
    name = f"calibration-{FILES[kind]}.txt"
    return [Text(kind, name, text) for text in recipes.text(name).strip().split(BETWEEN)]


def from_python(kind: str) -> Iterator[Text]:
    """The running Python's language reference (English) or modules (code); nothing where it lacks them."""
    if kind == "english":
        for topic, text in sorted(_topics().items()):
            yield Text(kind, f"Python's help on {topic}", text.strip())
    if kind == "code":
        for module in MODULES.split():
            source = _source(module)
            if source:
                yield Text(kind, f"Python's module {module}", source)


@cache
def _topics() -> dict[str, str]:
    try:  # by name, so that a program that is frozen with gguftools need not carry it
        topics: dict[str, str] = import_module("pydoc_data.topics").topics
    except ImportError:
        return {}
    return topics


@cache
def _source(module: str) -> str:
    """Empty where it has none: a frozen program, an installation of .pyc files alone."""
    try:
        spec = util.find_spec(module)
        get_source = getattr(spec.loader if spec else None, "get_source", None)
        return (get_source(module) or "") if get_source else ""
    except (ImportError, OSError, SyntaxError, ValueError):
        return ""


def take(texts: Sequence[Text], n_tokens: int, count: Count) -> list[Text]:
    """Parts of `texts`, from all over them and in their order, with about `n_tokens` tokens together.

    Each part has at most PASSAGE characters and ends with a line where it can. The last is cut to fit.
    """
    parts = [part for text in texts for part in _passages(text)]
    taken: dict[int, Text] = {}
    for i in sorted(range(len(parts)), key=_scattered):
        if n_tokens < 1:
            break
        part = parts[i]
        size = count(part.text)
        if size > n_tokens:
            part = Text(part.kind, part.name, part.text[: len(part.text) * n_tokens // size])
        taken[i] = part
        n_tokens -= size
    return [taken[i] for i in sorted(taken) if taken[i].text]


def _scattered(i: int) -> int:
    """Fibonacci hashing: in the order of this key, the first n of many indices lie evenly among all."""
    return i * 2654435769 % (1 << 32)


def _passages(text: Text) -> Iterator[Text]:
    rest = text.text
    while len(rest) > PASSAGE:
        end = rest.rfind("\n", PASSAGE // 2, PASSAGE) + 1 or PASSAGE
        yield Text(text.kind, text.name, rest[:end])
        rest = rest[end:]
    yield Text(text.kind, text.name, rest)
