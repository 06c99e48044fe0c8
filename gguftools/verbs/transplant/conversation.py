"""What two chat templates say of special tokens: the same conversation written by both, laid side by side.

The templates came with strangers' files: they are rendered in the sandbox, and one that cannot be rendered
says nothing.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import GGUFToolsError
from ...template import CHATML, KIMI, ChatTemplate, Segment
from ...vocab import TokenType, Vocab
from ...vocab import special as vocab_special
from .spelling import ordinary

log = logging.getLogger("gguftools.verbs.transplant")

# The messages' contents are words that no template writes.
_MESSAGES = [
    {"role": "system", "content": "Quartzite"},
    {"role": "user", "content": "Zebrawood"},
    {"role": "assistant", "content": "Walnutshell"},
    {"role": "user", "content": "Ivorytower"},
]
_ROLES = {
    "system": r"\b(?:system|developer)\b",
    "user": r"\b(?:user|human)\b",
    "assistant": r"\b(?:assistant|model|gpt)\b",
}


Slots = list[list[Segment]]  # what is written before, between and after the messages' contents


@dataclass(frozen=True, slots=True)
class Reading:
    """What one template writes; nothing where it has none that can be rendered."""

    ends: str | None = None  # the special token that follows the assistant's last answer
    whole: Slots | None = None  # of all messages
    short: Slots | None = None  # without the system's


def read(vocab: Vocab) -> Reading:
    """The reading of a vocabulary's template, see `chat_template`."""
    try:
        template = chat_template(vocab)
    except GGUFToolsError as error:
        log.warning("a chat template says nothing of special tokens: %s", error.why or error.what)
        template = None
    return Reading() if template is None else _reading(template)


def chat_template(vocab: Vocab) -> ChatTemplate | None:
    """The default chat template; without any, Kimi's or ChatML's where their tokens are.

    Raises TemplateError for one that does not compile.
    """
    found = np.flatnonzero(~ordinary(vocab) & (vocab.types != TokenType.UNUSED)).tolist()
    specials = {text.decode("utf-8", "replace") for i in found if (text := vocab.texts[i])}
    source = vocab.templates.get("default") or next(iter(vocab.templates.values()), None)
    if source is None and {"<|im_user|>", "<|im_middle|>", "<|im_end|>"} <= specials:
        source = KIMI
    elif source is None and {"<|im_start|>", "<|im_end|>"} <= specials:
        source = CHATML
    ids = vocab_special.resolved(vocab)
    bos, eos = (vocab.texts[ids[n]].decode("utf-8", "replace") if n in ids else "" for n in ("bos", "eos"))
    return None if source is None else ChatTemplate(source, tuple(specials), bos=bos, eos=eos)


def _reading(template: ChatTemplate) -> Reading:
    whole, short = _slots(template, _MESSAGES), _slots(template, _MESSAGES[1:])
    if whole is None and short is None:
        return Reading()  # a third try would only take more time
    answered = _slots(template, _MESSAGES[:3] if whole else _MESSAGES[1:3], prompt=False) or [[]]
    return Reading(next((part.text for part in answered[-1] if part.special), None), whole, short)


def side_by_side(target: Reading, donor: Reading) -> dict[str, str]:
    """Special token of the target's template -> what the donor's has in its place; but not what ends a turn.

    >>> side_by_side(read(kimi), read(chatml))
    {'<|im_system|>': '<|im_start|>', '<|im_middle|>': '\\n', …}
    """
    found: dict[str, str] = {}
    roles = ["system", "user", "assistant", "user", "assistant"]
    for ours, theirs in ((target.whole, donor.whole), (target.short, donor.short)):
        for role, mine, its in zip(roles[-len(ours or ()) :], ours or (), theirs or (), strict=False):
            pairs = _headers(_cut(mine, role), _cut(its, role))
            found = {text: wish for text, wish in pairs.items() if wish and text != target.ends} | found
    return found


def _slots(
    template: ChatTemplate, messages: Sequence[dict[str, str]], *, prompt: bool = True
) -> Slots | None:
    """None where the template cannot write these messages, or not all of them."""
    try:
        segments = template.render(messages, think=False, add_generation_prompt=prompt).segments
    except GGUFToolsError as error:
        log.info("a chat template cannot write a conversation: %s", error.why or error.what)
        return None
    words = [message["content"] for message in messages]
    slots: Slots = [[]]
    for segment in segments:
        parts = [segment.text] if segment.special else re.split(f"({'|'.join(words)})", segment.text)
        for part in parts:
            if part in words:
                slots.append([])
            elif part:
                slots[-1].append(Segment(part, segment.special))
    return slots if len(slots) == len(words) + 1 else None


@dataclass(frozen=True, slots=True)
class _Header:
    """A slot cut at the word for the next message's role; `word` empty where there is none: all is `left`."""

    left: list[Segment]
    word: str
    right: list[Segment]

    @property
    def start(self) -> str:
        """The special token that is nearest to the role."""
        return next((part.text for part in reversed(self.left) if part.special), "")


def _cut(slot: list[Segment], role: str) -> _Header:
    for i in reversed(range(len(slot))):
        matches = [] if slot[i].special else list(re.finditer(_ROLES[role], slot[i].text))
        if matches:
            match = matches[-1]
            before, after = slot[i].text[: match.start()], slot[i].text[match.end() :]
            left, right = [*slot[:i], Segment(before, False)], [Segment(after, False), *slot[i + 1 :]]
            return _Header(left, match[0], [part for part in right if part.text])
    return _Header(slot, "", [])


def _headers(target: _Header, donor: _Header) -> dict[str, str]:
    """The target's special tokens around a role and their counterparts."""
    rest = "".join(part.text for part in donor.right)
    start = donor.start + donor.word + rest if donor.word and not target.word else donor.start
    pairs = {target.start: start} if target.start and start else {}
    between = [part.text for part in target.right if part.special]
    if len(between) == 1 and donor.word:
        pairs.setdefault(between[0], rest)
    return pairs
