"""Turn ends: whether a draft proposes the target's end of turn where the donor would end its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ....errors import TemplateError
from ....libllama.states import Reader
from ....vocab import Vocab
from ....vocab import special as vocab_special
from ..conversation import chat_template, read
from ..rows import NewRows
from ..spelling import ordinary
from ..tokenizing import Tokenizer
from .scoring import Head, input_rows

SYSTEM = "You are a helpful assistant."


@dataclass(frozen=True, slots=True)
class Turns:
    """Short conversations in a vocabulary's own template, each up to where its answer is complete."""

    conversations: Sequence[Sequence[int]]
    end: int  # the id that its template writes then


def written(tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]) -> Turns | None:
    """Questions and answers as ids; None for a vocabulary without a template or an end of turn.

    Raises TemplateError for a template that cannot be used.
    """
    end, questions = end_of_turn(tokenizer.vocab), [question for question, _ in pairs]
    try:  # without a system message some templates write one of their own, which others do not have
        prompts = asked(tokenizer, questions, SYSTEM)
    except TemplateError:
        prompts = asked(tokenizer, questions)
    if prompts is None or end is None:
        return None
    answers = [tokenizer.encode(answer) for _, answer in pairs]
    return Turns([[*prompt, *answer] for prompt, answer in zip(prompts, answers, strict=True)], end)


def asked(tokenizer: Tokenizer, questions: Sequence[str], system: str = "") -> list[list[int]] | None:
    """Each question as a prompt in the vocabulary's template; None without one. Raises TemplateError."""
    template, specials = chat_template(tokenizer.vocab), _specials(tokenizer.vocab)
    if template is None:
        return None
    before = [{"role": "system", "content": system}] if system else []
    found = []
    for question in questions:
        ids: list[int] = []
        messages = [*before, {"role": "user", "content": question}]
        for part in template.render(messages, think=False).segments:
            ids += [specials[part.text]] if part.special else tokenizer.encode(part.text)
        found.append(ids)
    return found


def end_of_turn(vocab: Vocab) -> int | None:
    """What the template writes after an answer; else the eot or eos that the file names."""
    ends = read(vocab).ends
    if ends is not None:
        return _specials(vocab)[ends]
    return vocab.special.get("eot", vocab_special.resolved(vocab).get("eos"))


def _specials(vocab: Vocab) -> dict[str, int]:
    """text -> id of what is not ordinary; templates are split at such tokens."""
    ids = np.flatnonzero(~ordinary(vocab))[::-1].tolist()
    return {vocab.texts[i].decode("utf-8", "replace"): i for i in ids}


def tops(reader: Reader, rows: NewRows, head: Head, turns: Turns) -> NDArray[np.int32]:
    """[n] the id that is likeliest after each answer."""
    states, before = [], np.empty(0, np.int32)
    for conversation in turns.conversations:
        ids = np.asarray(conversation, np.int32)
        n = min(len(ids), len(before))
        same = int(np.argmin(np.append(ids[:n] == before[:n], False)))
        keep = min(same, len(ids) - 1)
        states.append(reader.read(input_rows(rows, ids[keep:]), keep=keep)[-1])
        before = ids
    found: NDArray[np.int32] = head.logits(np.stack(states)).argmax(1).astype(np.int32)
    return found
