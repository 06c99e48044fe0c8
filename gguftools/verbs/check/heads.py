"""Drafts that read a target's hidden states (eagle3, dflash): which targets llama.cpp can give them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .pair import llama_cpp
from .report import Rule
from .side import Side

HEADS = ("eagle3", "dflash")


def head_rules(target: Side, draft: Side) -> Iterator[Rule]:
    """Nothing for a draft that is a whole model; else what would end the process, and what our loop lacks."""
    kind = draft.architecture
    if kind not in HEADS:
        return
    gives = target.architecture in llama_cpp()["layer_inputs"]
    effect = f"llama.cpp ends the process: its graph of {target.architecture} gives no layer inputs to {kind}"
    yield _fatal("layer inputs", gives, target.architecture or "unknown", kind, effect)
    yield from _sizes(target, draft)
    effect = f"this version of gguftools runs whole models as drafts; llama.cpp has --spec-type draft-{kind}"
    yield Rule("draft kind", "gguftools", False, "", kind, "note", effect)


def _fatal(name: str, passed: bool, target: str, draft: str, effect: str) -> Rule:
    mend = "" if passed else "a draft that is a whole model"
    return Rule(name, "gguftools", passed, target, draft, "fatal", "" if passed else effect, mend)


def _sizes(target: Side, draft: Side) -> Iterator[Rule]:
    """The head's own idea of its target: hidden size, and layers that exist."""
    keys = draft.header.keys if draft.header else {}
    size = keys.get(f"{draft.architecture}.target_hidden_size")
    if isinstance(size, int) and target.n_embd:
        effect = "llama.cpp ends the process: the head was made for another target"
        fits = size == target.n_embd
        yield _fatal("hidden size", fits, f"{target.n_embd:,}", f"made for {size:,}", effect)
    layers = keys.get(f"{draft.architecture}.target_layers")
    if isinstance(layers, np.ndarray) and layers.dtype.kind in "iu" and target.n_layer and layers.size:
        effect = "llama.cpp ends the process: the head reads layers that the target does not have"
        fits = int(layers.max()) <= target.n_layer
        read = ", ".join(str(i) for i in layers.tolist())
        yield _fatal("layers", fits, f"{target.n_layer} layers", f"reads {read}", effect)
