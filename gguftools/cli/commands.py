"""The chat's state, one turn of it, and its /commands."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ..errors import ContextFull, GGUFToolsError, InputError
from . import ui
from .conversation import Conversation, read_text
from .options import REQUEST, parse_value

if TYPE_CHECKING:
    from ..session.results import Stats
    from ..session.session import Session
    from ..session.stream import Stream


class Chat:
    """A conversation with its session, its sampling and what was read for the next message."""

    def __init__(self, session: Session, request: dict[str, Any], system: str = "") -> None:
        self.session = session
        self.request = request
        self.conversation = Conversation(system)
        self.attached: list[str] = []
        self.saved: Path | None = None
        self.stats: list[Stats] = []
        self.sampling = ""  # the source of the values, as it was shown last
        self.green = True
        self.done = False

    def take(self, text: str) -> None:
        """One input: a command or a message. Errors and Ctrl-C are shown; they end nothing."""
        try:
            if text.startswith("/"):
                self._command(text)
            else:
                self.ask(text)
        except click.UsageError as error:
            ui.error(error.format_message())
        except ContextFull as error:
            ui.error(error.what, error.why, self._way_on())
        except KeyboardInterrupt:
            ui.note("interrupted; Ctrl-D leaves")
        except GGUFToolsError as error:
            ui.error(error.what, error.why, error.hint)
        except OSError as error:
            ui.error(f"{error.filename or ''}: {error.strerror or error}".lstrip(": "))

    def _way_on(self) -> str:
        """What helps when the context is too small; what /read brought would be in the way again."""
        if not self.attached:
            return "/clear begins a new conversation; a larger context: gguftools chat --n-ctx N"
        self.attached.clear()
        return "what /read brought was dropped; a larger context: gguftools chat --n-ctx N"

    def ask(self, text: str) -> None:
        """Sends `text`, after what /read has put before it, and keeps the answer, even a stopped one."""
        content = "\n\n".join([*self.attached, text])
        self.conversation.messages.append({"role": "user", "content": content})
        try:
            self._answer()
        except BaseException:
            self.conversation.messages.pop()
            raise
        self.attached.clear()

    def regenerate(self) -> None:
        """Answers the last message again."""
        messages = self.conversation.messages
        if not messages:
            raise InputError("/regen: there is no answer yet")
        old = messages.pop()
        try:
            self._answer()
        except BaseException:
            messages.append(old)
            raise

    def _answer(self) -> None:
        answer = ui.AnswerWriter(self.green)
        with self.session.chat(self.conversation.request(), **self.request) as stream:
            try:
                with _interrupt_cancels(stream), ui.unheard():
                    for token in stream:
                        answer.token(token)
            finally:
                answer.end()
        result = stream.result()
        message = {"role": "assistant", "content": result.text}
        if result.reasoning:
            message["reasoning_content"] = result.reasoning
        self.conversation.messages.append(message)
        self.stats.append(result.stats)
        stopped = {"cancelled": " · stopped", "length": " · the context or max_tokens is full"}
        stats = result.stats
        seed = "" if stats.seed is None else f" · seed {stats.seed}"
        ui.figures(ui.statistics(stats) + seed + stopped.get(result.finish_reason, ""))
        if stats.seed is not None and stats.sampling_source != self.sampling:
            self.sampling = stats.sampling_source
            ui.note(f"sampling from {self.sampling}; shown again when it changes")

    def _command(self, text: str) -> None:
        name, _, rest = text[1:].partition(" ")
        if name not in COMMANDS:
            raise InputError(f"/{name}: no such command", "", "/help lists them")
        COMMANDS[name].run(self, rest.strip())


@contextmanager
def _interrupt_cancels(stream: Stream) -> Iterator[None]:
    """Ctrl-C stops the answer, which then ends as a complete one does; a second one raises."""
    old = signal.getsignal(signal.SIGINT)

    def stop(_signal: int, _frame: object) -> None:
        signal.signal(signal.SIGINT, old)
        stream.cancel()

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, old)


class Command(NamedTuple):
    usage: str
    help: str
    run: Callable[[Chat, str], None]


def _help(_chat: Chat, _rest: str) -> None:
    width = max(len(command.usage) for command in COMMANDS.values())
    for command in COMMANDS.values():
        ui.note(f"  {command.usage:<{width}}  {command.help}", "")
    ui.note("Alt+Enter or a \\ at the end of a line: a new line. Ctrl-C: stop the answer. Ctrl-D: leave.")


def _clear(chat: Chat, _rest: str) -> None:
    chat.conversation.messages.clear()
    chat.attached.clear()
    ui.note("a new conversation")


def _regen(chat: Chat, _rest: str) -> None:
    chat.regenerate()


def _system(chat: Chat, rest: str) -> None:
    if rest:
        chat.conversation.system = "" if rest == "-" else rest
    ui.note(f"system: {chat.conversation.system or '(none of ours; the template may have one)'}")


def _read(chat: Chat, rest: str) -> None:
    text = read_text(_path(rest, "/read FILE"))
    chat.attached.append(text)
    ui.note(f"{len(text):,} characters go before your next message")


def _set(chat: Chat, rest: str) -> None:
    key, _, value = rest.partition(" ")
    if key and value.strip():
        chat.request[key] = parse_value(key, _unquoted(value.strip()), REQUEST)
    elif key:
        parse_value(key, "", dict.fromkeys(REQUEST, str))
        chat.request.pop(key, None)
    shown = [f"{name} = {_short(value)}" for name, value in chat.request.items()]
    ui.note(", ".join(shown) or f"all as the model has it; keys: {', '.join(REQUEST)}")


def _unquoted(text: str) -> str:
    """Quotes around a value are a habit from shells, where they are no part of it."""
    return text[1:-1] if len(text) > 2 and text[0] == text[-1] and text[0] in "\"'" else text


def _draft(chat: Chat, rest: str) -> None:
    if not chat.session.has_draft:
        raise InputError(
            "/draft: nothing drafts here",
            "the chat was started with --draft none",
            "start it with --draft DRAFT, or without the option",
        )
    if rest in ("color", "colour"):
        chat.green = not chat.green
    elif rest == "off":
        chat.request["draft_tokens"] = 0
    elif rest in ("on", "auto"):
        chat.request.pop("draft_tokens", None)
    elif rest:
        chat.request["draft_tokens"] = parse_value("draft_tokens", rest, REQUEST)
    count = chat.request.get("draft_tokens")
    length = "as many tokens per step as pay" if count is None else f"{count} tokens per step"
    state = "off" if count == 0 else f"on, {length}"
    ui.note(f"draft {state}; accepted tokens {'in green' if chat.green else 'without color'}")


def _stats(chat: Chat, _rest: str) -> None:
    if not chat.stats:
        raise InputError("/stats: there is no answer yet")
    for key, value in chat.stats[-1].to_json().items():
        ui.note(f"  {key:<24} {_short(value)}", "")
    tokens = sum(stats.predicted_n for stats in chat.stats)
    seconds = sum(stats.predicted_ms for stats in chat.stats) / 1000
    speed = tokens / seconds if seconds else 0.0
    count = len(chat.stats)
    ui.note(f"{count} answer{'s' * (count > 1)}: {tokens} tokens · {speed:.1f} tok/s")


def _save(chat: Chat, rest: str) -> None:
    path = _path(rest, "/save FILE") if rest or not chat.saved else chat.saved
    chat.conversation.save(path, force=path == chat.saved)
    chat.saved = path
    ui.note(f"saved {len(chat.conversation.messages)} messages to {path}")


def _load(chat: Chat, rest: str) -> None:
    path = _path(rest, "/load FILE")
    chat.conversation = Conversation.load(path)
    chat.saved = path
    ui.note(f"loaded {len(chat.conversation.messages)} messages from {path}")


def _exit(chat: Chat, _rest: str) -> None:
    chat.done = True


def _short(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _path(text: str, usage: str) -> Path:
    if not text:
        raise InputError(f"{usage}: which file?")
    return Path(text).expanduser()


COMMANDS = {
    command.usage.split()[0][1:]: command
    for command in (
        Command("/help", "this list", _help),
        Command("/clear", "forget the conversation", _clear),
        Command("/regen", "answer the last message again", _regen),
        Command("/system [TEXT]", "show or set the system message; - for none", _system),
        Command("/read FILE", "put a text file before the next message", _read),
        Command("/set [KEY [VALUE]]", "show, set or reset an option of the answers", _set),
        Command("/draft [on|off|N|color]", "the draft: on, off, tokens per step, green or not", _draft),
        Command("/stats", "the figures of the last answer and of all", _stats),
        Command("/save [FILE]", "write the conversation as JSON", _save),
        Command("/load FILE", "go on with a saved conversation", _load),
        Command("/exit", "leave, as Ctrl-D does", _exit),
    )
}
