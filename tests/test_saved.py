"""Session.save and load: another process goes on as if nothing had happened, and no file does harm."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import tiny_models
import tiny_session
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_session import still_works

from gguftools import Model, Session, _native
from gguftools.errors import (
    Closed,
    DecodeError,
    FormatError,
    InputError,
    LoadError,
    NotFound,
    OutputExists,
    SessionBusy,
)
from gguftools.header import read_header
from gguftools.session import saved

PROMPT = "the thin line in "
GREEDY: dict[str, Any] = {"max_tokens": 24, "temperature": 0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("saved")


@pytest.fixture(scope="module")
def paths(folder: Path) -> tuple[Path, Path]:
    return tiny_session.write(folder / "target.gguf"), tiny_session.write(folder / "draft.gguf", seed=1)


@pytest.fixture(scope="module")
def pair(paths: tuple[Path, Path]) -> Iterator[Model]:
    with Model.load(*paths, threads=1) as model:
        yield model


@pytest.fixture(scope="module")
def file(folder: Path, pair: Model) -> Path:
    """A session of the pair with an answer, n_ctx 256."""
    path = folder / "talk.session"
    with pair.session(n_ctx=256) as session:
        session.generate(PROMPT, **GREEDY).result()
        session.save(path)
    return path


@pytest.fixture
def session(pair: Model) -> Iterator[Session]:
    with pair.session(n_ctx=256) as session:
        session.generate("elsewhere", max_tokens=5, temperature=0).result()
        yield session


def split(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The head, and what follows it without the digest."""
    size = saved.START.size
    end = size + saved.START.unpack_from(data)[2]
    return json.loads(data[size:end]), data[end : -saved.DIGEST]


def joined(head: Any, rest: bytes, number: int = saved.VERSION) -> bytes:
    """A file with a right digest, whatever is in it."""
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    data = saved.START.pack(saved.MAGIC, number, len(text)) + text + rest
    return data + hashlib.sha256(data).digest()


def refused(
    session: Session, path: Path, match: str | None = None, kind: type[Exception] = FormatError
) -> Any:
    """The load is refused, and neither history nor caches of the session have changed."""
    before = session.engine.history, session.engine.cached
    with pytest.raises(kind, match=match) as error:
        session.load(path)
    assert (session.engine.history, session.engine.cached) == before
    assert all(getattr(error.value, part) for part in ("what", "why"))
    return error.value


def goes_on(session: Session) -> tuple[tuple[int, ...], int]:
    """An answer to all that was said so far and a little more, and how much of it was in the cache."""
    result = session.generate([*session.engine.history, 97, 98], **GREEDY).result()
    return result.tokens, result.stats.cache_n


