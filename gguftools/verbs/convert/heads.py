"""EAGLE-3 heads: what they lack is their target's, and their numbers become those that llama.cpp reads.

The result is a checkpoint like any other to the rest of convert: arch/eagle3.py knows its tensors.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import hub
from ...arch import eagle3, eagle3_config, other_heads
from ...checkpoint import Checkpoint, safetensors
from ...checkpoint.safetensors import Entry
from ...errors import FormatError, InputError, Unsupported
from ...vocab import Vocab
from ..check.heads import HEADS
from ..check.side import Side, load

_WHOLE = {"I64": "<i8", "I32": "<i4", "I16": "<i2", "U8": "u1", "I8": "i1", "BOOL": "u1"}
_LEFT_OUT = ("d2t", "t2d", "verifier_norm.weight", "verifier_lm_head.weight")  # read here, or the target's
_TRAINED = "give the target that the head was trained for"

log = logging.getLogger("gguftools.verbs.convert")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A head that is ready to be converted: `checkpoint.config` holds its eagle3.Head; the target's Vocab."""

    checkpoint: Checkpoint
    vocab: Vocab


def open_checkpoint(
    src: str | Path, target: str | Path | None, *, vocab_only: bool, offline: bool
) -> Checkpoint:
    """Checkpoint.open, with the way out for a head that was published as a pickle alone."""
    try:
        return Checkpoint.open(src, tensors=not vocab_only, offline=offline)
    except Unsupported as error:
        if target is None:
            raise
        hint = (
            "look for a safetensors copy, or make one where nothing can be lost: torch.load(…, "
            "weights_only=True), then safetensors.torch.save_file to model.safetensors"
        )
        raise Unsupported(error.what, error.why, hint) from None


def of(
    checkpoint: Checkpoint,
    target: str | Path | None,
    layer_ids: str,
    tokenizer: str | Path | None,
    *,
    offline: bool = False,
) -> Prepared | None:
    """The head in the checkpoint, or None for a whole model. `target`: a GGUF, a folder or a Hub name.

    Raises Unsupported for heads of other kinds; InputError for one without its target or with a wrong one,
    and for --target with a whole model; what `check` raises for the target.
    """
    names = {eagle3_config.canonical(name): name for name in checkpoint.tensors}
    other_heads.refuse(checkpoint.config, names)
    if not eagle3_config.is_head(checkpoint.config):
        if target is not None or layer_ids != "auto":
            raise InputError(
                f"{checkpoint.name} is no EAGLE-3 head",
                "--target and --layer-ids are for EAGLE-3 heads",
                "leave them out to convert a whole model",
            )
        return None
    if target is None:
        raise eagle3.needs_target(checkpoint.name)
    if tokenizer is not None:
        raise InputError(
            "a head takes no --tokenizer",
            "its vocabulary is its target's",
            "give a folder with the target's tokenizer as --target",
        )
    if len(names) < len(checkpoint.tensors):
        twice = next(name for name in checkpoint.tensors if name not in names.values())
        raise InputError(
            f"the checkpoint has {twice} twice",
            "under two names that mean the same layer",
            "download the checkpoint again",
        )
    return _prepared(checkpoint, names, _target(target, offline), layer_ids)


def _target(target: str | Path, offline: bool) -> Side:
    side = load(target, offline=offline)
    if side.architecture in HEADS:
        raise InputError(
            f"{side.name} is a head itself", "the target is the model that the head drafts for", _TRAINED
        )
    return side


def _prepared(checkpoint: Checkpoint, names: Mapping[str, str], side: Side, layer_ids: str) -> Prepared:
    config = eagle3_config.flat(checkpoint.config)
    eagle3_config.refuse(config, names)
    tensors = {name: entry for name, entry in checkpoint.tensors.items() if _is_kept(name)}
    head = eagle3.Head(
        eagle3_config.target_layers(checkpoint.config, layer_ids, side.n_layer),
        _hidden_size(config, checkpoint.tensors.get(names.get("fc.weight", "")), side),
        bool(config["norm_before_residual"]),
        bool(config["norm_before_fc"]),
        _target_ids(checkpoint, names, config, side),
        {canonical: name for canonical, name in names.items() if name in tensors},
    )
    _shared(head, config, side)
    config = {**config, eagle3.HEAD: head}
    return Prepared(replace(checkpoint, config=config, tensors=tensors), side.vocab)


def _is_kept(name: str) -> bool:
    return eagle3_config.canonical(name) not in _LEFT_OUT


def _hidden_size(config: Mapping[str, Any], fc: Entry | None, side: Side) -> int:
    """The target's width, from the matrix that reads its states. Raises InputError where others differ."""
    if fc is None or len(fc.shape) != 2 or fc.shape[1] % eagle3_config.N_STATES or not fc.shape[1]:
        raise InputError(
            "the checkpoint has no fc.weight" if fc is None else f"fc.weight has the shape {list(fc.shape)}",
            "an EAGLE-3 head joins three states of its target with it",
            "check that this is an EAGLE-3 head",
        )
    size = fc.shape[1] // eagle3_config.N_STATES
    said = config.get("target_hidden_size")
    if said is not None and said != size:
        raise InputError(
            f"fc.weight is made for a target of width {size:,}",
            f"config.json's target_hidden_size is {said!r}",
            "check that config.json belongs to these weights",
        )
    if side.n_embd and side.n_embd != size:
        raise InputError(
            f"the head is made for a target of width {size:,}", f"{side.name} has {side.n_embd:,}", _TRAINED
        )
    return size


