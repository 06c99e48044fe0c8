"""A plan as command lines of gguftools, llama.cpp's llama-server and ik_llama.cpp's.

Every flag was read in the program's own parser: llama.cpp's common/arg.cpp as in llama-cpp-python 0.3.36,
ik_llama.cpp's common/common.cpp of 2026-08-15 (8337e4c). ik_llama.cpp's --n-cpu-moe counts from the last
layer on, and its -ngl leaves the output out, so its line names the layers and says one less.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from .results import Command

HEADS = ("eagle3", "dflash")  # drafts that llama.cpp calls by a type of their own
_ALIGN = "it refuses the pair until the draft's keys are aligned"
_EXPERTS = r"\.ffn_(up|down|gate|gate_up)_exps=CPU"


@dataclass(frozen=True, slots=True)
class Facts:
    """What the lines are made of.

    target, draft: their names; the files are for programs that take no such names, `fetch` says which are
    still on the Hub. device: the draft's, "" for main memory. yarn: beta_fast, where it must be passed.
    """

    target: str
    draft: str | None
    target_file: str
    draft_file: str
    fetch: str
    draft_kind: str
    n_ctx: int
    server_n_ctx: int  # what fits where the draft's context is as long
    draft_n_ctx: int
    draft_window: int | None  # what was asked for
    gpus: int
    gpu_layers: int
    n_layers: int
    n_cpu_moe: int
    split: tuple[int, ...]
    device: str
    types: tuple[str, str]
    draft_types: tuple[str, str]
    yarn: float | None
    refused: bool = False  # by llama.cpp, as the pair stands

    @property
    def all_layers(self) -> bool:
        return self.gpu_layers > self.n_layers


def commands(facts: Facts) -> tuple[Command, ...]:
    """One line for each program."""
    return (_ours(facts), _llama_server(facts), _ik(facts))


def _line(words: Sequence[str]) -> str:
    return " ".join(words)


def _ours(f: Facts) -> Command:
    words = ["gguftools", "chat", shlex.quote(f.target)]
    note, draft = "", f.draft
    if f.draft_kind in HEADS:
        note, draft = f"gguftools runs whole models as drafts, no {f.draft_kind} head: without it here", None
    if draft:
        words += ["--draft", shlex.quote(draft)]
    words += ["--n-ctx", str(f.n_ctx), "--gpu-layers", "all" if f.all_layers else str(f.gpu_layers)]
    options = {"n_cpu_moe": str(f.n_cpu_moe)} if f.n_cpu_moe else {}
    options |= {"tensor_split": _numbers(f.split)} if len(f.split) > 1 and f.gpu_layers else {}
    options |= {"devices": ""} if not f.gpu_layers and f.gpus else {}
    options |= _types(f.types, "cache_type_")
    if draft:
        words += ["--draft-gpu-layers", "all" if f.device else "0"]
        options |= {"draft_devices": f.device} if f.gpus > 1 or (f.gpus and not f.device) else {}
        options |= {"draft_n_ctx": str(f.draft_window)} if f.draft_window else {}
        options |= _types(f.draft_types, "draft_cache_type_")
    words += [f"-o {key}={shlex.quote(value) if value else ''}" for key, value in options.items()]
    return Command("gguftools", _line(words), note)


def _types(types: tuple[str, str], prefix: str) -> dict[str, str]:
    named = {f"{prefix}k": types[0], f"{prefix}v": types[1]}
    return {key: value for key, value in named.items() if value != "f16"}


def _numbers(split: Sequence[int]) -> str:
    return ",".join(str(n) for n in split)


def _llama_server(f: Facts) -> Command:
    notes = [f"first fetch {f.fetch}"] if f.fetch else []
    n_ctx, draft = f.n_ctx, f.draft
    if draft and f.server_n_ctx < 1:
        draft = None
        notes.append("without the draft: its context, here as long as the target's, has no room")
    elif draft and f.server_n_ctx < f.n_ctx:
        n_ctx = f.server_n_ctx
        notes.append(f"its draft's context is as long as the target's: room for {n_ctx:,} tokens")
    words = ["llama-server", "-m", shlex.quote(f.target_file), "-c", str(n_ctx)]
    words += ["-ngl", "all" if f.all_layers else str(f.gpu_layers)]
    words += ["-dev", "none"] if not f.gpu_layers else []
    words += ["--n-cpu-moe", str(f.n_cpu_moe)] if f.n_cpu_moe else []
    words += ["-ts", _numbers(f.split)] if len(f.split) > 1 and f.gpu_layers else []
    words += [*_type_flags(f.types, "-ctk", "-ctv"), *_yarn(f), "-np", "1", "-fit", "off"]
    if draft:
        kind = f"draft-{f.draft_kind}" if f.draft_kind in HEADS else "draft-simple"
        words += ["-md", shlex.quote(f.draft_file), "--spec-type", kind, "-ngld", "all" if f.device else "0"]
        words += [*_draft_device(f), *_type_flags(f.draft_types, "-ctkd", "-ctvd")]
        notes += [_ALIGN] if f.refused else []
    return Command("llama-server", _line(words), "; ".join(notes))


def _yarn(f: Facts) -> list[str]:
    return [] if f.yarn is None else ["--yarn-beta-fast", f"{f.yarn:g}"]


def _draft_device(f: Facts) -> list[str]:
    if not f.device:
        return ["-devd", "none"]
    return ["-devd", f.device] if f.gpus > 1 or not f.gpu_layers else []


def _type_flags(types: tuple[str, str], k: str, v: str) -> list[str]:
    pairs = zip((k, v), types, strict=True)
    return [word for flag, value in pairs if value != "f16" for word in (flag, value)]


def _ik(f: Facts) -> Command:
    notes = ["its llama-server, whose source was read but which was not run"]
    notes += [f"first fetch {f.fetch}"] if f.fetch else []
    layers = f.n_layers + 1 if f.all_layers else max(0, f.gpu_layers - 1)
    words = ["llama-server", "-m", shlex.quote(f.target_file), "-c", str(f.n_ctx), "-ngl", str(layers)]
    if f.n_cpu_moe:
        words += ["-ot", shlex.quote(rf"blk\.{below(f.n_cpu_moe)}{_EXPERTS}")]
    words += ["-ts", _numbers(_without_output(f))] if len(f.split) > 1 and layers else []
    words += [*_type_flags(f.types, "-ctk", "-ctv"), *_yarn(f)]
    if f.draft and f.draft_kind in HEADS:
        notes.append(f"without the {f.draft_kind} head")
    elif f.draft:
        words += [
            "-md",
            shlex.quote(f.draft_file),
            "--spec-type",
            "draft",
            "-ngld",
            "99" if f.device else "0",
        ]
        words += ["-devd", f.device] if f.device and f.gpus > 1 else []
        words += ["-cd", str(f.draft_n_ctx), *_type_flags(f.draft_types, "-ctkd", "-ctvd")]
        notes += [_ALIGN] if f.refused else []
    return Command("ik_llama.cpp", _line(words), "; ".join(notes))


def _without_output(f: Facts) -> tuple[int, ...]:
    """The split for a program that does not count the output where some layers stay in main memory."""
    if f.all_layers:
        return f.split
    last = max(i for i, n in enumerate(f.split) if n)
    return tuple(n - (i == last) for i, n in enumerate(f.split))


def below(n: int) -> str:
    """A regular expression for the numbers from 0 to n - 1, as they are written.

    >>> below(13)
    '([0-9]|1[0-2])'
    """
    parts, low = [], 0
    while low < n:
        if low < 10:
            high = min(n, 10)
            parts.append(_digits(low, high - 1))
        else:
            tens = low // 10
            high = min(n, (tens + 1) * 10)
            parts.append(f"{tens}{_digits(0, high - 1 - tens * 10)}")
        low = high
    return f"({'|'.join(_joined(parts))})"


def _digits(low: int, high: int) -> str:
    return str(low) if low == high else f"[{low}-{high}]"


def _joined(parts: list[str]) -> list[str]:
    """Whole tens together: 1[0-9], 2[0-9] → [1-2][0-9]."""
    whole = [part for part in parts if len(part) == 6 and part.endswith("[0-9]")]
    if len(whole) < 2:
        return parts
    first, last = whole[0][0], whole[-1][0]
    rest = [part for part in parts if part not in whole]
    return [rest[0], f"[{first}-{last}][0-9]", *rest[1:]]
