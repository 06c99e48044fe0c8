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
from gguftools.verbs.transplant import TransplantReport, transplant
from gguftools.verbs.transplant.special_map import Mapped

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
    for page in ("README.md", "docs/bench.md", "docs/edit.md", "docs/embedding.md", "docs/transplant.md")
    for i, code in enumerate(examples(page))
]


@pytest.mark.parametrize("code", ALL)
def test_the_examples_run(code: str, smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("target.gguf", "draft.gguf", "donor.gguf"):
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
    text = (DOCS / "defaults.md").read_text("utf-8").partition("## Transplanting")[0]
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \|", text, re.MULTILINE)
    page = dict(rows)
    assert len(rows) == len(page)
    assert list(page) == [*options.LOAD, *options.REQUEST]
    for key, value in code_defaults().items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        assert float(page[key]) == value if number else page[key] == {True: "on"}.get(value, value), key  # type: ignore[call-overload]


def test_the_table_of_transplant_s_defaults_is_the_code_s() -> None:
    text = (DOCS / "defaults.md").read_text("utf-8").partition("## Transplanting")[2]
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \|", text, re.MULTILINE)
    code = inspect.signature(transplant).parameters
    assert rows
    for name, value in rows:
        default = code[name].default
        assert value == ("auto" if default is None else str(default)), name


def test_the_page_on_transplant_explains_every_key_of_its_report() -> None:
    text = (
        (DOCS / "transplant.md")
        .read_text("utf-8")
        .partition("## The report")[2]
        .partition("## The method")[0]
    )
    keys = {"schema", *(field.name for field in fields(TransplantReport)), *(f.name for f in fields(Mapped))}
    assert {key for key in keys if f"`{key}`" not in text} == set()


def test_links_between_the_pages_lead_somewhere() -> None:
    for page in (REPO / "README.md", *DOCS.glob("*.md")):
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def code_defaults() -> dict[str, object]:
    """Key → the value that the code takes when none is given; "auto" is a rule, "none" nothing."""
    load = inspect.signature(Model.load).parameters
    found: dict[str, object] = {name: load[name].default for name in options.LOAD}
    found = {name: "auto" if value is None else value for name, value in found.items()}
    found |= dict.fromkeys(options.REQUEST, "auto")
    found |= {"override_tensor": "none", "grammar": "none", "stop": "none"}
    found |= {field.name: field.default for field in fields(Sampling) if field.name in options.REQUEST}
    found |= {"draft_n_ctx": DRAFT_N_CTX, "accept": "coupled"}
    return found
