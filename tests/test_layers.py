"""Who may import whom, read from the syntax trees; and the public names in every order of access."""

from __future__ import annotations

import ast
import itertools
import subprocess
import sys
from pathlib import Path

import pytest

import gguftools

PACKAGE = Path(gguftools.__file__).parent

# From the left to the right: each module imports only from its own layer or from one to its right.
LAYERS = [
    {"cli", "__main__"},
    {"verbs.bench", "verbs.scout", "verbs.transplant", "verbs.demo", "verbs.info"},
    {"session"},
    {"verbs.convert", "verbs.quantize", "verbs.export", "verbs.edit"},
    {"verbs.check"},
    {"template", "vocab", "checkpoint", "arch", "gguf_write"},
    {"header", "hub", "libllama"},
    {"_native", "errors", "recipes", "assets", "goal", "flush", "intervals"},
]
ONLY_IMPORTERS = {
    "llama_cpp": {"libllama.compat"},
    "rich": {"cli.ui"},
    "prompt_toolkit": {"cli.chat"},
    "huggingface_hub": {"hub", "hub.http"},
    "matplotlib": {"verbs.bench.plot"},
}
FORBIDDEN_BELOW_CLI = {"click", "rich", "prompt_toolkit"}


def modules() -> dict[str, Path]:
    """Dotted name without `gguftools.` → file, for every module of the package."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = list(path.relative_to(PACKAGE).with_suffix("").parts)
        if parts[0] in ("_pyinstaller", "models"):
            continue
        if parts[-1] == "__init__":
            parts.pop()
        found[".".join(parts)] = path
    return found


def imports(name: str, path: Path, *, at_load: bool = False) -> set[str]:
    """Every module that `path` imports: ours as `gguftools.…`; `at_load`: its top level's alone."""
    tree = ast.parse(path.read_text("utf-8"))
    package = ["gguftools", *(name.split(".") if name else [])]
    if path.name != "__init__.py":
        package.pop()
    found = set()
    for node in tree.body if at_load else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = [*base, *(node.module.split(".") if node.module else [])]
            found |= {".".join(base), *(".".join([*base, alias.name]) for alias in node.names)}
    return found


def ours(name: str, path: Path, *, at_load: bool = False) -> set[str]:
    """The same for our own modules alone, without `gguftools.`."""
    return {i[10:] for i in imports(name, path, at_load=at_load) if i.startswith("gguftools.")}


def layer(name: str) -> int | None:
    """The index of the layer that `name` (without `gguftools.`) is in; None for a name that is no module."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        prefix = ".".join(parts[:end])
        for i, members in enumerate(LAYERS):
            if prefix in members:
                return i
    return None


MODULES = modules()


@pytest.mark.parametrize("name", sorted(set(MODULES) - {"", "verbs"}))
def test_a_module_has_a_layer_and_imports_nothing_to_its_left(name: str) -> None:
    mine = layer(name)
    assert mine is not None, f"{name} is in no layer"
    for other in ours(name, MODULES[name]):
        theirs = layer(other)
        if theirs is not None:
            assert theirs >= mine, f"{name} imports {other}"


def test_no_two_modules_need_each_other_to_load() -> None:
    graph = {
        name: (ours(name, path, at_load=True) & MODULES.keys()) - {name} for name, path in MODULES.items()
    }
    done: set[str] = set()

    def visit(name: str, way: tuple[str, ...]) -> None:
        assert name not in way, " → ".join([*way, name])
        if name not in done:
            for other in sorted(graph[name]):
                visit(other, (*way, name))
            done.add(name)

    for name in graph:
        visit(name, ())


@pytest.mark.parametrize("library", ONLY_IMPORTERS)
def test_a_library_is_imported_only_where_the_design_says(library: str) -> None:
    importers = {
        name for name, path in MODULES.items() if any(i.split(".")[0] == library for i in imports(name, path))
    }
    assert importers <= ONLY_IMPORTERS[library]


def test_nothing_below_the_command_line_prints_exits_or_reads_the_arguments() -> None:
    for name, path in MODULES.items():
        if layer(name) == 0:
            continue
        assert not {i.split(".")[0] for i in imports(name, path)} & FORBIDDEN_BELOW_CLI, name
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) not in ("print", "sys.exit", "exit", "quit", "input"), name
            if isinstance(node, ast.Attribute):
                assert ast.unparse(node) != "sys.argv", name


def test_a_file_has_at_most_350_lines_and_a_function_at_most_60() -> None:
    for name, path in MODULES.items():
        text = path.read_text("utf-8")
        assert text.count("\n") <= 350, name
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert (node.end_lineno or 0) - node.lineno < 60, f"{name}: {node.name}"


def test_no_public_name_is_also_a_module_beside_the_package() -> None:
    for name in gguftools._WHERE:
        assert not (PACKAGE / f"{name}.py").exists()
        assert not (PACKAGE / name).exists()


def test_importing_the_package_loads_nothing_else() -> None:
    code = (
        "import sys; old = set(sys.modules); import gguftools;"
        "new = {m.split('.')[0] for m in set(sys.modules) - old};"
        "assert new <= {'gguftools'} | set(sys.stdlib_module_names), new;"
        "assert not any(m.startswith('gguftools.') for m in sys.modules), sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=PACKAGE.parent)


def test_public_names_are_the_same_in_every_order_of_access() -> None:
    """Importing a module binds its name in its package: `gguftools.check` must stay the function."""
    functions = {name: where for name, where in gguftools._WHERE.items() if name.islower()}
    orders = [
        "import gguftools.{module}; import gguftools; got = gguftools.{name}",
        "import gguftools; got = gguftools.{name}; import gguftools.{module}; assert gguftools.{name} is got",
        "from gguftools import {name} as got; import gguftools.{module}, gguftools",
        "import gguftools.verbs, gguftools; from gguftools.{module} import {name} as got",
        "from gguftools.{module} import *; import gguftools; got = gguftools.{name}",
    ]
    lines = [
        "import sys",
        "def forget():",
        "    for m in [m for m in sys.modules if m.split('.')[0] == 'gguftools']:",
    ]
    lines += ["        if m != 'gguftools._native': del sys.modules[m]"]
    for (name, module), order in itertools.product(functions.items(), orders):
        lines += ["forget()", order.format(name=name, module=module)]
        lines += [f"assert callable(got) and got is gguftools.{name} and got.__name__ == {name!r}"]
    pairs = itertools.permutations(functions, 2)
    for first, second in pairs:
        lines += ["forget()", "import gguftools", f"gguftools.{first}; gguftools.{second}"]
        lines += [f"assert callable(gguftools.{first}) and callable(gguftools.{second})"]
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, cwd=PACKAGE.parent)


def test_every_public_name_resolves_and_a_wrong_one_is_an_attribute_error() -> None:
    for name in gguftools.__all__:
        assert getattr(gguftools, name) is not None
    assert dir(gguftools) == sorted(gguftools.__all__)
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        gguftools.no_such_name  # noqa: B018
