"""Which ids of target and draft mean the same token, and whether all ordinary tokens agree."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from ...vocab import TokenType, Vocab, special
from .pair import Pair
from .report import Exchange

_BAR = "｜".encode()
_SPECIAL_TEXT = re.compile(
    rb"<\|.{1,80}\|>|\[(PAD|UNUSED|unused)\d*\]|\[[A-Z]{2,10}\]|<" + _BAR + rb".{1,80}" + _BAR + rb">"
)
Ids = NDArray[np.int32]


def ordinary_agree(pair: Pair) -> bool:
    """Whether each id that is an ordinary token of either side is the same token of the other.

    Ordinary is what is typed NORMAL or BYTE and does not read like a special token. Of a file that types none
    (old ones do not) the other one's types are taken.
    """
    target, draft = pair.vocabs
    n = min(target.n_tokens, draft.n_tokens)
    tail = (vocab for vocab in pair.vocabs if vocab.n_tokens > n)
    typed = [vocab for vocab in pair.vocabs if not vocab.ordinary().all()] or pair.vocabs
    return not any(_is_ordinary(vocab, i) for i in pair.differing for vocab in typed) and not any(
        _is_ordinary(vocab, i) for vocab in tail for i in range(n, vocab.n_tokens)
    )


def _is_ordinary(vocab: Vocab, i: int) -> bool:
    return vocab.types[i] in (TokenType.NORMAL, TokenType.BYTE) and not _SPECIAL_TEXT.fullmatch(
        vocab.texts[i]
    )


def exchange(pair: Pair) -> tuple[Exchange | None, tuple[int, ...]]:
    """(maps, target ids that are never drafted). No maps where every id means the same on both sides.

    A token that the draft has under another id is found by its text, the ends and the beginning of a turn by
    their role. What the draft lacks is fed to it under the same id, where that is no ordinary token of
    another meaning, else as its unknown or padding token.
    """
    target, draft = pair.vocabs
    n_target, n_draft = target.n_tokens, draft.n_tokens
    if not pair.differing and n_target == n_draft:
        return None, ()
    n = min(n_target, n_draft)
    to_target = np.full(n_draft, -1, np.int32)
    same = np.ones(n, bool)
    same[pair.differing] = False
    to_target[:n][same] = np.flatnonzero(same)
    to_draft = np.full(n_target, -1, np.int32)
    to_draft[:n][same] = np.flatnonzero(same)
    _match_by_text(pair, to_draft, to_target)
    _match_by_role(pair, to_draft, to_target)
    unshared = np.flatnonzero(to_draft < 0)
    for i in unshared.tolist():
        to_draft[i] = i if i < n_draft and not _is_ordinary(draft, i) else _stand_in(draft)
    return Exchange(to_draft, to_target), tuple(unshared.tolist())


def _match_by_text(pair: Pair, to_draft: Ids, to_target: Ids) -> None:
    target, draft = pair.vocabs
    free = np.flatnonzero(to_target < 0).tolist()
    by_text = {draft.texts[j]: j for j in free}
    for i in np.flatnonzero(to_draft < 0).tolist():
        j = by_text.get(target.texts[i])
        if j is not None:
            to_draft[i], to_target[j] = j, i


def _match_by_role(pair: Pair, to_draft: Ids, to_target: Ids) -> None:
    ids, draft_ids = (special.resolved(vocab) for vocab in pair.vocabs)
    for role in ("bos", "eos", "eot"):
        i, j = ids.get(role), draft_ids.get(role)
        if i is not None and j is not None and to_draft[i] < 0 and to_target[j] < 0:
            to_draft[i], to_target[j] = j, i


def _stand_in(draft: Vocab) -> int:
    ids = special.resolved(draft)
    return next((ids[role] for role in ("unk", "pad", "eos", "bos") if role in ids), 0)


def shared_fraction(pair: Pair) -> float:
    """The share of the target's tokens that the draft has byte for byte, under any id."""
    target, draft = pair.vocabs
    if pair.same_texts:
        return 1.0 if target.n_tokens else 0.0
    mine, others = pair.texts
    if target.model != draft.model:
        mine, others = list(target.tokens), list(draft.tokens)
    known = set(others)
    return sum(map(known.__contains__, mine)) / max(len(mine), 1)
