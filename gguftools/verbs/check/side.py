"""One of the two models that `check` compares, read from a GGUF, a Hugging Face folder or the Hub."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import FormatError, InputError, NotFound
from ...header import Header, read_header
from ...header.shards import local
from ...vocab import Vocab

_HEADER_BYTES = 32 << 20  # a Kimi-sized header has 7 MB


@dataclass(frozen=True, slots=True)
class Yarn:
    """YaRN scaling of positions; `beta_fast` None where nothing says it."""

    beta_fast: float | None


@dataclass(frozen=True, slots=True)
class Side:
    """`header` is None for a checkpoint; `n_ctx`, `n_embd`, `n_layer` are 0 where nothing says them."""

    name: str
    vocab: Vocab
    header: Header | None
    architecture: str
    n_ctx: int
    n_embd: int
    n_layer: int
    yarn: Yarn | None = None

    @property
    def template(self) -> str:
        return self.vocab.templates.get("default", "")

    @property
    def is_transplanted(self) -> bool:
        """Whether `transplant` made it: its vocabulary is one model's, all else another's."""
        return self.header is not None and "gguftools.transplant.donor" in self.header.keys


def load(source: str | Path | Vocab | Header | Side, *, offline: bool = False) -> Side:
    """A Side of a path, a name or what was read. Raises NotFound, FormatError, InputError, HubError."""
    if isinstance(source, Side):
        return source
    if isinstance(source, Vocab):
        return Side("vocabulary", source, None, "", 0, 0, 0)
    if isinstance(source, Header):
        return from_header(source, str(source.path))
    if not isinstance(source, str | os.PathLike):
        what = f"{type(source).__name__} is no model"
        raise InputError(what, "it takes a path, a name on the Hub, a Header or a Vocab", "give a path")
    path = local(source)
    if path.exists() and not path.is_dir():
        return from_header(read(path), str(source))
    from . import folders  # a pair of GGUFs needs nothing of it

    return folders.from_folder(path) if path.is_dir() else folders.from_hub(str(source), offline)


def from_header(header: Header, name: str) -> Side:
    """Refuses what is a GGUF but no language model."""
    _refuse_strangers(header, name)
    arch = header.architecture
    keys = ("context_length", "embedding_length", "block_count")
    values = [header.keys.get(f"{arch}.{key}") for key in keys]
    n_ctx, n_embd, n_layer = (value if isinstance(value, int) else 0 for value in values)
    yarn = None
    if header.get_plain(f"{arch}.rope.scaling.type") == "yarn":
        yarn = Yarn(number(header.get_plain(f"{arch}.rope.scaling.yarn_beta_fast")))
    return Side(name, Vocab.from_header(header), header, arch, n_ctx, n_embd, n_layer, yarn)


def number(value: Any) -> float | None:
    """`value` where it is a number (a bool is none)."""
    return float(value) if type(value) in (int, float) else None


def _refuse_strangers(header: Header, name: str) -> None:
    kind = header.get_plain("general.type")
    arch = header.get_plain("general.architecture")
    hint = "give the GGUF of the language model"
    if kind == "mmproj" or arch == "clip":
        raise InputError(
            f"{name}: an mmproj, not a model", "it holds the projector for images or sound", hint
        )
    if kind == "imatrix" or any(info.name.endswith(".in_sum2") for info in header.tensors[:4]):
        raise InputError(f"{name}: an imatrix, not a model", "it holds statistics for quantization", hint)
    if kind == "adapter":
        raise InputError(
            f"{name}: a LoRA adapter, not a model", "it changes a model and cannot run alone", hint
        )


def read(path: Path) -> Header:
    """read_header, with what else a person may have given."""
    try:
        return read_header(path)
    except (FormatError, NotFound) as error:
        _refuse_joined(path)
        error.hint = error.hint or "give a GGUF, a Hugging Face folder, or org/repo on the Hub"
        raise


def _refuse_joined(path: Path) -> None:
    """Says so where a second GGUF follows the first shard's data: shards joined with `cat`."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        try:
            header = read_header(file.read(_HEADER_BYTES))
        except FormatError:
            return
        end = second_gguf(file, header)
    if end:
        raise FormatError(
            path,
            end,
            "a second GGUF begins here: the shards were joined with cat",
            "fetch the shards again and give the first one as it is, named -00001-of-…",
        )


def second_gguf(file: Any, header: Header) -> int:
    """Where another GGUF begins behind the last tensor of the first shard, or 0."""
    alignment = header.keys.get("general.alignment", 32)
    end = max((t.offset + t.nbytes for t in header.tensors if t.shard == 0), default=header.data_offset)
    if not isinstance(alignment, int) or alignment < 1:
        return 0
    size = os.fstat(file.fileno()).st_size
    for at in (end, -(-end // alignment) * alignment):
        if at + 4 <= size:
            file.seek(at)
            if file.read(4) == b"GGUF":
                return at
    return 0
