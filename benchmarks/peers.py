"""Other programs that draft, asked as `bench` asks: llama-server, and llama-cpp-python's prompt lookup."""

from __future__ import annotations

import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from llama_cpp import Llama
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

from gguftools.libllama import hardware
from gguftools.verbs.bench.runs import Ask, Run
from gguftools.verbs.bench.servers import Server, connect

PATIENCE = 300.0  # seconds for a server to load its models


@contextmanager
def running(program: Path, target: Path, draft: Path) -> Iterator[Server]:
    """A llama-server on this machine with its own draft settings; ended with the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    threads = str(hardware.physical_cores())
    process = subprocess.Popen(
        [
            program, "-m", target, "-md", draft, "--spec-type", "draft-simple", "-np", "1", "-t", threads,
            "-tb", threads, "-c", "1024", "-lm", "mlock", "--host", "127.0.0.1", "--port", str(port),
            "--metrics",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait(f"http://127.0.0.1:{port}/health", process)
        yield connect(f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait(30)


def wait(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if process.poll() is not None:
            raise SystemExit(f"llama-server ended with {process.returncode}")
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            pass
        time.sleep(0.5)
    raise SystemExit("llama-server did not get ready")


def lookup_way(target: Path, prompts: Sequence[Sequence[int]]) -> Ask:
    """llama_cpp.Llama with prompt lookup at its defaults, greedy; each time from an empty cache."""
    threads = hardware.physical_cores()
    llama = Llama(
        str(target), n_ctx=2048, n_batch=2048, n_threads=threads, n_threads_batch=threads, use_mlock=True,
        logits_all=True, draft_model=LlamaPromptLookupDecoding(), verbose=False,
    )  # fmt: skip
    end = llama.token_eos()

    def ask(prompt: int, max_tokens: int) -> Run:
        llama.reset()
        began, tokens, first = time.perf_counter(), [], 0.0
        for token in llama.generate(list(prompts[prompt]), temp=0.0):
            if not tokens:
                first = time.perf_counter()
            tokens.append(int(token))
            if len(tokens) == max_tokens or token == end:
                break
        done = time.perf_counter()
        return Run("", len(tokens), 1000 * (done - first), 1000 * (first - began), tokens=tuple(tokens))

    return ask
