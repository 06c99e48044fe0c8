"""The command `gguftools edit`: changes are shown as old → new, and nothing is written before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import in_process
from edits import P, model, only
from pairs import TOKENS, N

from gguftools.header import read_header

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(model(tmp_path / "m.gguf"))


def test_changes_are_shown_and_written(file: str, tmp_path: Path, capsys: Capture) -> None:
    out = str(tmp_path / "out.gguf")
    args = ["--set", f"{P}eos_token_id=302", "--set", "general.url:str=a=b", "--remove", "general.name"]
    args += ["--set-token", "301=<|human|>", "--token-type", "302=unused"]
    code, text, _ = in_process(capsys, "edit", file, *args, "-o", out)
    assert (code, text.splitlines()) == (
        0,
        [
            '  general.name: "tiny" → removed',
            '  tokenizer.ggml.tokens[301]: "<|user|>" → "<|human|>"',
            '  tokenizer.ggml.token_type[302]: "CONTROL" → "UNUSED"',
            "  tokenizer.ggml.eos_token_id: 300 → 302",
            '  general.url: none → "a=b" (str)',
            f"wrote {out}",
        ],
    )
    assert read_header(out).get_str("general.url") == "a=b"


def test_a_dry_run_shows_and_stops(file: str, tmp_path: Path, capsys: Capture) -> None:
    template = tmp_path / "t.jinja"
    template.write_text("{{ messages[0].content }}" + " " * 500)
    code, text, err = in_process(
        capsys, "edit", file, "--dry-run", "--template", str(template), "--set", f"{P}eos_token_id:u64"
    )
    assert code == 1  # libllama wants u32
    assert "types of keys" in err
    code, text, _ = in_process(capsys, "edit", file, "--dry-run", "--template", str(template))
    assert (code, text.splitlines()[-1]) == (0, "a dry run: nothing was written")
    assert "(527 characters)\n" in text
    assert max(map(len, text.splitlines())) < 260
    assert only(tmp_path) == ["m.gguf", "t.jinja"]


def test_one_json_object_holds_the_changes(file: str, tmp_path: Path, capsys: Capture) -> None:
    code, text, err = in_process(
        capsys, "edit", file, "--in-place", "--json", "--set", f"{P}pre=default", "--copy", "general.name",
        "--from", str(model(tmp_path / "o.gguf", {"general.name": "other"})),
    )  # fmt: skip
    found = json.loads(text)
    assert (code, found["schema"], found["path"], found["data"]) == (0, 1, file, "copied")
    assert found["changes"][0] == {
        "key": "general.name",
        "old": "tiny",
        "new": "other",
        "old_type": "str",
        "new_type": "str",
    }
    assert found["warnings"]
    assert "pre-tokenizer" in err
    assert read_header(file).get_str(P + "pre") == "default"


def test_a_draft_is_aligned_and_what_it_mends_is_said(file: str, tmp_path: Path, capsys: Capture) -> None:
    draft = str(model(tmp_path / "d.gguf", {P + "tokens": [*TOKENS[:-1], "<|other|>"]}))
    code, text, _ = in_process(capsys, "edit", draft, "--align-to", file, "--in-place")
    assert (code, text.splitlines()[0]) == (0, f'  {P}tokens[{N + 2}]: "<|other|>" → "<|pad|>"')
    code, text, _ = in_process(capsys, "edit", draft, "--align-to", file, "--in-place")
    assert (code, text) == (0, "nothing to change\n")
    bad = str(model(tmp_path / "b.gguf", {P + "tokens": [*TOKENS[:50], "other", *TOKENS[51:]]}))
    code, text, _ = in_process(capsys, "edit", bad, "--align-to", file, "--in-place", "--json")
    assert (code, json.loads(text)["error"]["report"]["verdict"]) == (1, "incompatible")


USAGE = {
    "no edit": (["--in-place"], "no edit"),
    "no place": (["--remove", "general.name"], "one of -o OUT"),
    "two places": (["--remove", "general.name", "--in-place", "-o", "o.gguf"], "one of -o OUT"),
    "a key twice": (["--set", "general.name=a", "--set", "general.name=b", "--in-place"], "given twice"),
    "no id": (["--set-token", "x=y", "--in-place"], "163586=VALUE"),
    "no text": (["--set-token", "5", "--in-place"], "163586=VALUE"),
}


@pytest.mark.parametrize("name", USAGE)
def test_what_is_no_edit_is_a_matter_of_usage(name: str, file: str, capsys: Capture) -> None:
    args, why = USAGE[name]
    code, _, err = in_process(capsys, "edit", file, *args)
    assert code == 2
    assert why in err


def test_a_hostile_text_cannot_command_the_terminal(file: str, capsys: Capture) -> None:
    code, text, _ = in_process(capsys, "edit", file, "--dry-run", "--set", "general.name=\x1b[31mred")
    assert code == 0
    assert "\x1b" not in text
