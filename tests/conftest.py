"""Fixtures: the real assets (skipped with a reason where missing), the shared data folder, a small Hub."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from gguftools import assets, errors

if TYPE_CHECKING:
    from hub_server import Hub

    from gguftools import Model, Session
    from gguftools.vocab import Vocab

REPO = Path(__file__).resolve().parent.parent
FULL = 2_000_000, 3_000  # characters counted, tokens read for a Unit


@pytest.fixture(scope="session", autouse=True)
def signals() -> None:
    """The tests mean the usual answers to signals; a shell's background job or nohup ignores some."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What tests learn about their models' costs is not kept for the user's own programs."""
    from gguftools.session import learned

    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache))  # of the processes that tests start
        patch.setattr(learned, "user_cache_path", lambda name: cache / name)
        yield


@pytest.fixture(scope="module", autouse=True)
def short_texts(request: pytest.FixtureRequest) -> Iterator[None]:
    """transplant counts and reads little text: its tests are about rules. `full_texts` gives it all."""
    if not request.module.__name__.startswith(("test_transplant", "test_demo")):
        yield
        return
    from gguftools.verbs.transplant import calibrate, text

    one = SimpleNamespace(physical_cores=lambda: 1)  # threads of a busy machine spin
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "MAX_COUNTED", 20_000)
        patch.setattr(calibrate, "UNIT_TOKENS", 300)
        patch.setattr(calibrate, "hardware", one)
        yield


@pytest.fixture
def full_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """All the text that transplant has for its users."""
    from gguftools.verbs.transplant import calibrate, text

    monkeypatch.setattr(text, "MAX_COUNTED", FULL[0])
    monkeypatch.setattr(calibrate, "UNIT_TOKENS", FULL[1])


@pytest.fixture(scope="session")
def smollm2() -> Path:
    try:
        return assets.smollm2()
    except errors.NotFound as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def kimi_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return assets.kimi_k2(tmp_path_factory.mktemp("kimi"))
    except errors.NotFound as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def kimi(kimi_folder: Path) -> Vocab:
    """Kimi-K2's vocabulary."""
    from gguftools.vocab import Vocab

    return Vocab.from_checkpoint(kimi_folder)


@pytest.fixture(scope="session")
def qwen() -> Vocab:
    """Qwen2.5-Coder's vocabulary."""
    from vocabularies import QWEN, real_gguf

    from gguftools.vocab import Vocab

    return Vocab.from_gguf(real_gguf(QWEN))


@pytest.fixture(scope="session")
def smol(smollm2: Path) -> Vocab:
    """SmolLM2's vocabulary."""
    from gguftools.vocab import Vocab

    return Vocab.from_gguf(smollm2)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny tokenizer, for a transplant."""
    import transplants

    return transplants.write_target(tmp_path_factory.mktemp("target"))


@pytest.fixture
def donor(tmp_path: Path) -> Path:
    """A tiny random Llama as a GGUF, for a transplant; the checkpoint that it was made from is beside it."""
    import transplants

    (tmp_path / "in").mkdir()
    return transplants.donor_gguf(tmp_path / "in")


@pytest.fixture
def out(tmp_path: Path) -> Iterator[Path]:
    """The place of a draft. What is beside it at the end are the files of this test and no others."""
    (tmp_path / "out").mkdir()
    yield tmp_path / "out" / "draft.gguf"
    assert not [path for path in (tmp_path / "out").iterdir() if path.name.startswith(".")]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    folder = REPO.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the shared data folder is not beside this checkout")
    return folder


@pytest.fixture
def real_api() -> Iterator[None]:
    """The engine's table holds libllama's functions before and after the test, whatever that installs."""
    import llama_api

    llama_api.install()
    yield
    llama_api.install()


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A small Hub on this machine, with an empty cache in tmp_path."""
    import huggingface_hub.constants
    from hub_server import serve

    with serve() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr("time.sleep", lambda _seconds: None)
        yield server


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """A tiny random pair, loaded."""
    import tiny_session

    from gguftools import Model

    folder = tmp_path_factory.mktemp("pair")
    target = tiny_session.write(folder / "target.gguf")
    draft = tiny_session.write(folder / "draft.gguf", seed=1)
    with Model.load(target, draft, threads=1) as model:
        yield model


@pytest.fixture
def session(model: Model) -> Iterator[Session]:
    with model.session(n_ctx=512) as session:
        yield session


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny tokenizer.json."""
    import tiny

    return tiny.write_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture
def llama(tmp_path: Path, tokenizer: Path) -> Path:
    """A tiny random Llama checkpoint."""
    import tiny

    return tiny.write_checkpoint(
        tmp_path / "llama", tiny.LLAMA, tiny.weights(tiny.LLAMA), tokenizer=tokenizer
    )


@pytest.fixture
def whole(tmp_path: Path, llama: Path) -> list[bytes]:
    """The shards of the tiny Llama's conversion when nothing stops it."""
    import splits

    (tmp_path / "whole").mkdir()
    found = splits.content(splits.run(llama, tmp_path / "whole" / "m.gguf"))
    assert len(found) > 4
    return found
