"""Kinds of arguments: names and paths that are not empty, numbers within an option's limits."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ..session.limits import LIMITS, Limit


def _refuse_empty(value: Any) -> None:
    if os.fspath(value) == "":  # to pathlib this is the folder where we are
        raise click.BadParameter("the name is empty")


def name(text: str) -> str:
    """The type of an argument that names a file, a folder or a model on the Hub."""
    _refuse_empty(text)
    return text


def size(text: str) -> int:
    """The type of an argument in bytes, as 500M or 4G: units of 1,000, as disks and gguf-split count."""
    match = re.fullmatch(r"(\d{1,15})\s*([KMGT]?)B?", text.strip(), re.IGNORECASE)
    if not match or not int(match[1]):
        raise click.BadParameter(f"{text} is no size; write it as 500M or 4G.")
    unit: int = 1000 ** " KMGT".index(match[2].upper() or " ")
    return int(match[1]) * unit


class File(click.Path):
    """A path; whether it can be read is for the verb to say, as with a name."""

    def __init__(self, *, file_okay: bool = True) -> None:
        super().__init__(path_type=Path, readable=False, file_okay=file_okay)

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        _refuse_empty(value)
        return super().convert(value, param, ctx)


class Number:
    """Reads the value of an option, and raises ValueError that says which numbers it takes."""

    def __init__(self, limit: Limit) -> None:
        self.limit = limit

    def __call__(self, text: str) -> float:
        try:
            value = int(text) if self.limit.whole else float(text)
        except ValueError:
            raise ValueError(str(self.limit)) from None
        if not self.limit.holds(value):
            raise ValueError(str(self.limit))
        return value


# An answer of no tokens is of use to a program alone.
NUMBERS = {
    key: Number(limit._replace(low=1) if key == "max_tokens" else limit) for key, limit in LIMITS.items()
}


def within(key: str) -> Callable[[Any], float]:
    """The type of the option that has `key`'s limits."""

    def read(value: Any) -> float:
        try:
            return NUMBERS[key](str(value))
        except ValueError as error:
            raise click.BadParameter(f"{value} is not {error}.") from None

    return read
