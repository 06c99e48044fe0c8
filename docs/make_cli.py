"""Writes docs/cli.md from the command line's own help: `make docs`."""

from __future__ import annotations

from pathlib import Path

import click

from gguftools.cli import VERBS, group

WIDTH = 100
HEAD = """# The command line

Written by `make docs` from `--help`; a test fails when it is stale.

stdout carries the result alone; progress, statistics, logs and warnings go to stderr. Exit codes: 0 done,
1 failed, 2 usage, 3 `check` found no usable draft, 130 interrupted. With `--json` a failure is
`{"schema": 1, "error": {"kind": …, "what": …, "why": …, "hint": …}}` on stdout. `NO_COLOR` is honoured.
"""


def help_of(command: click.Command, name: str, parent: click.Context | None = None) -> str:
    """What `--help` shows, at a fixed width."""
    context = click.Context(
        command, info_name=name, parent=parent, terminal_width=WIDTH, **command.context_settings
    )
    return command.get_help(context)


def render() -> str:
    """The whole page."""
    root = click.Context(group, info_name="gguftools", **group.context_settings)
    parts = [HEAD, f"```text\n{help_of(group, 'gguftools')}\n```\n"]
    for verb in VERBS:
        command = group.get_command(root, verb)
        assert command is not None
        parts.append(f"## gguftools {verb}\n\n```text\n{help_of(command, verb, root)}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    Path(__file__).with_name("cli.md").write_text(render(), "utf-8")
