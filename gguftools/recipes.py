"""The TOML files of models/: facts and recipes that ship with the package."""

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
    inside = Path(__file__).with_name("models")
    folder = (
        inside if inside.is_dir() else Path(__file__).parent.parent / "models"
    )  # installed, or a source tree
    content: dict[str, Any] = tomllib.loads((folder / f"{name}.toml").read_text("utf-8"))
    return content
