"""The command line ends in order on SIGTERM and SIGHUP; names of any bytes are paths like others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_session

from gguftools import Model

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs POSIX")

WRITE = """
import pathlib, sys, time
from gguftools import goal
from gguftools.cli import signals
signals.end_in_order()
with goal.new_file(pathlib.Path(sys.argv[1]), 3) as file:
    file.write(b"abc")
    print("writing", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_end_leaves_nothing_half_written(tmp_path: Path, number: int) -> None:
    command = [sys.executable, "-c", WRITE, str(tmp_path / "x.gguf")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert list(tmp_path.iterdir())
        process.send_signal(number)
        assert process.wait(20) == 128 + number
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="file names are bytes")
@pytest.mark.usefixtures("real_api")
def test_a_file_whose_name_is_no_text_loads_and_is_shown_as_text(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"bad\xff.gguf")
    tiny_session.write(path)
    Model.load(path, threads=1).close()
    env = {**os.environ, "PYTHONIOENCODING": "utf-8:surrogateescape"}
    command = [sys.executable, "-m", "gguftools", "check", "--json", str(path)]
    done = subprocess.run(command, capture_output=True, env=env, check=False)
    assert json.loads(done.stdout.decode("utf-8"))["reports"][0]["target"].endswith("bad?.gguf")
