"""info: what a GGUF's header says, what the model takes in memory, and where it can live."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...errors import FormatError, GGUFToolsError, InputError
from ...header import Header
from ...session import limits
from ...session.fit import ELEMENT, MAX_CTX
from ...vocab import Vocab
from . import memory, planning, read, rooms, vocabulary
from .header import by_group, by_type, keys
from .read import Source
from .results import Command as Command
from .results import File as File
from .results import Info as Info
from .results import Key as Key
from .results import Memory as Memory
from .results import Place as Place
from .results import Plan as Plan
from .results import Template as Template
from .results import Tensors as Tensors
from .results import Vocabulary as Vocabulary
from .rooms import Size
from .shape import Shape, shape_of


def info(
    file: str | Path | Header,
    *,
    n_ctx: int | None = None,
    cache_type_k: str = "f16",
    cache_type_v: str = "f16",
    plan: bool = False,
    vram: Size | Sequence[Size] | None = None,
    ram: Size | None = None,
    draft: str | Path | Header | None = None,
    draft_n_ctx: int | None = None,
    draft_cache_type_k: str = "f16",
    draft_cache_type_v: str = "f16",
    offline: bool = False,
) -> Info:
    """The Info of a GGUF: a path (any shard, or the folder), a Hub name (headers alone are read), a Header.

    n_ctx: the context that memory is counted for; None: what the model was trained on, at most 32,768, and
    in a plan what fits. `plan`, or any of vram, ram, draft, asks for a Plan. vram, ram: bytes, or texts as
    "24G" (of 2^30 bytes); vram for several GPUs a sequence, or "24G,24G"; None: what this machine has free.
    Raises NotFound, FormatError, InputError, HubError; Unsupported for a plan of what is no model.
    """
    types = _types(cache_type_k, cache_type_v)
    draft_types = _types(draft_cache_type_k, draft_cache_type_v)
    for name, value in (("n_ctx", n_ctx), ("draft_n_ctx", draft_n_ctx)):
        if value is not None:
            limits.check(name, value)
    source = read.load(file, offline=offline)
    planned = None
    if plan or vram is not None or ram is not None or draft is not None:
        space = rooms.rooms(vram, ram)
        target = planning.side(source)
        other = read.load(draft, offline=offline) if draft is not None else None
        planned = planning.make(
            target,
            planning.side(other) if other is not None else None,
            space,
            n_ctx=n_ctx,
            types=types,
            draft_types=draft_types,
            draft_n_ctx=draft_n_ctx,
        )
    return _info(source, planned, n_ctx, types)


def _types(k: str, v: str) -> tuple[str, str]:
    for name in (k, v):
        if name not in ELEMENT:
            raise InputError(f"cache type {name!r} is unknown", f"it takes {', '.join(ELEMENT)}")
    return k, v


def _info(source: Source, planned: Plan | None, n_ctx: int | None, types: tuple[str, str]) -> Info:
    header = source.header
    shape, unknown = _shape(header)
    words = _vocab(header)
    rows = by_type(header.tensors)
    elements = sum(row.elements for row in rows)
    nbytes = sum(row.nbytes for row in rows)
    return Info(
        source.name,
        header.path,
        str(header.get_plain("general.architecture") or ""),
        str(header.get_plain("general.name") or header.path.name),
        header.version,
        source.files,
        header.nbytes,
        elements,
        8 * nbytes / elements if elements else 0.0,
        keys(header),
        rows,
        by_group(header),
        vocabulary.described(words) if words is not None else None,
        vocabulary.templates(words) if words is not None else (),
        None if shape is None else memory.needed(shape, n_ctx or _usual(shape), types),
        unknown,
        planned,
    )


def _usual(shape: Shape) -> int:
    """The context that gguftools makes at most by itself."""
    return min(MAX_CTX, shape.n_ctx_train or MAX_CTX)


def _shape(header: Header) -> tuple[Shape | None, str]:
    """The Shape, or why there is none."""
    try:
        return shape_of(header), ""
    except GGUFToolsError as error:
        what = f"{error.what}: {error.why}" if error.why else error.what
        return None, what


def _vocab(header: Header) -> Vocab | None:
    """The vocabulary, where there is a sound one: info is about the rest, too."""
    try:
        return Vocab.from_header(header)
    except FormatError:
        return None
