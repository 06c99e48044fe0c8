"""A target in F16, made from a quantized one: its values are those of the quantized one, in 16 bits."""

from __future__ import annotations

from pathlib import Path

import llama_cpp


def f16(source: Path) -> Path:
    """The F16 file beside `source`; made by libllama when it is missing."""
    goal = source.with_name(f"{source.stem}.f16.gguf")
    if goal.exists():
        return goal
    part = goal.with_suffix(".part")
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize = llama_cpp.LLAMA_FTYPE_MOSTLY_F16, True
    if llama_cpp.llama_model_quantize(str(source).encode(), str(part).encode(), params) != 0:
        part.unlink(missing_ok=True)
        raise SystemExit(f"{source} cannot be written as F16")
    part.replace(goal)
    return goal
