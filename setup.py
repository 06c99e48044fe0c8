"""Builds the one extension: gguftools/_native.pyx with csrc/*. It links nothing of llama.cpp."""

import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

MSVC = sys.platform == "win32"
# No -std flag: one extension holds C and C++, and clang refuses a C standard on a C++ file.
# /EHs without c: functions of libllama are extern "C" and may throw all the same.
FLAGS = (
    ["/O2", "/EHs", "/EHc-"]
    if MSVC
    else ["-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fvisibility=hidden"]
)

csrc = sorted(str(p) for p in Path("csrc").glob("*.c*"))
native = Extension(
    "gguftools._native",
    sources=["gguftools/_native.pyx", *csrc],
    depends=sorted(map(str, [*Path("gguftools").glob("*.px[id]"), *Path("csrc").glob("*.h")])),
    include_dirs=["csrc"],
    extra_compile_args=FLAGS,
)

setup(ext_modules=cythonize([native], language_level=3))
