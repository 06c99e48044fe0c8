"""`gguftools bench`: streams, usage, JSON, pictures."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
import tiny_session
from command_line import in_process
from llm_server import serve

from gguftools.cli import ui
from gguftools.verbs.bench import plot, prompts


@pytest.fixture(autouse=True)
def streams() -> None:
    ui._console.cache_clear()  # it holds the stream of the test before


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("pair")
    target = tiny_session.write(folder / "target.gguf")
    return str(target), str(tiny_session.write(folder / "draft.gguf", seed=1))


@pytest.fixture
def short(tmp_path: Path) -> list[str]:
    """Options that make it short."""
    file = tmp_path / "prompts.jsonl"
    file.write_text(
        '{"prompt": "<b>in</b> $x$ a_b", "kind": "code"}\n{"turns": ["thing"], "kind": "prose"}\n'
    )
    return ["--prompts", str(file), "--max-tokens", "12", "-o", "threads=1", "-o", "draft_p_min=0"]


def test_the_report_is_on_stdout_and_warnings_are_on_stderr(
    pair: tuple[str, str], short: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    args = ("--draft", pair[1], "--draft-tokens", "5", "--sweep", "0,2")
    code, out, err = in_process(capsys, "bench", pair[0], *args, *short)
    assert code == 0
    first = [line.split()[0] for line in out.split("\n\n")[0].splitlines() if line[2] != " "]
    wanted = [
        "target",
        "plain",
        "draft",
        "measured",
        "prompt",
        "speed-up",
        "texts",
        "accepted",
        "drafted",
        "time",
    ]
    assert first == wanted
    assert "2 prompts (1 code, 1 prose), up to 12 tokens, greedy" in out
    for heading in ("prompt, tokens/s", "position in the draft", "tokens verified at once", "tokens drafted"):
        assert f"\n  {heading}" in out
    assert all(line.startswith("warning: ") for line in err.splitlines())


def test_json_is_one_object_with_the_schema_first(
    pair: tuple[str, str], short: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    args = ("bench", pair[0], "--draft", pair[1], "--draft-tokens", "2", "--n-ctx", "512", "--json", *short)
    code, out, err = in_process(capsys, *args)
    content = json.loads(out)
    assert (code, err, next(iter(content))) == (0, "", "schema")
    assert content["draft"]["draft_tokens"] == 2
    assert content["draft"]["name"] == "draft.gguf"
    assert content["settings"] == {"max_tokens": 12, "repeats": 1, "n_ctx": 512, "temperature": 0}


def test_a_target_alone_has_a_speed(
    pair: tuple[str, str], short: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = in_process(capsys, "bench", pair[0], *short)
    assert (code, err) == (0, "")
    assert "plain     " in out
    assert "speed-up" not in out


def test_a_server_is_measured_from_outside(capsys: pytest.CaptureFixture[str]) -> None:
    with serve("llamacpp") as server, serve("llamacpp") as baseline:
        baseline.per_second = 20.0
        args = ("bench", "--server", server.url, "--baseline", baseline.url, "--max-tokens", "12")
        code, out, err = in_process(capsys, *args)
        assert (code, err) == (0, "")
        assert "40.00 tokens/s · llama-server at http" in out
        assert "2.00 × (2.00 … 2.00)" in out
        assert "8 equal" in out
        assert len(server.asked) == 1 + len(prompts.own())


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ((), "nothing to measure"),
        (("t.gguf", "--server", "http://h"), "not both"),
        (("t.gguf", "--baseline", "http://h"), "--baseline is what --server"),
        (("--server", "http://h", "--draft", "d"), "--draft has no effect with --server"),
        (("--server", "http://h", "--draft-tokens", "0"), "--draft-tokens has no effect with --server"),
        (("--server", "http://h", "-o", "threads=1"), "-o has no effect with --server"),
        (("--server", "http://h", "--sweep", "1"), "--sweep has no effect with --server"),
        (("t.gguf", "--sweep", "1"), "need a draft"),
        (("t.gguf", "--draft", "d", "--sweep", "1,x"), "x is neither auto nor a whole number from 0 to 16"),
        (("t.gguf", "--draft", "d", "--draft-tokens", "17"), "17 is neither auto nor"),
        (("t.gguf", "--max-tokens", "0"), "0 is not a whole number from 1"),
        (("t.gguf", "--repeats", "0"), "0 is not in the range"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(
    args: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = in_process(capsys, "bench", *args)
    assert (code, out) == (2, "")
    assert why in err


def test_a_failure_with_json_is_an_object_too(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = in_process(capsys, "bench", "--server", "http://127.0.0.1:9", "--json")
    assert code == 1
    assert json.loads(out)["error"]["kind"] == "ServerError"


def test_a_picture_is_refused_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "there.png"
    there.write_bytes(b"mine")
    for file, why in (
        (there, "exists already"),
        (tmp_path / "x.gif", ".png or .html"),
        (tmp_path / "no" / "x.png", "no folder"),
    ):
        code, _, err = in_process(capsys, "bench", "none.gguf", "--plot", str(file))
        assert code == 1
        assert why in err
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, _, err = in_process(capsys, "bench", "none.gguf", "--plot", str(tmp_path / "x.png"))
    assert code == 1
    assert plot.INSTALL in err
    assert there.read_bytes() == b"mine"


def test_a_png_and_a_page_are_drawn(
    pair: tuple[str, str], short: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    image, page = tmp_path / "x.png", tmp_path / "x.html"
    image.write_bytes(b"old")
    args = ("bench", pair[0], "--draft", pair[1], "--sweep", "1,2", *short)
    code, _, err = in_process(capsys, *args, "--plot", str(image), "--force")
    assert code == 0
    assert image.read_bytes().startswith(b"\x89PNG\r\n")
    assert err.splitlines()[-1] == f"drawn in {image}"
    code, _, _ = in_process(capsys, *args, "--plot", str(page))
    text = page.read_text("utf-8")
    assert text.startswith("<!doctype html>")
    assert text.count("<svg") == 1
    assert "<script" not in text
    assert "default-src 'none'" in text
    assert re.findall(r'(?:src|href)="(?!#)|url\((?!#)', text) == []  # nothing is fetched


def test_names_in_a_page_are_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    page = tmp_path / "x.html"
    with serve("llamacpp") as server:
        server.model = '<script>alert("$1")</script>'
        code, _, _ = in_process(capsys, "bench", "--server", server.url, "--plot", str(page))
    assert code == 0
    assert "<script" not in page.read_text("utf-8")
