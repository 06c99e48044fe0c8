"""Text of the user's own that a draft is calibrated on."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from gguftools.errors import GGUFToolsError, InputError, NotFound
from gguftools.verbs.transplant import user_text
from gguftools.verbs.transplant.text import Text
from gguftools.verbs.transplant.user_text import MIN_CHARS, user_texts

ENOUGH = "One sentence stands here, and another number is 42.\n" * 100


def n_bytes(text: str) -> int:
    return len(text.encode())


def test_a_text_file_is_one_text_with_plain_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_bytes(b"\xef\xbb\xbf" + ENOUGH.replace("\n", "\r\n").encode())
    (text,) = user_texts(path)
    assert text == Text("user", str(path), ENOUGH.strip())


def test_conversations_are_read_from_jsonl(tmp_path: Path) -> None:
    records = [
        {"text": "plain \u2028 text"},
        {"turns": ["first", "second"]},
        {"turns": [{"role": "user", "content": "third"}]},
        {"messages": [{"role": "user", "content": "fourth"}, {"role": "assistant", "content": None}]},
        {"messages": [{"content": [{"type": "text", "text": "fifth"}, {"type": "image"}]}]},
        {"conversations": [{"from": "human", "value": "sixth"}]},
        {"text": ENOUGH},
    ]
    path = tmp_path / "talks.JSONL"
    lines = [json.dumps(record, ensure_ascii=False) for record in records]
    path.write_text("\n\n".join([*lines, '{"text": "lone \\ud800 surrogate"}']), "utf-8")
    (text,) = user_texts(path)
    parts = ["plain \u2028 text", "first", "second", "third", "fourth", "fifth", "sixth", ENOUGH]
    assert text.text == "\n\n".join([*parts, "lone ? surrogate"])


def test_a_folder_gives_its_text_files_in_order_without_hidden_and_binary_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, data in {
        "b.txt": ENOUGH.encode(),
        "a/z.py": b"x = 1\n",
        "empty.txt": b"",
        "photo.png": b"\x89PNG\r\n\0\0",
        ".git/config": ENOUGH.encode(),
        "latin.txt": b"caf\xe9",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    with caplog.at_level(logging.WARNING):
        found = user_texts(tmp_path)
    assert [Path(text.name).name for text in found] == ["z.py", "b.txt"]
    assert f"skipped in {tmp_path}, as no text: latin.txt and 1 more" in caplog.text
    caplog.clear()
    (tmp_path / "photo.png").unlink()
    with caplog.at_level(logging.WARNING):
        user_texts(tmp_path)
    assert caplog.messages == [f"skipped in {tmp_path}, as no text: latin.txt"]


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("empty.txt", b"", "holds no text"),
        ("blank.txt", b" \n" * 5_000, "holds no text"),
        ("short.txt", b"short", f"holds 5 characters\ncalibration needs {MIN_CHARS:,} or more"),
        ("one.txt", b"x", "holds 1 character\n"),
        ("latin.txt", b"a" * 3_000 + b"caf\xe9 noir", "is not UTF-8\nbyte 3003: "),
        ("end.txt", b"a" * 3_000 + b"\xe4\xb8", "is not UTF-8\nbyte 3000: "),
        ("wide.txt", ENOUGH.encode("utf-16"), "iconv -f UTF-16"),
        ("model.gguf", b"GGUF\3\0\0\0" + bytes(5_000), "it holds a zero byte at 5"),
        ("bad.jsonl", b'{"text": "fine"}\n{"text": \n', "line 2 cannot be used"),
        ("list.jsonl", b'["no object"]\n', "line 1 cannot be used\nit has none of the fields text, turns"),
        ("other.jsonl", b'{"prompt": "no such field"}\n', "it has none of the fields"),
        ("deep.jsonl", b"[" * 200_000, "line 1 cannot be used"),
        ("null.jsonl", b'{"messages": [{"content": null}, 3, [4]]}\n', "holds no text"),
    ],
)
def test_what_cannot_be_used_is_said_with_a_way_out(
    tmp_path: Path, name: str, data: bytes, says: str
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        user_texts(path)
    assert isinstance(caught.value, GGUFToolsError)
    assert caught.value.hint
    assert name in caught.value.what
    assert says in str(caught.value)


def test_a_missing_file_and_an_empty_folder_are_errors(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no"):
        user_texts(tmp_path / "nothing.txt")
    with pytest.raises(InputError, match="holds no text"):
        user_texts(tmp_path)


@pytest.mark.parametrize("line", ["字字字字字字字字\n", "no line ends, 字字字字 "])
def test_what_is_too_large_is_cut_with_a_warning(
    tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(user_text, "MAX_BYTES", 10_003)
    path = tmp_path / "large.txt"
    path.write_text(line * 2_000, "utf-8")
    with caplog.at_level(logging.WARNING):
        (text,) = user_texts(path)
    assert 9_970 < n_bytes(text.text) <= 10_003
    assert (line * 2_000).startswith(text.text)
    assert "only the first" in caplog.text
    (tmp_path / "more.txt").write_text(ENOUGH)
    assert len(user_texts(tmp_path)) <= 2
