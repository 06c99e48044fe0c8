"""The files of models/ that ship with the package: facts and recipes in TOML, and plain text."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def load(name: str) -> dict[str, Any]:
    """The content of models/NAME.toml."""
    content: dict[str, Any] = tomllib.loads(text(f"{name}.toml"))
    return content


def text(name: str) -> str:
    """The text of the file models/NAME; its lines end with "\\n"."""
    inside = Path(__file__).with_name("models")
    folder = (
        inside if inside.is_dir() else Path(__file__).parent.parent / "models"
    )  # installed, or a source tree
    return (folder / name).read_text("utf-8")
