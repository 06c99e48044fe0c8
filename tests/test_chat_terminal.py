"""The chat as a person has it: piped lines, and a pseudo-terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
ARGS = ("--temperature", "0", "--max-tokens", "24", "--n-ctx", "1024", "-o", "threads=1")


def test_piped_lines_are_messages_and_stdout_is_the_answers_alone(smollm2: Path, tmp_path: Path) -> None:
    file = tmp_path / "talk.json"
    lines = ["Say hello.", "/regen", "And now in French.", f"/save {file}", "/nonsense"]
    done = subprocess.run(
        [sys.executable, "-m", "gguftools", "chat", *ARGS, "--draft", str(smollm2), "--draft-tokens", "5"],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        cwd=REPO,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    messages = json.loads(file.read_text("utf-8"))["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant"] * 2
    first, second = messages[1]["content"], messages[3]["content"]
    assert done.stdout == "".join(f"{text.rstrip(chr(10))}\n" for text in (first, first, second))
    assert done.stderr.count("tokens per step") == 3
    assert "/nonsense: no such command" in done.stderr


PROMPT = r"\x1b\[0m>"


class Terminal:
    """A process in a pseudo-terminal: type, and wait for what appears."""

    def __init__(self, *args: str, env: Mapping[str, str]) -> None:
        pid, self.fd = pty.fork()
        if pid == 0:
            os.chdir(REPO)
            os.execve(sys.executable, [sys.executable, "-m", "gguftools", *args], dict(env))
        self.pid = pid
        self.shown = ""

    def wait_for(self, pattern: str, seconds: float = 60) -> str:
        """Reads until `pattern` appears; returns what came before its end, and forgets it."""
        end = time.monotonic() + seconds
        while not (match := re.search(pattern, self.shown)):
            assert time.monotonic() < end, f"no {pattern!r} in {self.shown!r}"
            if select.select([self.fd], [], [], 0.1)[0]:
                data = os.read(self.fd, 65536)
                if b"\x1b[6n" in data:  # where is the cursor?
                    os.write(self.fd, b"\x1b[1;1R")
                self.shown += data.decode("utf-8", "replace")
        seen, self.shown = self.shown[: match.end()], self.shown[match.end() :]
        return seen

    def type(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    def exit_code(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_in_a_terminal_ctrl_c_stops_an_answer_and_ctrl_d_leaves(smollm2: Path, tmp_path: Path) -> None:
    env = {**os.environ, "TERM": "xterm-256color", "XDG_STATE_HOME": str(tmp_path), "NO_COLOR": ""}
    args = ("--draft", str(smollm2), "--draft-tokens", "5", "--temperature", "0", "-o", "threads=1")
    terminal = Terminal("chat", *args, env=env)
    terminal.wait_for("Ctrl-D leaves")
    terminal.wait_for(PROMPT)
    terminal.type("Write a very long story about the sea.\r")  # greedily it has no end
    terminal.wait_for("\x1b\\[32m")  # an accepted draft token in green
    terminal.type("zyx")
    time.sleep(0.3)
    terminal.type("\x03")
    answer = terminal.wait_for("stopped")
    assert "zyx" not in answer
    assert "^C" not in answer
    terminal.wait_for(PROMPT)
    terminal.type("Say\x1b\rhello.\r")
    assert "tok/s" in terminal.wait_for("tokens per step", 90)
    terminal.wait_for(PROMPT)
    terminal.type("\x04")
    assert terminal.exit_code() == 0
    history = (tmp_path / "gguftools" / "chat_history").read_text("utf-8")
    assert "+Write a very long story about the sea.\n" in history
    assert "+Say\n+hello.\n" in history
