"""The target's vocabulary: all that is read of it, whatever it is given as."""

from __future__ import annotations

from pathlib import Path

from ... import assets
from ...errors import InputError
from ...header.shards import local
from ...vocab import Vocab
from ...vocab.hf_tokenizer import FILES, MAX_FILE, MODELS, Folder
from ..check.side import Side, load

_STARTS = 16  # bytes that tell a tokenizer file from a GGUF


def target_side(src: str | Path, *, offline: bool = False) -> Side:
    """A GGUF, a Hugging Face folder, one of its tokenizer files, or a name on the Hub, read by ranges.

    The settings of a tokenizer file are taken from beside it; a tiktoken.model alone is Kimi-K2's.
    Raises NotFound, FormatError, InputError, Unsupported, HubError.
    """
    path = local(src)
    kind = _kind(path) if path.is_file() else ""
    if not kind:
        return load(src, offline=offline)
    vocab = Vocab.from_checkpoint(_files(path, kind))
    return Side(str(src), vocab, None, "", 0, 0, 0)


def _kind(path: Path) -> str:
    """Which of MODELS a file is by its first bytes; "" for anything else."""
    try:
        with path.open("rb") as file:
            start = file.read(_STARTS)
    except OSError as error:
        why = error.strerror or str(error)
        raise InputError(f"{path}: cannot be read", why, "check its permissions, and the path") from None
    if start.startswith(b"{"):
        return "tokenizer.json"
    if start.startswith(b"\n") and path.suffix == ".model":
        return "tokenizer.model"
    word, _, rank = start.partition(b" ")
    return "tiktoken.model" if word and rank.startswith(b"0") and b"\n" in rank else ""


def _files(path: Path, kind: str) -> dict[str, bytes]:
    """The tokenizer file under its usual name, with the settings that lie beside it."""
    if path.stat().st_size > MAX_FILE:
        why = f"{path.stat().st_size:,} bytes, more than the cap of {MAX_FILE:,}"
        raise InputError(f"{path} is too large for a tokenizer", why, "give the tokenizer's own file")
    beside = Folder(path.parent)
    found = {name: data for name in FILES if name not in MODELS and (data := beside.get(name)) is not None}
    if kind == "tiktoken.model" and "tokenizer_config.json" not in found:
        found |= assets.kimi_k2_settings()
    return {**found, kind: path.read_bytes()}
