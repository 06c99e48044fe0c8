"""`gguftools chat`: a conversation in the terminal. The only file that uses prompt_toolkit.

Without prompt_toolkit, and where stdin is no terminal, lines are read plainly.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from . import ui
from .commands import COMMANDS, Chat
from .kinds import name
from .options import KEYS_HELP, NONE, model_options, open_model, split_options

PROMPT, MORE = "> ", "… "
QUOTES = '"""'
Ask = Callable[[str], str]


@click.command(name="chat", epilog=KEYS_HELP)
@click.argument("target", type=name, required=False)
@click.option("--system", default="", metavar="TEXT", help="The system message.")
@model_options
def command(target: str | None, system: str, draft: str | None, offline: bool, **options: Any) -> None:
    """Chat with TARGET; without it with SmolLM2, where that is installed.

    /help lists the commands. Alt+Enter begins a new line, as does a \\ at the end of a line; between two
    lines of \"\"\" a text may have any lines. Ctrl-C stops an answer and keeps it, Ctrl-D leaves.
    """
    load, request = split_options(options)
    load.setdefault("ngram", draft != NONE)  # a conversation quotes itself
    if target is None:
        from .. import assets

        target = str(assets.smollm2())
    with open_model(target, draft, load, offline=offline) as model, model.session() as session:
        chat = Chat(session, request, system)
        ui.note(f"{Path(target).name} · context {session.n_ctx:,} tokens · /help, Ctrl-D leaves")
        _loop(chat, _reader())


def _loop(chat: Chat, ask: Ask) -> None:
    while not chat.done:
        try:
            text = read_message(ask)
        except EOFError:
            break
        except KeyboardInterrupt:
            ui.note("Ctrl-D leaves")
            continue
        if text.strip():
            chat.take(text)


def read_message(ask: Ask) -> str:
    """One message of one or more lines. Raises EOFError at the end of the input, when nothing was begun."""
    text = ask(PROMPT)
    if text.strip() == QUOTES:
        return _until_quotes(ask)
    try:
        while text.endswith("\\"):
            text = text[:-1] + "\n" + ask(MORE)
    except EOFError:
        text = text[:-1]
    return text


def _until_quotes(ask: Ask) -> str:
    lines: list[str] = []
    try:
        while (line := ask(MORE)).strip() != QUOTES:
            lines.append(line)
    except EOFError:
        pass
    return "\n".join(lines)


def _reader() -> Ask:
    if not sys.stdin.isatty():
        return _piped
    if find_spec("prompt_toolkit") is None:
        ui.note("for editing and history: python -m pip install 'gguftools[chat]'")
        return _plain
    return _editor()


def _piped(_prompt: str) -> str:
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")


def _plain(prompt: str) -> str:
    ui.write(prompt, channel="err")
    return input()


def _editor() -> Ask:
    """prompt_toolkit on stderr: Enter sends, Alt+Enter begins a new line, Tab completes commands."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.history import FileHistory
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    from prompt_toolkit.output import create_output
    from prompt_toolkit.shortcuts import CompleteStyle

    keys = KeyBindings()

    @keys.add("enter")
    def _send(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    session: PromptSession[str] = PromptSession(
        history=FileHistory(str(_history())),
        multiline=True,
        prompt_continuation=MORE,
        key_bindings=keys,
        completer=WordCompleter([f"/{name}" for name in COMMANDS], sentence=True),
        complete_while_typing=False,
        complete_style=CompleteStyle.READLINE_LIKE,  # a menu would keep lines free below the prompt
        output=create_output(sys.stderr),
    )
    return session.prompt


def _history() -> Path:
    """The history file, readable by its owner alone."""
    from platformdirs import user_state_path

    path = user_state_path("gguftools", appauthor=False, ensure_exists=True) / "chat_history"
    path.touch(mode=0o600)
    return path
