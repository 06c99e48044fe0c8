"""Fixtures: the real assets (skipped with a reason where they are missing) and the shared data folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gguftools import assets, errors

REPO = Path(__file__).resolve().parent.parent


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
