"""The vocabulary of what convert writes: found, fitted to the embedding, its template tried."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from ... import gguf_write
from ...checkpoint import Checkpoint
from ...errors import InputError, NotFound
from ...gguf_write import Key
from ...header.ggml_types import ValueType
from ...vocab import Vocab
from ...vocab.hf_tokenizer import MODELS, json_object
from ..check.templates import failure
from .general import named
from .shards import Shard

log = logging.getLogger("gguftools.verbs.convert")


def need(files: Mapping[str, bytes], where: str) -> None:
    if not any(name in files for name in MODELS):
        raise NotFound(
            f"{where} has no tokenizer",
            f"none of {', '.join(MODELS)} is there",
            "give the folder of one with --tokenizer",
        )


def alone(checkpoint: Checkpoint, name: str, vocab: Vocab, out: Path) -> Shard:
    """The file of a vocabulary without tensors."""
    keys = [
        *named(checkpoint, name),
        (f"{name}.vocab_size", vocab.n_tokens, ValueType.U32),
    ]
    return Shard(out, gguf_write.header_bytes([*keys, *vocab.gguf_keys()], []), ())


def fitting(files: Mapping[str, bytes], own: Sequence[Key], name: str) -> Vocab:
    """The vocabulary, padded to the embedding's rows, which `own`, the keys of architecture `name`, tell.

    Raises InputError when it has more tokens than rows.
    """
    rows = int(next(value for key, value, _ in own if key == f"{name}.vocab_size"))
    config = json_object("config.json", files.get("config.json", b"{}"))
    files = {**files, "config.json": json.dumps({**config, "vocab_size": rows}).encode()}
    vocab = Vocab.from_checkpoint(files)
    if vocab.n_tokens != rows:
        raise InputError(
            f"the tokenizer has {vocab.n_tokens:,} tokens, the embedding {rows:,} rows",
            "each token needs a row",
            "give the folder of the right tokenizer with --tokenizer",
        )
    return vocab


def try_template(vocab: Vocab) -> None:
    """Warns where no conversation can be written with the template, which goes into the file as it is."""
    source = vocab.templates.get("default")
    if source is not None and (why := failure(source)):
        log.warning("the chat template cannot write a conversation: %s", why)
