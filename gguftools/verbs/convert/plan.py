"""Which tensors a conversion writes: a job each; names, shapes and types checked before the first byte."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ... import arch
from ...arch.slot import Slot
from ...checkpoint import Checkpoint, floats
from ...checkpoint.safetensors import Entry
from ...errors import InputError, Unsupported
from ...gguf_write import Announced

OutType = Literal["auto", "f32", "f16", "bf16", "q8_0", "q4_0"]

_TYPES = {"f32": floats.F32, "f16": floats.F16, "bf16": floats.BF16, "q8_0": floats.Q8_0, "q4_0": floats.Q4_0}
_SOURCES = {"F32": floats.F32, "F16": floats.F16, "BF16": floats.BF16}
_IGNORED = (".rotary_emb.inv_freq", ".attention.bias", ".attention.masked_bias")  # buffers, not weights


@dataclass(frozen=True, slots=True)
class Job:
    """One tensor to write: where it comes from (None: `slot.made`), its type there and in the GGUF."""

    slot: Slot
    entry: Entry | None
    source: int
    out: Announced


def jobs(checkpoint: Checkpoint, slots: Sequence[Slot], outtype: OutType) -> list[Job]:
    """One job a tensor, all shapes and types checked. Raises InputError, Unsupported."""
    wanted = {slot.hf for slot in slots}
    tied = "lm_head.weight" not in wanted
    ignored = (*_IGNORED, "lm_head.weight") if tied else _IGNORED
    strangers = [name for name in checkpoint.tensors if name not in wanted and not name.endswith(ignored)]
    missing = [slot.hf for slot in slots if slot.made is None and slot.hf not in checkpoint.tensors]
    if missing:
        raise InputError(
            f"the checkpoint lacks {_some(missing)}",
            "config.json demands it",
            "download the checkpoint again",
        )
    if strangers:
        raise InputError(
            f"the checkpoint has {_some(strangers)}",
            f"{arch.class_name(checkpoint.config)} has no such tensor: something would be lost",
            "check that config.json belongs to these weights",
        )
    last = "token_embd.weight" if tied else "output.weight"
    return [_job(checkpoint, slot, outtype, slot.gguf == last) for slot in slots]


def _job(checkpoint: Checkpoint, slot: Slot, outtype: OutType, last: bool) -> Job:
    entry = None if slot.made is not None else checkpoint.tensors[slot.hf]
    source = floats.F32
    if entry is not None:
        if entry.shape != slot.shape:
            raise InputError(
                f"{slot.hf} has the shape {list(entry.shape)}",
                f"by config.json it is {list(slot.shape)}",
                "check that config.json belongs to these weights",
            )
        if entry.dtype not in _SOURCES:
            raise Unsupported(
                f"{slot.hf} is {entry.dtype}",
                "weights in F32, F16 and BF16 can be converted",
                "use the checkpoint that it was made from",
            )
        source = _SOURCES[entry.dtype]
    kind = _out_type(slot, source, outtype, last)
    nbytes = math.prod(slot.shape[:-1]) * floats.row_bytes(slot.shape[-1], kind)
    return Job(slot, entry, source, Announced(slot.gguf, slot.shape[::-1], kind, nbytes))


def _out_type(slot: Slot, source: int, outtype: OutType, last: bool) -> int:
    if len(slot.shape) == 1:
        return floats.F32
    kind = source if outtype == "auto" else _TYPES[outtype]
    if kind == floats.Q4_0 and last:
        kind = floats.Q8_0
    return kind if floats.fits(slot.shape[-1], kind) else floats.F16


def no_quantization(config: Mapping[str, Any]) -> None:
    quantization = config.get("quantization_config")
    if quantization:
        method = quantization.get("quant_method") if isinstance(quantization, Mapping) else quantization
        raise Unsupported(
            f"the checkpoint is quantized ({method})",
            "weights in F32, F16 and BF16 can be converted",
            "use the checkpoint that it was made from",
        )


def _some(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more tensors"
