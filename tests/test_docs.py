"""The documents say what the code does: examples run, generated pages are fresh, the defaults are true."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent
DOCS = REPO / "docs"


class Window:
    """Stands for the reader's own program in the examples."""

    def __init__(self) -> None:
        self.text = ""

    def append(self, text: str, highlight: bool = False) -> None:
        self.text += text

    def set_progress(self, label: str, fraction: float) -> None:
        assert 0 <= fraction <= 1, label


def examples(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (REPO / page).read_text("utf-8"), re.DOTALL | re.MULTILINE)


ALL = [
    pytest.param(code, id=f"{page}-{i}")
    for page in ("README.md", "docs/embedding.md")
    for i, code in enumerate(examples(page))
]


@pytest.mark.parametrize("code", ALL)
def test_the_examples_run(code: str, smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("target.gguf", "draft.gguf"):
        (tmp_path / name).symlink_to(smollm2)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "example", "exec"), {"window": Window()})


def test_the_page_of_the_command_line_is_fresh() -> None:
    spec = importlib.util.spec_from_file_location("make_cli", DOCS / "make_cli.py")
    assert spec is not None
    assert spec.loader is not None
    make_cli = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_cli)
    assert (DOCS / "cli.md").read_text("utf-8") == make_cli.render(), "run: make docs"
