"""Offload, proven with ggml's RPC devices, which llama.cpp treats as GPUs: `make test-offload` runs it.

Skipped where the installed llama-cpp-python was built without -DGGML_RPC=on. Two workers on loopback stand
for two GPUs. Where tensors went is taken from llama.cpp's own log of the load.
"""

from __future__ import annotations

import ctypes
import logging
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import tiny_session

from gguftools import Model
from gguftools.errors import AbiMismatch
from gguftools.header import read_header
from gguftools.libllama import compat, devices

FIXED: Any = {"draft_tokens": 5, "draft_p_min": 0.0}


pytestmark = pytest.mark.usefixtures("real_api", "gpus")
WORKER = Path(__file__).with_name("rpc_worker.py")
ANSWER = {"max_tokens": 24, "temperature": 0.0, "draft_p_min": 0.0}


def buffer_of(gpu: str) -> str:
    """The buffer type of a device: those of RPC devices carry the worker's address, in the devices' order."""
    names = [name for name in devices.buffer_types() if name.startswith("RPC")]
    return names[int(gpu.removeprefix("RPC"))]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int, worker: subprocess.Popen[bytes]) -> None:
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert worker.poll() is None, "the worker ended"
        time.sleep(0.05)
    raise AssertionError("the worker does not answer")


def forget_devices() -> None:
    """Takes all RPC devices off the list, since asking one whose worker is gone ends the process."""
    backend_of = compat.function("ggml_backend_dev_backend_reg", ctypes.c_void_p, ctypes.c_void_p)
    device = next(device for device in devices.devices() if device.name.startswith("RPC"))
    compat.function("ggml_backend_unload", None, ctypes.c_void_p)(backend_of(device.handle))


@pytest.fixture(scope="module")
def gpus() -> Iterator[tuple[str, str]]:
    """The names of two RPC devices, each with a worker of its own."""
    try:
        add = compat.function("ggml_backend_rpc_add_server", ctypes.c_void_p, ctypes.c_char_p)
    except AbiMismatch:
        pytest.skip("this build of llama-cpp-python has no RPC backend; `make test-offload` builds one")
    register = compat.function("ggml_backend_register", None, ctypes.c_void_p)
    folder = Path(compat.library()._base_path)
    with ExitStack() as stack:
        for _ in range(2):
            port = free_port()
            worker = stack.enter_context(
                subprocess.Popen([sys.executable, WORKER, folder, str(port)], stdout=subprocess.DEVNULL)
            )
            stack.callback(worker.terminate)
            wait_for(port, worker)
            register(add(f"127.0.0.1:{port}".encode()))
        stack.callback(forget_devices)  # before the workers end
        found = [device.name for device in devices.devices() if device.name.startswith("RPC")]
        assert len(found) == 2
        yield found[0], found[1]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_session.write(tmp_path_factory.mktemp("offload") / "target.gguf", n_layer=4)


@pytest.fixture(scope="module")
def draft(target: Path) -> Path:
    return tiny_session.write(target.with_name("draft.gguf"), n_layer=2)


@pytest.fixture(scope="module")
def moe(target: Path) -> Path:
    return tiny_session.write(target.with_name("moe.gguf"), arch="qwen3moe", n_layer=3)


class Loads:
    """What the log says about each load: layers by device, bytes by buffer, overridden tensors."""

    def __init__(self, log: pytest.LogCaptureFixture) -> None:
        log.set_level(logging.DEBUG, "gguftools.llama")
        self.log = log

    def lines(self) -> list[list[str]]:
        found: list[list[str]] = []
        for record in self.log.records:
            if "loaded meta data" in record.message:
                found.append([])
            if found:
                found[-1].append(record.message)
        return found

    def layers(self) -> list[list[str]]:
        pattern = re.compile(r"layer +\d+ assigned to device (\w+)")
        return [[m[1] for line in load if (m := pattern.search(line))] for load in self.lines()]

    def buffers(self) -> list[dict[str, float]]:
        pattern = re.compile(r"load_tensors: +(\S+) model buffer size = +([\d.]+) MiB")
        return [{m[1]: float(m[2]) for line in load if (m := pattern.search(line))} for load in self.lines()]

    def overridden(self) -> list[dict[str, str]]:
        pattern = re.compile(r"tensor (\S+) .*buffer type overridden to (\S+)")
        return [{m[1]: m[2] for line in load if (m := pattern.search(line))} for load in self.lines()]


@pytest.fixture
def loads(caplog: pytest.LogCaptureFixture) -> Loads:
    return Loads(caplog)


def answer(model: Model) -> tuple[int, ...]:
    with model.session(n_ctx=128) as session:
        result = session.generate("the thing", **ANSWER).result()  # type: ignore[arg-type]
        assert not result.stats.draft_failed
        return result.tokens


def test_rpc_devices_count_as_gpus(gpus: tuple[str, str]) -> None:
    kinds = {device.name: device.kind for device in devices.devices()}
    assert kinds[gpus[0]] == kinds[gpus[1]] == "gpu"
    assert devices.placement(None).gpu_layers == -1
    assert devices.placement(3).gpu_layers == 3


