"""The documents say what the code does: examples run, generated pages are fresh, the defaults are true."""

from __future__ import annotations

import importlib.util
import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest

from gguftools.cli import options
from gguftools.libllama import hardware
from gguftools.session.model import DRAFT_N_CTX, Model
from gguftools.session.sampling import Sampling
from gguftools.session.session import DRAFT_P_MIN, DRAFT_TOKENS

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
    monkeypatch.setattr(hardware, "physical_cores", lambda: 1)  # fair to what else runs on the machine
    exec(compile(code, "example", "exec"), {"window": Window()})


def test_the_page_of_the_command_line_is_fresh() -> None:
    spec = importlib.util.spec_from_file_location("make_cli", DOCS / "make_cli.py")
    assert spec is not None
    assert spec.loader is not None
    make_cli = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_cli)
    assert (DOCS / "cli.md").read_text("utf-8") == make_cli.render(), "run: make docs"


def test_the_table_of_defaults_is_the_code_s() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \|", (DOCS / "defaults.md").read_text("utf-8"), re.MULTILINE)
    page = dict(rows)
    assert len(rows) == len(page)
    assert list(page) == [*options.LOAD, *options.REQUEST]
    for key, value in code_defaults().items():
        assert float(page[key]) == value if isinstance(value, int | float) else page[key] == value, key


def code_defaults() -> dict[str, object]:
    """Key → the value that the code takes when none is given; "auto" is a rule, "none" nothing."""
    load = inspect.signature(Model.load).parameters
    found: dict[str, object] = {name: load[name].default for name in options.LOAD}
    found = {name: "auto" if value is None else value for name, value in found.items()}
    found |= dict.fromkeys(options.REQUEST, "auto")
    found |= {"override_tensor": "none", "grammar": "none", "stop": "none"}
    found |= {field.name: field.default for field in fields(Sampling) if field.name in options.REQUEST}
    found |= {"draft_n_ctx": DRAFT_N_CTX, "draft_tokens": DRAFT_TOKENS, "draft_p_min": DRAFT_P_MIN}
    return found
