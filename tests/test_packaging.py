"""The source distribution is complete, its wheel works, and the metadata agrees with the tree."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import gguftools
from gguftools import _pyinstaller

REPO = Path(__file__).resolve().parent.parent
NOT_SOURCE = shutil.ignore_patterns(
    ".git", ".venv*", "build", "dist", "wheelhouse", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis",
    "*.so", "*.pyd", "_native.c", "_native.cpp", "*.gguf", "*.log",
)  # fmt: skip
BUILD = "import sys; from setuptools import build_meta; print(build_meta.{what}(sys.argv[1]))"


def build(what: str, tree: Path, goal: Path) -> Path:
    """Calls the build backend as pip and `build` do, in `tree`; the archive that lies in `goal` then."""
    code = BUILD.format(what=what)
    done = subprocess.run([sys.executable, "-c", code, goal], cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return goal / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked source distribution."""
    pytest.importorskip("Cython", reason="building needs cython and setuptools")
    pytest.importorskip("setuptools", reason="building needs cython and setuptools")
    folder = tmp_path_factory.mktemp("sdist")
    shutil.copytree(REPO, folder / "tree", ignore=NOT_SOURCE)
    archive = build("build_sdist", folder / "tree", folder)
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def test_the_sdist_holds_every_file_of_the_tree(sdist: Path) -> None:
    tree = sdist.parent / "tree"
    wanted = {str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()}
    wanted = {name for name in wanted if not name.startswith((".git", "gguftools.egg-info"))}
    wanted.discard("gguftools/_native.c")  # made by the build
    wanted.discard("gguftools/_native.cpp")
    missing = {name for name in wanted if not (sdist / name).is_file()}
    assert not missing


def test_the_wheel_of_the_sdist_works_on_its_own(sdist: Path, tmp_path: Path) -> None:
    wheel = build("build_wheel", sdist, tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    site = tmp_path / "site"
    assert (site / "gguftools/py.typed").is_file()
    assert (site / "gguftools/_native.pyi").is_file()
    assert (site / "gguftools/models/calibration-zh.txt").is_file()
    assert (site / "gguftools/_pyinstaller/hook-gguftools.py").is_file()
    assert not list(site.glob("gguftools/*.pyx")) + list(site.glob("tests"))
    code = (
        f"import sys; sys.path.insert(0, {str(site)!r}); import gguftools._native, gguftools.recipes as r;"
        f"assert gguftools.__file__.startswith({str(site)!r}), gguftools.__file__;"
        "assert r.load('kimi-k2')['vocab_size'] == 163840;"
        "from gguftools.cli import main; main(['--help'])"
    )
    shown = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("Usage: gguftools")


def test_the_metadata_names_every_package_and_the_version() -> None:
    text = (REPO / "pyproject.toml").read_text("utf-8")
    listed = re.search(r"^packages = \[(.*?)\]", text, re.DOTALL | re.MULTILINE)
    assert listed is not None
    packages = set(ast.literal_eval(f"[{listed[1]}]"))
    found = {".".join(p.parent.relative_to(REPO).parts) for p in (REPO / "gguftools").rglob("__init__.py")}
    assert packages == found | {"gguftools.models"}
    assert f'version = "{gguftools.__version__}"' in text


def test_pyinstaller_finds_the_hook() -> None:
    (folder,) = _pyinstaller.hook_dirs()
    names = {
        node.id for node in ast.walk(ast.parse((Path(folder) / "hook-gguftools.py").read_text("utf-8")))
        if isinstance(node, ast.Name)
    }  # fmt: skip
    assert {"hiddenimports", "datas", "binaries"} <= names
    for entry in entry_points(group="pyinstaller40", name="hook-dirs"):
        if entry.module.startswith("gguftools"):
            assert entry.load()() == [folder]


def test_ci_and_readme_use_the_same_commands() -> None:
    ci = (REPO / ".ci/run").read_text("utf-8")
    readme = (REPO / "README.md").read_text("utf-8")
    assert "\nmake test\nmake lint\n" in ci
    assert "make test" in readme
    targets = set(re.findall(r"^([a-z-]+):", (REPO / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert {"demo", "test", "lint", "bench", "test-offload"} <= targets


def test_no_file_names_a_machine_or_a_registry() -> None:
    # Put together here, so that this file does not name them either.
    forbidden = re.compile(
        "|".join(
            ["/wo" + "rk/", "/ro" + "ot/", "pypi" + r"\.org", "files.python" + "hosted", "/opt/" + "pypi"]
        )
    )
    for path in REPO.rglob("*"):
        parts = path.relative_to(REPO).parts
        if any(part.startswith((".venv", ".git", "build", "dist", "__pycache__")) for part in parts):
            continue
        if path.suffix in (
            ".py",
            ".pyx",
            ".pxd",
            ".pxi",
            ".pyi",
            ".c",
            ".h",
            ".cpp",
            ".md",
            ".toml",
            ".in",
        ) or path.name in ("Makefile", "run"):
            assert not forbidden.search(path.read_text("utf-8")), path
