"""For the tests of alignments and of special tokens: families, and what holds for each pair."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, settings
from vocabularies import bpe

from gguftools import recipes
from gguftools.verbs.transplant.align import Alignment, Kind
from gguftools.verbs.transplant.special_map import Mapped
from gguftools.verbs.transplant.spelling import ordinary, speller, token_bytes
from gguftools.vocab import Vocab

TABLE = recipes.load("special-tokens")
FAMILIES = {family["name"]: family for family in TABLE["family"]}
FUZZ = settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def told(found: list[Mapped]) -> dict[str, tuple[str, bool]]:
    """Target token -> (donor text, draftable)."""
    return {mapped.target_text: (mapped.donor_text, mapped.draftable) for mapped in found}


def of_family(name: str, **more: object) -> Vocab:
    """A small vocabulary with the special tokens of a family."""
    return bpe([b"user", b"\n"], list(FAMILIES[name]["tokens"]), **more)


def check_laws(alignment: Alignment, target: Vocab, donor: Vocab) -> None:
    """What holds for every pair of vocabularies."""
    n = target.n_tokens
    assert sum(alignment.counts().values()) == n == len(alignment.kind) == len(alignment.draftable)
    assert alignment.starts[0] == 0
    assert alignment.starts[-1] == len(alignment.pieces)
    lengths = np.diff(alignment.starts)
    assert (lengths >= (1 if len(speller(donor).exact) else 0)).all()
    assert ((alignment.pieces >= 0) & (alignment.pieces < donor.n_tokens)).all()
    assert (lengths[alignment.kind == Kind.EXACT] == 1).all()
    assert (lengths[alignment.kind == Kind.PIECES] > 1).all()
    spelled = np.isin(alignment.kind, (Kind.EXACT, Kind.PIECES))
    assert ordinary(donor)[alignment.pieces[np.repeat(spelled, lengths)]].all()
    ours, theirs, pieces = token_bytes(target), token_bytes(donor), alignment.pieces.tolist()
    starts = alignment.starts.tolist()
    for i in np.flatnonzero(spelled).tolist():
        assert b"".join([theirs[piece] for piece in pieces[starts[i] : starts[i + 1]]]) == ours[i] != b""
    drafted = [ours[i] for i in np.flatnonzero(alignment.draftable & spelled).tolist()]
    assert len(set(drafted)) == len(drafted)
    single = [pieces[starts[i]] for i in np.flatnonzero(alignment.draftable & (lengths == 1)).tolist()]
    assert len(set(single)) == len(single)
