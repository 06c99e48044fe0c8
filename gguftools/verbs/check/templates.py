"""What can be seen in a chat template: in its text, and by writing a short conversation with it."""

from __future__ import annotations

import re

from ...errors import TemplateError

_MARKER = re.compile(r"<\|[^|<>{}\s]{1,60}\|>|<｜[^｜<>{}\s]{1,60}｜>|\[(?:BOS|EOS|EOT|INST|/INST)\]")
_TAG = re.compile(r"\{%-?\s*(\w+)((?:(?!\{%).)*?)-?%\}", re.DOTALL)  # never beyond the next {%
_MAX_DEPTH = 100  # of nested blocks; real templates have 6


def markers(template: str) -> frozenset[str]:
    """The texts in a template that look like control tokens: <|…|>, <｜…｜>, [EOS] and their like.

    >>> sorted(markers("<|im_user|>{{ m }}<|im_end|>"))
    ['<|im_end|>', '<|im_user|>']
    """
    return frozenset(_MARKER.findall(template))


def failure(template: str) -> str:
    """Why the sandbox cannot write a short conversation with this template; empty where it can."""
    from ...template import ChatTemplate  # jinja2, which a pair of GGUFs does not need

    ask, answer = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
    try:
        made = ChatTemplate(template, ())
        made.render([ask])
        made.render([ask, answer, ask])
    except TemplateError as error:
        return error.why or error.what
    return ""


def prompt_inside_loop(template: str) -> bool:
    """Whether the header for the answer is written inside the loop over the messages, once per message.

    Such a block is `if add_generation_prompt` in a `for … in messages` without a test of `loop.last`.
    """
    open_tags: list[tuple[str, str]] = []
    for word, rest in _TAG.findall(template):
        if word in ("for", "if"):
            open_tags.append((word, rest))
            if len(open_tags) > _MAX_DEPTH:
                return False
        elif word in ("endfor", "endif") and open_tags:
            open_tags.pop()
        elif word in ("elif", "else") and open_tags:
            open_tags[-1] = (open_tags[-1][0], rest)
        if _writes_per_message(open_tags):
            return True
    return False


def _writes_per_message(open_tags: list[tuple[str, str]]) -> bool:
    loops = [i for i, (word, text) in enumerate(open_tags) if word == "for" and "messages" in text]
    inside = [text for _, text in open_tags[loops[-1] + 1 :]] if loops else []
    prompts = any("add_generation_prompt" in text for text in inside)
    return prompts and not any("loop.last" in text for text in inside)
