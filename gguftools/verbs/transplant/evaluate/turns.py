"""Turn ends: whether a draft proposes the target's end of turn where the donor would end its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ....libllama.states import Reader
from ....vocab import Vocab
from ....vocab import special as vocab_special
from ..conversation import chat_template, read
from ..rows import NewRows
from ..spelling import ordinary
from ..tokenizing import Tokenizer
from .scoring import Head, input_rows


@dataclass(frozen=True, slots=True)
class Turns:
    """Short conversations in a vocabulary's own template, each up to where its answer is complete."""

    conversations: Sequence[Sequence[int]]
    end: int  # the id that its template writes then


def written(tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]) -> Turns | None:
    """Questions and answers as ids; None for a vocabulary without a template or an end of turn.

    Raises TemplateError for a template that cannot be used.
    """
    vocab = tokenizer.vocab
    template, end, specials = chat_template(vocab), end_of_turn(vocab), _specials(vocab)
    if template is None or end is None:
        return None
    found = []
    for question, answer in pairs:
        prompt = template.render([{"role": "user", "content": question}], think=False)
        ids: list[int] = []
        for segment in prompt.segments:
            ids += [specials[segment.text]] if segment.special else tokenizer.encode(segment.text)
        found.append([*ids, *tokenizer.encode(answer)])
    return Turns(found, end)


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