def test_another_process_goes_on_as_if_it_had_never_stopped(
    folder: Path, paths: tuple[Path, Path], pair: Model
) -> None:
    path = folder / "process.session"
    with pair.session(n_ctx=256) as session:
        session.generate(PROMPT, **GREEDY).result()
        session.save(path)
        cached, n = session.engine.cached, session.engine.n_history
        expected = goes_on(session)
    code = (
        "import sys; from gguftools import Model\n"
        "with Model.load(*sys.argv[2:], threads=1) as model, model.session(n_ctx=256) as session:\n"
        "    session.load(sys.argv[1])\n"
        "    print(session.engine.cached)\n"
        "    prompt = [*session.engine.history, 97, 98]\n"
        "    result = session.generate(prompt, max_tokens=24, temperature=0).result()\n"
        "    print((result.tokens, result.stats.cache_n))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), *map(str, paths)], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.splitlines() == [str(cached), str(expected)], done.stderr
    assert expected[1] == n - 1


@pytest.mark.parametrize("arch", ["gemma3", "mamba", "lfm2", "qwen35", "kimi_linear"])
def test_every_kind_of_memory_comes_back(folder: Path, arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "gguf.GGUFWriter.add_tokenizer_model", lambda writer, _: tiny_session.add_tokens(writer)
    )
    n_vocab, path = len(tiny_session.tokens()), folder / f"{arch}.session"
    write: Callable[..., Path] = getattr(tiny_models, arch)
    target = write(folder / f"{arch}.gguf", n_vocab)
    draft = write(folder / f"{arch}-draft.gguf", n_vocab, noise=0.12)
    with Model.load(target, draft, threads=1) as model:
        with model.session(n_ctx=512) as session:
            session.generate(PROMPT * 3, draft_tokens=5, draft_p_min=0, **GREEDY).result()
            session.save(path)
            cached, expected = session.engine.cached, goes_on(session)
        with model.session(n_ctx=512) as session:
            session.load(path)
            assert session.engine.cached == cached
            assert goes_on(session) == expected
            assert expected[1] == cached[0]
            still_works(session)


def test_a_draft_with_a_window_of_its_own_comes_back(folder: Path, paths: tuple[Path, Path]) -> None:
    path = folder / "window.session"
    with Model.load(*paths, threads=1, draft_n_ctx=48) as model:
        with model.session(n_ctx=256) as session:
            session.generate(PROMPT * 8, **GREEDY).result()
            assert _native.state_part(session.engine, True)[2] > 0
            session.save(path)
            part, expected = _native.state_part(session.engine, True), goes_on(session)
        with model.session(n_ctx=256) as session:
            session.load(path)
            assert _native.state_part(session.engine, True) == part
            assert goes_on(session) == expected
            assert session.engine.draft_failed == 0


def test_a_prompt_that_was_cancelled_half_way_is_not_decoded_twice(folder: Path, pair: Model) -> None:
    path, prompt = folder / "half.session", "a b " * 300
    with pair.session(n_ctx=2048) as session:
        stream = session.generate(prompt, **GREEDY)
        stream._advance()
        stream.cancel()
        session.save(path)
    with pair.session(n_ctx=2048) as session:
        session.load(path)
        assert session.generate(prompt, **GREEDY).result().stats.cache_n == 512


def test_a_session_without_a_word_can_be_saved(folder: Path, pair: Model) -> None:
    path = folder / "empty.session"
    with pair.session(n_ctx=256) as session:
        session.save(path)
    with pair.session(n_ctx=256) as session:
        session.generate(PROMPT, **GREEDY).result()
        session.load(path)
        assert session.engine.cached == (0, 0)
        assert session.engine.history == []
        still_works(session)


def test_what_was_saved_before_is_replaced_and_nothing_else_is(
    folder: Path, file: Path, session: Session
) -> None:
    mine = Path(shutil.copy(file, folder / "mine.session"))
    session.save(mine)
    session.load(mine)
    other = folder / "letter.txt"
    for content in (b"Dear Sir", b""):
        other.write_bytes(content)
        with pytest.raises(OutputExists, match="no saved session"):
            session.save(other)
        assert other.read_bytes() == content
    with pytest.raises(InputError, match="folder"):
        session.save(folder)
    with pytest.raises(InputError, match="no folder"):
        session.save(folder / "nowhere" / "a.session")


def test_a_save_that_fails_leaves_the_file_that_was_there(
    folder: Path, file: Path, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = Path(shutil.copy(file, folder / "kept.session"))

    def fail(engine: object, draft: bool) -> bytearray:
        raise _native.EngineError(-120)

    with monkeypatch.context() as patch:
        patch.setattr("gguftools._native.read_state", fail)
        with pytest.raises(DecodeError, match="cannot be saved"):
            session.save(mine)
    assert mine.read_bytes() == file.read_bytes()
    assert not list(folder.glob(".kept*"))
    session.save(mine)
    assert mine.read_bytes() != file.read_bytes()


def test_a_running_request_and_a_closed_session_refuse_both(file: Path, folder: Path, pair: Model) -> None:
    session = pair.session(n_ctx=256)
    mine = folder / "busy.session"
    with session.generate(PROMPT, **GREEDY) as stream:
        next(stream)
        for work, path in ((session.save, mine), (session.load, file)):
            with pytest.raises(SessionBusy):
                work(path)
    session.load(file)
    session.save(mine)
    session.close()
    for work in (session.save, session.load):
        with pytest.raises(Closed):
            work(mine)


OTHERS: list[tuple[str, dict[str, Any], str]] = [
    ("n_ctx", {"n_ctx": 512}, "n_ctx 256, this session has 512"),
    ("draft_n_ctx", {"n_ctx": 256, "draft_n_ctx": 128}, "draft_n_ctx 256, this session has 128"),
]


@pytest.mark.parametrize(("name", "sizes", "why"), OTHERS)
def test_another_context_size_is_refused(
    file: Path, pair: Model, name: str, sizes: dict[str, int], why: str
) -> None:
    with pair.session(**sizes) as session:
        error = refused(session, file, why)
        assert error.hint == f"make the session with {name} 256"
        still_works(session)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"cache_type_k": "q8_0"}, "cache_types"),
        ({"draft_cache_type_v": "f32"}, "draft_cache_types"),
        ({"flash_attn": False}, "flash_attn None, this session has False"),
    ],
)
def test_other_caches_are_refused(
    file: Path, paths: tuple[Path, Path], options: dict[str, Any], why: str
) -> None:
    with Model.load(*paths, threads=1, **options) as model, model.session(n_ctx=256) as session:
        refused(session, file, why)


