"""Which tensors a conversion writes, a job each: names, shapes and types, checked before the first byte."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ... import arch
from ...arch.slot import Slot
from ...checkpoint import Checkpoint, floats
from ...checkpoint.int4 import Int4
from ...checkpoint.weights import Weights, settled, weights
from ...errors import InputError, Unsupported
from ...gguf_write import Announced

OutType = Literal["auto", "f32", "f16", "bf16", "q8_0", "q4_0"]

_TYPES = {"f32": floats.F32, "f16": floats.F16, "bf16": floats.BF16, "q8_0": floats.Q8_0, "q4_0": floats.Q4_0}
_IGNORED = (".rotary_emb.inv_freq", ".attention.bias", ".attention.masked_bias")  # buffers, not weights

log = logging.getLogger("gguftools.verbs.convert")


@dataclass(frozen=True, slots=True)
class Job:
    """One tensor to write: what it is made of (nothing: `slot.made`) and what it is in the GGUF."""

    slot: Slot
    sources: tuple[Weights, ...]
    out: Announced


def jobs(checkpoint: Checkpoint, slots: Sequence[Slot], outtype: OutType) -> list[Job]:
    """One job a tensor, all shapes and types checked. Raises InputError, Unsupported."""
    plain = arch.plain_names(checkpoint.config)
    found = {plain(name): tensor for name, tensor in weights(checkpoint).items()}
    wanted = {name for slot in slots for name in slot.names}
    outputs = {slot.gguf for slot in slots}
    tied = "output.weight" not in outputs
    missing = [name for slot in slots for name in slot.names if name not in found]
    if missing:
        raise InputError(
            f"the checkpoint lacks {_some(missing)}",
            "config.json demands it",
            "download the checkpoint again",
        )
    _no_strangers(checkpoint, [name for name in found if name not in wanted], tied)
    last = "token_embd.weight" if tied else "output.weight"
    planned = [_job(found, slot, outtype, slot.gguf == last) for slot in slots]
    _say_rounded(planned, outtype)
    return planned


def _say_rounded(planned: Sequence[Job], outtype: OutType) -> None:
    """Says where int4 does not keep its bits although the outtype would let it."""
    if outtype != "auto":
        return
    wide = [job.slot.gguf for job in planned if any(_widened(source) for source in job.sources)]
    if wide:
        log.warning(
            "%s: Q4_0 cannot hold all scales exactly, so it becomes BF16 "
            "(--outtype q4_0 keeps four bits and rounds such scales)",
            _some(wide),
        )


def _widened(source: Weights) -> bool:
    return isinstance(source, Int4) and source.kind == floats.F32


def _no_strangers(checkpoint: Checkpoint, names: Sequence[str], tied: bool) -> None:
    """Says what is left out on purpose. Raises InputError for a tensor that would be lost."""
    ignored = (*_IGNORED, "lm_head.weight") if tied else _IGNORED
    left_out = arch.left_out(checkpoint.config)
    strangers, left = [], Counter[str]()
    for name in names:
        what = next((what for prefix, what in left_out.items() if name.startswith(prefix)), None)
        if what is not None:
            left[what] += 1
        elif not name.endswith(ignored):
            strangers.append(name)
    if strangers:
        raise InputError(
            f"the checkpoint has {_some(strangers)}",
            f"{arch.class_name(checkpoint.config)} has no such tensor: something would be lost",
            "check that config.json belongs to these weights",
        )
    for what, n in left.items():
        log.warning("left out: %s (%s)", what, f"{n:,} tensors" if n > 1 else "1 tensor")


def _job(found: Mapping[str, Weights], slot: Slot, outtype: OutType, last: bool) -> Job:
    sources = tuple(settled(found[name], outtype) for name in slot.names)
    for source in sources:
        if source.shape != slot.source_shape:
            raise InputError(
                f"{source.name} has the shape {list(source.shape)}",
                f"by config.json it is {list(slot.source_shape)}",
                "check that config.json belongs to these weights",
            )
        if (source.kind in floats.WHOLE) != (slot.kind in floats.WHOLE):
            raise Unsupported(
                f"{source.name} holds {'whole numbers' if source.kind in floats.WHOLE else 'fractions'}",
                "its class has the other there",
                "use the checkpoint that it was made from",
            )
    kind = slot.kind if slot.kind is not None else _out_type(slot, sources, outtype, last)
    nbytes = math.prod(slot.shape[:-1]) * floats.row_bytes(slot.shape[-1], kind)
    return Job(slot, sources, Announced(slot.gguf, slot.shape[::-1], kind, nbytes))


def _out_type(slot: Slot, sources: Sequence[Weights], outtype: OutType, last: bool) -> int:
    if len(slot.shape) == 1 or not sources:
        return floats.F32
    kind = _auto(slot, sources) if outtype == "auto" else _TYPES[outtype]
    if kind == floats.Q4_0 and last and any(source.kind != kind for source in sources):
        kind = floats.Q8_0
    return kind if floats.fits(slot.shape[-1], kind) else floats.F16


def _auto(slot: Slot, sources: Sequence[Weights]) -> int:
    """The smallest type in which all of the sources keep what they hold."""
    kinds = {source.auto for source in sources}
    if len(kinds) == 1 and (slot.change is None or kinds <= floats.PLAIN.keys()):
        return kinds.pop()
    return floats.BF16 if kinds <= {floats.BF16, floats.Q4_0} else floats.F32


def _some(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more tensors"
