"""llama_model_quantize: which type it gives each tensor of a file, asked where its end is not ours.

libllama ends the process for some headers that contradict themselves (GGML_ASSERT). So it runs in a Python of
its own, where there is one to start: not in a frozen program, and not in one that Python is embedded in.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .compat import complaints, library, log

APART = True  # False: in this process, always
_QUESTIONS, _ANSWERS = "questions.json", "answers.json"


@dataclass(frozen=True, slots=True)
class Question:
    """Files of a folder, a llama_ftype, and ggml's types for single tensors; None: llama.cpp's own choice."""

    src: str
    out: str
    file_type: int
    output_type: int | None = None
    embedding_type: int | None = None
    overrides: Sequence[tuple[str, int]] = ()  # (regular expression, type): the first found in a name holds
    weights: Mapping[str, int] | None = None  # an importance matrix of ones: how many for each tensor
    pure: bool = False


def ask(folder: Path, questions: Sequence[Question]) -> str:
    """Writes each `out`. Empty, or what libllama complains about at the first that it cannot write."""
    if not (APART and _has_python()):
        return _answer_all(folder, questions)
    (folder / _QUESTIONS).write_text(json.dumps([asdict(question) for question in questions]), "utf-8")
    code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import answer; answer({str(folder)!r})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, "GGML_NO_BACKTRACE": "1"},
        creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        check=False,
    )
    try:
        return str(json.loads((folder / _ANSWERS).read_text("utf-8")))
    except FileNotFoundError:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        fault = [line for line in lines if "GGML_" in line] or lines or [f"exit code {done.returncode}"]
        return f"it ended with: {fault[-1][fault[-1].find('GGML_') :]}"


def answer(folder: str) -> None:
    """What the other process does."""
    raw = json.loads(Path(folder, _QUESTIONS).read_text("utf-8"))
    why = _answer_all(Path(folder), [Question(**question) for question in raw])
    Path(folder, _ANSWERS).write_text(json.dumps(why), "utf-8")


def _has_python() -> bool:
    name = Path(sys.executable or "").stem.lower()
    return not getattr(sys, "frozen", False) and name.startswith(("python", "pypy"))


def _answer_all(folder: Path, questions: Sequence[Question]) -> str:
    return next((why for question in questions if (why := _quantize(folder, question))), "")


def _quantize(folder: Path, question: Question) -> str:
    lib = library()
    params = lib.llama_model_quantize_default_params()
    params.nthread, params.ftype, params.pure = 1, question.file_type, question.pure
    if question.output_type is not None:
        params.output_tensor_type = question.output_type
    if question.embedding_type is not None:
        params.token_embedding_type = question.embedding_type
    if question.overrides:
        rules = [(pattern.encode(), kind) for pattern, kind in question.overrides]
        params.tt_overrides = _ended(lib.llama_model_tensor_override, rules)
    if question.weights is not None:
        ones = np.ones(max(question.weights.values(), default=1), np.float32)
        data = ones.ctypes.data_as(ctypes.POINTER(ctypes.c_float))  # keeps the array
        entries = [(name.encode(), data, size) for name, size in question.weights.items()]
        params.imatrix = _ended(lib.llama_model_imatrix_data, entries)
    with complaints() as heard, _quiet():
        src, out = os.fsencode(folder / question.src), os.fsencode(folder / question.out)
        failed = lib.llama_model_quantize(src, out, params)
        said = [
            line.partition("failed to quantize: ")[2] or line for line in heard if str(folder) not in line
        ]
    return (said[-1] if said else "it does not say why") if failed else ""


def _ended(kind: Any, entries: Sequence[tuple[Any, ...]]) -> Any:
    """A C array whose last entry is zero."""
    return (kind * (len(entries) + 1))(*entries)


@contextmanager
def _quiet() -> Iterator[None]:
    """The quantizer's lines are not logged: they are about files of ours, whose names would mislead."""

    def drop(_record: logging.LogRecord) -> bool:
        return False

    log.addFilter(drop)
    try:
        yield
    finally:
        log.removeFilter(drop)