def test_target_and_draft_land_on_the_devices_that_were_named_for_each(
    target: Path, draft: Path, gpus: tuple[str, str], loads: Loads
) -> None:
    with Model.load(target, draft, devices=(), draft_devices=(), threads=1) as model:
        expected = answer(model)
    assert loads.layers() == [["CPU"] * 5, ["CPU"] * 3]
    loads.log.clear()
    options = {"gpu_layers": "all", "draft_gpu_layers": "all"}
    pair = {"devices": gpus[:1], "draft_devices": gpus[1:]}
    with Model.load(target, draft, threads=1, **options, **pair) as model:  # type: ignore[arg-type]
        assert answer(model) == expected
    assert loads.layers() == [[gpus[0]] * 5, [gpus[1]] * 3]
    for buffers, name in zip(loads.buffers(), gpus, strict=True):
        assert buffers[buffer_of(name)] > 0


def test_a_part_of_the_layers_lands_there_and_the_rest_stays(
    target: Path, draft: Path, gpus: tuple[str, str], loads: Loads
) -> None:
    with Model.load(target, draft, devices=(), draft_devices=(), threads=1) as model:
        expected = answer(model)
    loads.log.clear()
    options = {"gpu_layers": 2, "draft_gpu_layers": 0, "devices": gpus[:1]}
    with Model.load(target, draft, threads=1, **options) as model:  # type: ignore[arg-type]
        assert answer(model) == expected
    assert loads.layers() == [["CPU"] * 3 + [gpus[0]] * 2, ["CPU"] * 3]


def test_all_layers_go_to_gpus_when_nothing_is_said(target: Path, loads: Loads) -> None:
    Model.load(target).close()
    assert "CPU" not in loads.layers()[0]


def test_tensor_split_shares_the_layers_out(target: Path, gpus: tuple[str, str], loads: Loads) -> None:
    Model.load(target, devices=gpus, tensor_split=[1, 4]).close()
    Model.load(target, devices=gpus, tensor_split=[4, 1]).close()
    few, many = (layers.count(gpus[0]) for layers in loads.layers())
    assert few < many


def nbytes(path: Path, pattern: str) -> float:
    """MiB of the tensors whose name matches."""
    return sum(t.nbytes for t in read_header(path).tensors if re.search(pattern, t.name)) / (1 << 20)


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ({"n_cpu_moe": "all"}, r"_exps"),
        ({"n_cpu_moe": 2}, r"blk\.[01]\..*_exps"),
        ({"override_tensor": [r"blk\.2\.ffn_.*_exps=CPU"]}, r"blk\.2\..*_exps"),
    ],
)
def test_experts_stay_in_main_memory_and_the_text_stays_the_same(
    moe: Path, gpus: tuple[str, str], loads: Loads, options: dict[str, object], pattern: str
) -> None:
    with Model.load(moe, devices=(), threads=1) as model:
        expected = answer(model)
    loads.log.clear()
    with Model.load(moe, gpu_layers="all", devices=gpus[:1], threads=1, **options) as model:  # type: ignore[arg-type]
        assert answer(model) == expected
    moved = {t.name for t in read_header(moe).tensors if re.search(pattern, t.name)}
    assert loads.overridden() == [dict.fromkeys(moved, "CPU")]
    assert loads.layers() == [[gpus[0]] * 4]
    [buffers] = loads.buffers()
    rest = nbytes(moe, "") - nbytes(moe, pattern) - nbytes(moe, "token_embd")
    assert buffers[buffer_of(gpus[0])] == pytest.approx(rest, abs=0.02)


def test_a_tensor_can_be_sent_to_a_named_devices_buffer(
    moe: Path, gpus: tuple[str, str], loads: Loads
) -> None:
    buffer = buffer_of(gpus[1])
    override = {r"blk\.0\.ffn_up_exps": buffer}
    Model.load(moe, gpu_layers="all", devices=gpus, tensor_split=[1, 0], override_tensor=override).close()
    assert loads.overridden() == [{"blk.0.ffn_up_exps.weight": buffer}]
    assert loads.buffers()[0][buffer] > 0


def test_smollm2_on_a_gpu_with_its_draft_on_another_answers_as_on_the_cpu(
    smollm2: Path, gpus: tuple[str, str], loads: Loads
) -> None:
    question = [{"role": "user", "content": "Name three primary colors."}]
    texts = []
    for one, two in ((gpus[:1], gpus[1:]), ((), ())):
        with (
            Model.load(smollm2, smollm2, devices=one, draft_devices=two, threads=1) as model,
            model.session(n_ctx=256) as session,
        ):
            texts.append(
                session.chat(question, temperature=0, max_tokens=16, draft_tokens=5, draft_p_min=0.0).result()
            )
    assert texts[0].tokens == texts[1].tokens
    assert texts[0].stats.acceptance_rate >= 0.9
    assert loads.layers()[0] == [gpus[0]] * 31
    assert loads.layers()[1] == [gpus[1]] * 31