def _target_ids(
    checkpoint: Checkpoint, names: Mapping[str, str], config: dict[str, Any], side: Side
) -> NDArray[np.int64] | None:
    """The target's id of each draft token; None where they are the same. Raises InputError, Unsupported."""
    n_vocab = side.vocab.n_tokens
    if config.get("vocab_size") is None:
        config["vocab_size"] = n_vocab
    if config["vocab_size"] != n_vocab:
        raise InputError(
            f"the head is made for {config['vocab_size']} tokens",
            f"{side.name} has {n_vocab:,}",
            _TRAINED,
        )
    d2t = _whole_numbers(checkpoint, names.get("d2t"))
    n_draft = config.get("draft_vocab_size")
    if n_draft is None:
        n_draft = n_vocab if d2t is None else len(d2t)
    if d2t is None:
        if n_draft != n_vocab:
            raise InputError(
                f"the head drafts {n_draft} of {n_vocab:,} tokens",
                "the checkpoint lacks d2t, which says which these are",
                "download the checkpoint again",
            )
        return None
    if d2t.shape != (n_draft,):
        raise InputError(
            f"d2t has the shape {list(d2t.shape)}",
            f"config.json's draft_vocab_size is {n_draft!r}",
            "check that config.json belongs to these weights",
        )
    return target_ids(d2t, _whole_numbers(checkpoint, names.get("t2d")), n_vocab)


def target_ids(d2t: NDArray[Any], t2d: NDArray[Any] | None, n_vocab: int) -> NDArray[np.int64] | None:
    """Ids of the target, as llama.cpp reads them, for what all trainers store: id minus draft id.

    `t2d` [n_vocab] marks the tokens that are drafted; where only `d2t` as ids agrees with it, d2t held ids.
    None for all tokens in order, which need no d2t. Raises InputError for an id outside the vocabulary or
    one that is there twice.
    """
    stored = d2t.astype(np.int64)
    small = np.abs(stored) <= n_vocab  # no overflow below
    ids = np.where(small, stored + np.arange(len(stored)), -1)
    marked = np.flatnonzero(t2d) if t2d is not None and t2d.any() else None
    if marked is not None and not np.array_equal(np.sort(ids), marked):
        if np.array_equal(np.sort(stored), marked):
            log.warning("d2t holds ids of the target, not distances from the draft's: taken as such")
            ids = stored
        else:
            log.warning("t2d marks other tokens than d2t names: d2t is taken, as all engines do")
    outside = np.flatnonzero((ids < 0) | (ids >= n_vocab))
    if len(outside):
        i = int(outside[0])
        raise InputError(
            f"d2t sends draft token {i} outside the vocabulary (it holds {int(stored[i])})",
            f"the target has {n_vocab:,} tokens",
            _TRAINED,
        )
    if len(np.unique(ids)) < len(ids):
        raise InputError(
            "d2t sends two draft tokens to the same token",
            "each must have its own",
            "the checkpoint is damaged: download it again",
        )
    if (np.diff(ids) < 0).any():
        log.warning("d2t is not in ascending order, as all trainers write it: the head may draft badly")
    return None if len(ids) == n_vocab and (np.diff(ids) == 1).all() else ids


def _whole_numbers(checkpoint: Checkpoint, name: str | None) -> NDArray[Any] | None:
    """A small tensor's numbers, of the Hub by a range request. Raises Unsupported for fractions."""
    if name is None:
        return None
    entry = checkpoint.tensors[name]
    if entry.dtype not in _WHOLE or len(entry.shape) != 1 or not entry.nbytes:
        raise Unsupported(
            f"{name} is {entry.dtype} with the shape {list(entry.shape)}",
            "it must be a row of whole numbers",
            "get a good copy of the head",
        )
    return np.frombuffer(_bytes(checkpoint, entry), _WHOLE[entry.dtype])


def _bytes(checkpoint: Checkpoint, entry: Entry) -> bytes:
    remote = checkpoint.remote
    if entry.path.is_file() or remote is None:
        return safetensors.read_bytes(entry, 0, entry.nbytes).tobytes()
    data = hub.read_range(remote.repo, entry.path.name, entry.start, entry.nbytes, revision=remote.revision)
    if len(data) != entry.nbytes:
        raise FormatError(entry.path, entry.start, f"it ends inside {entry.name}", "try again")
    return data


def _shared(head: eagle3.Head, config: Mapping[str, Any], side: Side) -> None:
    """Raises InputError where the target's embedding or output, which llama.cpp takes instead, cannot fit."""
    lacking = [name for name in (eagle3.EMBEDDING, eagle3.OUTPUT) if name not in head.names]
    if lacking and config.get("hidden_size") != head.target_hidden_size:
        raise InputError(
            f"the head has no {lacking[0]}",
            f"the target's cannot take its place: it is {head.target_hidden_size:,} wide, the head "
            f"{config.get('hidden_size')}",
            "download the checkpoint again",
        )
    if eagle3.OUTPUT in lacking and head.target_ids is not None:
        raise InputError(
            f"the head has no {eagle3.OUTPUT}",
            f"{side.name}'s cannot take its place: the head drafts {len(head.target_ids):,} tokens only",
            "download the checkpoint again",
        )
    for name in lacking:
        log.info("the head has no %s: llama.cpp takes the target's", name)