def test_another_model_is_refused(file: Path, folder: Path, paths: tuple[Path, Path]) -> None:
    target, draft = paths
    other = tiny_session.write(folder / "other.gguf", seed=2)
    for models, why in (
        ((other, draft), r"with the target target.gguf [0-9a-f]{12}.*the target other.gguf"),
        ((target, other), "with the draft draft.gguf .*the draft other.gguf"),
        ((target,), "with the draft draft.gguf .*no draft"),
    ):
        with Model.load(*models, threads=1) as model, model.session(n_ctx=256) as session:
            refused(session, file, why)
            still_works(session)


def test_a_model_is_known_by_its_content_not_its_name(
    file: Path, folder: Path, paths: tuple[Path, Path]
) -> None:
    moved = Path(shutil.copy(paths[0], folder / "renamed.gguf"))
    with Model.load(moved, paths[1], threads=1) as model, model.session(n_ctx=256) as session:
        session.load(file)
    same = saved.fingerprint(read_header(paths[0]))
    assert saved.fingerprint(read_header(moved)) == same
    content = moved.read_bytes()
    for at in (content.index(b"im_start"), len(content) - 1):  # a key's value, a weight
        moved.write_bytes(content[:at] + b"I" + content[at + 1 :])
        assert saved.fingerprint(read_header(moved)) != same
    moved.write_bytes(content)
    assert saved.fingerprint(read_header(moved)) == same


