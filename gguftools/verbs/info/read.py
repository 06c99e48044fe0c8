"""The header of a GGUF by path or by its name on the Hub, there of all shards and without their data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ... import hub
from ...errors import InputError
from ...header import Header, Truncated, read_header, shards
from ...header.shards import local
from ...hub.names import HubFile
from ..check.side import read as read_local
from .results import File

_FIRST_BYTES = 1 << 16  # of a later shard, which holds no vocabulary
_CAP = 1 << 27


@dataclass(frozen=True, slots=True)
class Source:
    """A header, the name that it was asked for by, and the files that it is in; repo: "" for local ones."""

    name: str
    header: Header
    files: tuple[File, ...]
    repo: str = ""


def load(source: str | Path | Header, *, offline: bool = False) -> Source:
    """Raises NotFound, FormatError, InputError or HubError."""
    if isinstance(source, Header):
        return _local(source, str(source.path))
    path = local(source)
    if path.exists():
        return _local(read_local(path), str(source))
    found = hub.resolve(str(source), offline=offline)
    if isinstance(found, Path):
        return _local(read_local(found), str(source))
    if not isinstance(found, HubFile):
        hint = f"a checkpoint's files: gguftools check {source}"
        raise InputError(f"{source}: no GGUF in this repo", "info reads GGUFs", hint)
    return _remote(found, str(source))


def _local(header: Header, name: str) -> Source:
    sizes = [path.stat().st_size if path.is_file() else header.nbytes for path in header.files]
    files = (File(str(path), size) for path, size in zip(header.files, sizes, strict=True))
    return Source(name, header, tuple(files))


def _remote(file: HubFile, name: str) -> Source:
    first = hub.gguf_header(file)
    if len(first.files) < len(file.files):
        first = shards.join([first, *(_shard(file, shard) for shard in file.files[1:])])
    files = tuple(File(shard, size) for shard, size in zip(file.files, file.sizes, strict=True))
    return Source(name, replace(first, nbytes=sum(file.sizes)), files, file.repo)


def _shard(file: HubFile, shard: str) -> Header:
    """The header of one later shard, by range requests."""
    data, want = b"", _FIRST_BYTES
    while True:
        data += hub.read_range(file.repo, shard, len(data), want - len(data), revision=file.revision)
        try:
            return read_header(data, name=f"{file.repo}:{shard}")
        except Truncated as error:
            if len(data) < want or want >= _CAP:
                raise
            want = min(max(error.needed, 2 * want), _CAP)
