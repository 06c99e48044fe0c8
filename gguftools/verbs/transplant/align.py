"""Which donor tokens have the bytes of each target token.

Bytes, not text: a token that is half a character has its own bytes too. Of target tokens with the same bytes
only the one that the target's tokenizer emits may be drafted, so two ids never share a row that counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ...vocab import TokenType, Vocab
from .spelling import Speller, ordinary, preferred, speller, token_bytes

# Names of places that stand for nothing: <|reserved_token_7|>, <unused3>, <extra_id_0>, [PAD12], <SPECIAL_9>.
_RESERVED = re.compile(
    r"\W*(?:.*[\W_])?(?:reserved|unused|dummy|place\W*holder|madeupword|extra)(?:[\W_\d].*)?"
    r"|\W*(?:pad|padding|special|blank)[\W_\d]*",
    re.IGNORECASE | re.DOTALL,
)


class Kind(IntEnum):
    """What a target id is."""

    EXACT = 0  # one donor token has its bytes
    PIECES = 1  # several donor tokens have, one after the other
    SPECIAL = 2  # no text: mapped by role or name, else never drafted
    RESERVED = 3  # a place that no text uses
    UNREACHABLE = 4  # empty, a second token with the same bytes, or bytes that the donor cannot spell


@dataclass(frozen=True, slots=True)
class Alignment:
    """Of each target id, its kind and its donor ids.

    pieces: EXACT one, PIECES two or more, SPECIAL the mapped ones. RESERVED, UNREACHABLE and unmapped
    SPECIAL: one that does no harm as an input (a line break where the donor has one). None only where the
    donor has no ordinary token at all.
    """

    kind: NDArray[np.uint8]  # [n_target] Kind
    starts: NDArray[np.int64]  # [n_target + 1]: the pieces of id t are pieces[starts[t] : starts[t + 1]]
    pieces: NDArray[np.int32]  # [starts[-1]] donor ids
    draftable: NDArray[np.bool_]  # [n_target]; False: must never be proposed

    def of(self, target: int) -> NDArray[np.int32]:
        """The donor ids of a target id."""
        return self.pieces[self.starts[target] : self.starts[target + 1]]

    def counts(self) -> dict[str, int]:
        """How many ids are of each kind, by its name in small letters; they sum to n_target."""
        found = np.bincount(self.kind, minlength=len(Kind)).tolist()
        return {kind.name.lower(): found[kind] for kind in Kind}


class Wish(Protocol):
    """What align needs of special_map.Mapped."""

    @property
    def donor(self) -> tuple[int, ...]: ...
    @property
    def draftable(self) -> bool: ...


def align(target: Vocab, donor: Vocab, mapped: Mapping[int, Wish]) -> Alignment:
    """The alignment of two vocabularies of gpt2's or llama's kind; `mapped`: target id -> its donor tokens.

    Unsupported for other kinds. A mapped id whose one donor token an ordinary target token has too is not
    draftable: the two would tie.
    """
    spelling, tokens = speller(donor), token_bytes(target)
    kinds, rows = _ordinary(target, tokens, spelling, mapped)
    taken = {row[0] for row, kind in zip(rows, kinds, strict=True) if kind == Kind.EXACT and row}
    draftable = [kind in (Kind.EXACT, Kind.PIECES) for kind in kinds]
    harmless = _harmless(spelling)
    for i in np.flatnonzero(~ordinary(target)).tolist():
        kinds[i] = _kind_of_special(target.texts[i], int(target.types[i]))
    for i, wish in mapped.items():
        rows[i], kinds[i] = list(wish.donor), Kind.SPECIAL
        draftable[i] = (
            wish.draftable and bool(wish.donor) and not (len(wish.donor) == 1 and wish.donor[0] in taken)
        )
    rows = [row or harmless for row in rows]
    starts = np.zeros(target.n_tokens + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=starts[1:])
    pieces = np.array([i for row in rows for i in row], np.int32)
    return Alignment(np.array(kinds, np.uint8), starts, pieces, np.array(draftable, np.bool_))


def _ordinary(
    target: Vocab, tokens: Sequence[bytes], spelling: Speller, mapped: Mapping[int, Wish]
) -> tuple[list[int], list[list[int]]]:
    """(kind, donor ids) of each target id; what is not ordinary, or is mapped, is UNREACHABLE here."""
    kinds = [int(Kind.UNREACHABLE)] * target.n_tokens
    rows: list[list[int]] = [[] for _ in kinds]
    for data, i in preferred(target, tokens).items():
        found = None if i in mapped else spelling.spell(data)
        if found:
            rows[i], kinds[i] = found, Kind.EXACT if len(found) == 1 else Kind.PIECES
    return kinds, rows


def _kind_of_special(text: bytes, kind: int) -> Kind:
    if not text:
        return Kind.UNREACHABLE
    unused = kind in (TokenType.UNUSED, TokenType.UNDEFINED)
    return Kind.RESERVED if unused or looks_reserved(text.decode("utf-8", "replace")) else Kind.SPECIAL


def looks_reserved(text: str) -> bool:
    """Whether a special token's name says that it stands for nothing: <|reserved_token_7|>."""
    return _RESERVED.fullmatch(text) is not None


def _harmless(spelling: Speller) -> list[int]:
    """A donor token for the input rows of what no text contains."""
    for data in (b"\n", b" "):
        if data in spelling.exact:
            return [spelling.exact[data]]
    return [min(spelling.exact.values())] if spelling.exact else []
