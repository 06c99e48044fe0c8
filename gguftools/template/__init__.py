"""A chat template from a GGUF, rendered in a sandbox; what people typed can never become a control token.

In every string that comes with the messages, each occurrence of a control token's text is replaced by one
private-use character before rendering. The rendered text is then split at control tokens, which are now the
template's own alone, and the characters are turned back inside the ordinary parts. An assistant's <think>
tags stay as they are, since templates split on them.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import TemplateError as JinjaError
from jinja2 import meta
from jinja2.exceptions import SecurityError

from ..errors import InputError, TemplateError
from .sandbox import MAX_TEXT, Sandbox

THINK_VARIABLES = ("enable_thinking", "thinking")
THINK_TAGS = ("<think>", "</think>")
WITHOUT = "use generate() (or `gguftools run --raw`), which needs no template"
PRIVATE_PLANES = (0xF0000, 0x10FFFE)  # planes 15 and 16

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' ~ message.role ~ '\\n' }}"
    "{{ message.content ~ '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
KIMI = (
    "{% for message in messages %}{% if message.role in ('system', 'assistant') %}"
    "{{ '<|im_' ~ message.role ~ '|>' }}{% else %}{{ '<|im_user|>' }}{% endif %}"
    "{{ message.role ~ '<|im_middle|>' ~ message.content ~ '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_assistant|>assistant<|im_middle|>' }}{% endif %}"
)


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a prompt: a control token's text (`special`), or text to encode without control tokens."""

    text: str
    special: bool


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered conversation. `thinking`: it ends inside an open <think>."""

    segments: tuple[Segment, ...]
    thinking: bool

    @property
    def text(self) -> str:
        return "".join(segment.text for segment in self.segments)


class ChatTemplate:
    """render(messages) -> Prompt.

    specials: the texts of the vocabulary's control tokens. guarded: other token texts that a tokenizer would
    parse and that a person must not be able to type. bos, eos: what bos_token and eos_token stand for.
    Raises TemplateError for a source that does not compile.
    """

    def __init__(
        self,
        source: str,
        specials: Sequence[str],
        *,
        guarded: Sequence[str] = (),
        bos: str = "",
        eos: str = "",
    ) -> None:
        self.source = source
        self._specials = tuple(sorted({text for text in specials if text}, key=len, reverse=True))
        self._hidden = tuple(sorted({*self._specials, *guarded, *THINK_TAGS} - {""}, key=len, reverse=True))
        self._names = {"bos_token": bos, "eos_token": eos}
        self._sandbox = Sandbox()
        self._lock = threading.Lock()  # the sandbox has one budget
        try:
            tree = self._sandbox.parse(source)
            self.variables = frozenset(meta.find_undeclared_variables(tree))
            self._template = self._sandbox.from_string(source)
        except (JinjaError, RecursionError, SyntaxError, MemoryError, ValueError, OverflowError) as error:
            raise TemplateError("the chat template does not compile", _reason(error), WITHOUT) from error

    @property
    def think_variable(self) -> str | None:
        """The variable by which this template turns thinking on and off, or None."""
        return next((name for name in THINK_VARIABLES if name in self.variables), None)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        think: bool | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
    ) -> Prompt:
        """The conversation as text and control tokens. Raises TemplateError and InputError."""
        if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
            what = f"a conversation is a list of messages, not {type(messages).__name__}"
            raise InputError(what, 'each is {"role": …, "content": …}', "for raw text: session.generate()")
        cover = _Cover(self._hidden, [*messages, *(tools or ())], self.source)
        values: dict[str, Any] = {
            "messages": [_covered(cover, message) for message in messages],
            "add_generation_prompt": add_generation_prompt,
            **self._names,
        }
        if tools:
            values["tools"] = [cover.hide(tool) for tool in tools]
        if think is not None and self.think_variable:
            values[self.think_variable] = think
        with self._lock:
            text = self._run(values)
        return Prompt(self._split(text, cover), text.rstrip().endswith(THINK_TAGS[0]))

    def _run(self, values: dict[str, Any]) -> str:
        self._sandbox.start()
        parts: list[str] = []
        size = 0
        try:
            for part in self._template.generate(values):
                parts.append(part)
                size += len(part)
                if size > MAX_TEXT:
                    raise SecurityError(f"the template writes more than {MAX_TEXT:,} characters")
        except (JinjaError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
            what = "the chat template cannot render this conversation"
            raise TemplateError(what, _reason(error), WITHOUT) from error
        except (RecursionError, MemoryError) as error:
            raise TemplateError("the chat template does not end", _reason(error), WITHOUT) from error
        return "".join(parts)

    def _split(self, text: str, cover: _Cover) -> tuple[Segment, ...]:
        if not self._specials:
            return (Segment(cover.show(text), False),) if text else ()
        pattern = "(" + "|".join(map(re.escape, self._specials)) + ")"
        parts = enumerate(re.split(pattern, text))
        return tuple(Segment(part if i % 2 else cover.show(part), i % 2 == 1) for i, part in parts if part)


class _Cover:
    """One private-use character per token text, none of which occurs in the messages or the template."""

    def __init__(self, hidden: Sequence[str], given: Sequence[Any], source: str) -> None:
        seen = set(source).union(*(set(text) for text in _strings(given)))
        free = (chr(code) for code in range(*PRIVATE_PLANES) if chr(code) not in seen)
        self._marks = dict(zip(hidden, free, strict=False))
        if len(self._marks) < len(hidden):
            raise TemplateError(
                "the chat template cannot be used", "the vocabulary has too many control tokens"
            )
        self._texts = {mark: text for text, mark in self._marks.items()}
        self._pattern = re.compile("|".join(map(re.escape, hidden)))
        self._back = re.compile("[" + "".join(self._texts) + "]")

    def hide(self, value: Any, keep: Sequence[str] = ()) -> Any:
        if isinstance(value, str):
            return self._pattern.sub(lambda m: m[0] if m[0] in keep else self._marks[m[0]], value)
        if isinstance(value, Mapping):
            return {self.hide(key): self.hide(item, keep) for key, item in value.items()}
        return [self.hide(item, keep) for item in value] if isinstance(value, (list, tuple)) else value

    def show(self, text: str) -> str:
        return self._back.sub(lambda m: self._texts[m[0]], text)


def _covered(cover: _Cover, message: Mapping[str, Any]) -> dict[str, Any]:
    """One message with its strings hidden and a content of text parts joined to one string."""
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise TemplateError("a message has no role", 'each is {"role": …, "content": …}')
    content = message.get("content")
    if content is None and not message.keys() - {"role", "content"}:
        what = f"a message of the role {message['role']} has no content"
        raise InputError(what, "its content is a text", 'an empty one is ""')
    if isinstance(content, (list, tuple)):
        kinds = {part.get("type") for part in content if isinstance(part, Mapping)}
        if kinds - {"text"} or not all(isinstance(part, Mapping) for part in content):
            raise TemplateError("a message holds something else than text", "only text parts are understood")
        content = "".join(str(part["text"]) for part in content)
    keep = THINK_TAGS if message["role"] == "assistant" else ()
    hidden: dict[str, Any] = cover.hide({**message, "content": content}, keep)
    return hidden


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for item in value.items() for text in _strings(item)]
    if isinstance(value, (list, tuple)):
        return [text for item in value for text in _strings(item)]
    return []


def _reason(error: BaseException) -> str:
    line = getattr(error, "lineno", None)
    text = str(error) or type(error).__name__
    return f"line {line}: {text}" if line and line > 1 else text