def test_another_llama_cpp_and_a_later_format_are_refused(
    file: Path, folder: Path, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = folder / "later.session"
    later.write_bytes(joined(*split(file.read_bytes()), number=2))
    refused(session, later, "version 2 of the format; this gguftools reads 1")
    monkeypatch.setattr(saved, "version", lambda: "9.9.9")
    refused(session, file, "this session has llama-cpp-python 9.9.9 with libllama")


def test_a_file_that_is_cut_off_anywhere_is_refused(file: Path, folder: Path, session: Session) -> None:
    data, part = file.read_bytes(), folder / "part.session"
    for size in {0, 1, 7, 15, 16, 17, *range(20, len(data), 1999), len(data) - 33, len(data) - 1}:
        part.write_bytes(data[:size])
        refused(session, part, "bytes")
    part.write_bytes(data + b"\0")
    refused(session, part, "by its head")
    still_works(session)


def test_a_changed_byte_anywhere_is_seen(file: Path, folder: Path, session: Session) -> None:
    data, changed = file.read_bytes(), folder / "changed.session"
    for at in {*range(0, 600, 13), *range(600, len(data), 2003), len(data) - 1}:
        one = bytearray(data)
        one[at] ^= 0x10
        changed.write_bytes(one)
        refused(session, changed)
    still_works(session)


def test_strangers_are_refused(folder: Path, paths: tuple[Path, Path], session: Session) -> None:
    refused(session, paths[0], "no saved session")
    with pytest.raises(NotFound, match="no such file"):
        session.load(folder / "nothing.session")
    refused(session, folder, "no ordinary file", InputError)
    if hasattr(os, "mkfifo"):
        os.mkfifo(folder / "pipe")
        refused(session, folder / "pipe", "no ordinary file", InputError)


def test_a_file_larger_than_memory_is_not_read(
    file: Path, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gguftools.libllama.hardware.free_memory", lambda: 1000)
    refused(session, file, "GB are free", LoadError)


def edited(file: Path, **changes: Any) -> bytes:
    head, rest = split(file.read_bytes())
    return joined({**head, **changes}, rest)


@pytest.mark.parametrize(
    "changes",
    [
        {"n_history": -1}, {"n_history": 1 << 62}, {"n_history": 1.5}, {"n_history": True},
        {"n_history": None}, {"target": [1, 2]}, {"target": [1, 2, 3, 4]}, {"target": "abc"},
        {"draft": None}, {"draft": [0, 0, -1]}, {"made": None}, {"made": []}, {"made": {}},
        {"made": {"target": "x"}},
    ],
)  # fmt: skip
def test_a_head_of_nonsense_is_refused(
    file: Path, folder: Path, session: Session, changes: dict[str, Any]
) -> None:
    path = folder / "nonsense.session"
    path.write_bytes(edited(file, **changes))
    refused(session, path)


def test_counts_that_do_not_belong_together_are_refused(file: Path, folder: Path, session: Session) -> None:
    head, rest = split(file.read_bytes())
    path = folder / "counts.session"
    (size, n, _), history = head["target"], head["n_history"]
    many = 4 * (256 + 1)
    for changed, content in (
        ({"target": [size, history + 1, 0]}, rest),
        ({"target": [size, n, 1]}, rest),
        ({"target": [size, n - 1, 1]}, rest),
        ({"target": [size, 1 << 40, 0]}, rest),
        ({"draft": [head["draft"][0], n, 1 << 40]}, rest),
        ({"n_history": 257}, bytes(many) + rest[4 * history :]),
    ):
        path.write_bytes(joined({**head, **changed}, content))
        refused(session, path, "contradict each other")
    for changed, content in (
        ({"target": [size, history, 0]}, rest),
        ({"target": [size, 0, 0]}, rest),
        ({"target": [0, n, 0]}, rest[: 4 * history] + rest[4 * history + size :]),
        ({}, (1 << 30).to_bytes(4, "little") + rest[4:]),
        ({}, (-1).to_bytes(4, "little", signed=True) + rest[4:]),
    ):
        path.write_bytes(joined({**head, **changed}, content))
        refused(session, path, "out of range|outside the vocabulary")


KEYS = st.sampled_from(["made", "target", "draft", "n_history"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner),
    max_leaves=8,
)


@settings(max_examples=80, deadline=None)
@given(head=JSON.map(lambda value: json.dumps(value).encode()) | st.binary() | st.just(b"[" * 60_000))
def test_any_head_at_all_is_answered_with_an_error_of_ours(
    tmp_path_factory: pytest.TempPathFactory, head: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.session"
    path.write_bytes(joined(head, b""))
    with path.open("rb") as file, pytest.raises(FormatError):
        saved._read_head(path, file, path.stat().st_size, hashlib.sha256())


def test_a_stranger_cannot_speak_to_the_terminal(file: Path, folder: Path, session: Session) -> None:
    path = folder / "escape.session"
    made = split(file.read_bytes())[0]["made"]
    path.write_bytes(edited(file, made={**made, "target": ["\x1b[2J" + "x" * 999, "\x07"]}))
    error = refused(session, path, "saved with the target")
    assert "\x1b" not in str(error)
    assert "\x07" not in str(error)
    assert len(str(error)) < 400


@pytest.mark.parametrize("arch", ["llama", "gemma3", "mamba", "lfm2", "kimi_linear"])
def test_states_of_nonsense_with_a_right_digest_end_nothing(
    folder: Path, arch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "gguf.GGUFWriter.add_tokenizer_model", lambda writer, _: tiny_session.add_tokens(writer)
    )
    n_vocab, path = len(tiny_session.tokens()), folder / f"{arch}.bad"
    target = getattr(tiny_models, arch)(folder / f"bad-{arch}.gguf", n_vocab)
    rng, taken = random.Random(0), 0
    with Model.load(target, threads=1) as model, model.session(n_ctx=256) as session:
        session.generate(PROMPT, **GREEDY).result()
        session.save(path)
        history = session.engine.history
        head, rest = split(path.read_bytes())
        begin = 4 * head["n_history"]
        for _ in range(60):
            path.write_bytes(joined(head, _broken(rest, begin, rng)))
            try:
                session.load(path)
            except FormatError:
                assert session.engine.cached == (0, 0)
                assert session.engine.history == []
                continue
            taken += 1
            with suppress(DecodeError):  # numbers that are none
                session.generate([*history, 97], max_tokens=3, temperature=0).result()
        assert 0 < taken < 60
        still_works(session)


def _broken(rest: bytes, begin: int, rng: random.Random) -> bytes:
    """A few numbers changed, mostly among those that libllama reads as counts, positions and types."""
    data = bytearray(rest)
    for _ in range(rng.choice([1, 1, 2, 5])):
        size = len(rest) - begin
        at = begin + 4 * rng.randrange(min(size, 900) // 4 if rng.random() < 0.8 else size // 4)
        value = rng.choice([0, 1, -1, 2**31 - 1, -(2**31), 255, 1000, -5, rng.randrange(2**31)])
        data[at : at + 4] = value.to_bytes(4, "little", signed=True)
    return bytes(data)
