"""Where PyInstaller finds the hook for gguftools (entry point `pyinstaller40`)."""

from __future__ import annotations

from pathlib import Path


def hook_dirs() -> list[str]:
    """The folder of `hook-gguftools.py`."""
    return [str(Path(__file__).parent)]
