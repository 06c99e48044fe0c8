"""Recipes and facts as TOML files; read with `load(name)`."""

from __future__ import annotations

import sys
from importlib import resources
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def load(name: str) -> dict[str, Any]:
    """The content of models/NAME.toml."""
    return tomllib.loads(resources.files(__name__).joinpath(f"{name}.toml").read_text("utf-8"))
