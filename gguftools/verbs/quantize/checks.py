"""What is said before a byte is written: what is refused, and what differs from what was asked for."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

from ...errors import InputError
from ...header.ggml_types import TENSOR_TYPES
from .imatrix import Imatrix
from .mix import EMBEDDINGS, Wish, unmatched
from .rows import Job

_NO_ROWS = ("output.weight", *EMBEDDINGS)  # llama-imatrix does not measure these

log = logging.getLogger("gguftools.verbs.quantize")


def can_requantize(jobs: Sequence[Job], allowed: bool) -> None:
    low = [job.info for job in jobs if job.changes and TENSOR_TYPES[job.info.type].block > 1]
    if low and not allowed:
        raise InputError(
            f"{low[0].name} is {TENSOR_TYPES[low[0].type].name} already",
            f"it has lost what it had beyond that, and {len(low)} of {len(jobs)} tensors would lose more",
            "quantize the model in F16, BF16 or F32, or add --allow-requantize",
        )


def fits_matrix(jobs: Sequence[Job], matrix: Imatrix | None) -> None:
    """Warns where the importances are not of all weights; InputError where they are of none."""
    if matrix is None:
        return
    wanted = [job.info.name for job in jobs if job.changes and TENSOR_TYPES[job.out.type].block > 1]
    wanted = [name for name in wanted if name not in _NO_ROWS]
    missing = [name for name in wanted if name not in matrix.weights]
    if wanted and len(missing) == len(wanted):
        raise InputError(
            f"{matrix.path} is of another model",
            f"it knows {next(iter(matrix.weights))} and so on, none of the tensors to quantize",
            "take the importance matrix of this model",
        )
    if missing:
        log.warning(
            "%s has nothing of %d of %d weights (%s)", matrix.path, len(missing), len(wanted), _short(missing)
        )


def tell_fallbacks(jobs: Sequence[Job]) -> None:
    """Warns of the tensors whose rows are no whole blocks: which, how wide, from what to what."""
    groups: dict[tuple[int, str, str], list[str]] = {}
    for job in jobs:
        if job.out.type != job.wished:
            kinds = TENSOR_TYPES[job.wished].name, TENSOR_TYPES[job.out.type].name
            groups.setdefault((job.info.shape[0], *kinds), []).append(job.info.name)
    if groups:
        lines = [
            f"rows of {width}: {wished} → {given} in {len(names)} tensors ({_short(names)})"
            for (width, wished, given), names in groups.items()
        ]
        count = sum(map(len, groups.values()))
        why = f"{count} of {len(jobs)} tensors have rows of no whole blocks and get another type"
        log.warning("%s\n  %s", why, "\n  ".join(lines))


def tell_unmatched(jobs: Sequence[Job], wish: Wish) -> None:
    """Warns of patterns that fit no tensor's name."""
    for pattern in unmatched([job.info.name for job in jobs], wish):
        log.warning("no tensor's name has %r in it: this --tensor-type changes nothing", pattern)


def _layerless(name: str) -> str:
    return re.sub(r"\.\d+\.", ".N.", name, count=1)


def _short(names: Sequence[str]) -> str:
    kinds = list(dict.fromkeys(map(_layerless, names)))
    return ", ".join(kinds[:8]) + (f" and {len(kinds) - 8} more kinds" if len(kinds) > 8 else "")
