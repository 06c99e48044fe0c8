"""check --full: whether every byte of a model is what the Hub has on record."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ... import hub
from ...errors import InputError, LoadAborted, NotFound
from ...header import shards
from ...hub.names import HubFile, HubRepo
from .report import Rule

Progress = Callable[[str, float], "bool | None"]
_PIECE = 4 << 20  # bytes hashed between two calls of `progress`
_CACHED = re.compile(r"models--[^/]+")
_DEEP = 4  # folders of a repo


@dataclass(frozen=True, slots=True)
class Recorded:
    """A shard on this machine, and what the Hub has on record of it."""

    path: Path
    name: str  # in the repo
    repo: str  # empty: a record that says no repo
    size: int | None  # None: not said
    sha256: str

    @property
    def source(self) -> str:
        """Whose record it is, as people read it."""
        return self.repo or "the record of its download"


def recorded(source: str | Path, repo: str | None, *, offline: bool = False) -> list[Recorded]:
    """The shards of a model with their records: a name on the Hub that is in the cache, or a local file.

    `repo` is `org/repo[@revision]`, which a local file is from; its shards are found there by their names.
    Raises NotFound, InputError, HubError.
    """
    path = shards.local(source)
    if path.exists():
        return _local(path, repo, offline)
    if repo is not None:
        raise InputError(f"{source} is no file here", "--repo says where a file here is from", "leave it out")
    found = hub.resolve(source, offline=offline)
    if not isinstance(found, HubFile):
        raise InputError(f"{source}: no GGUF in this repo", "its checkpoint is not checked", "name a GGUF")
    return list(_from_cache(found, offline))


def rules(files: list[Recorded], progress: Progress | None = None) -> Iterator[Rule]:
    """A Rule for each shard. `progress("hash", fraction)` may return False: LoadAborted."""
    sizes = [file.path.stat().st_size if file.path.is_file() else 0 for file in files]
    total, done = max(sum(sizes), 1), 0
    for file, size in zip(files, sizes, strict=True):

        def tell(now: int, before: int = done) -> None:
            if progress is not None and progress("hash", min((before + now) / total, 1.0)) is False:
                raise LoadAborted("the check was stopped", "not all shards were read", "run it again")

        yield _rule(file, size, tell)
        done += size


def _rule(file: Recorded, size: int, tell: Callable[[int], None]) -> Rule:
    name = f"SHA-256 of {PurePosixPath(file.name).name}"
    if not file.path.is_file():
        return _failed(name, "missing", "the model has more shards than are here", file)
    if file.size is not None and size != file.size:
        short = "the download is incomplete" if size < file.size else "it is another file"
        return _failed(name, f"{size:,} bytes, on record {file.size:,}", short, file)
    found = sha256(file.path, tell)
    if found == file.sha256:
        return Rule(name, "gguftools", True, f"{found[:12]}…, as {file.source} has it")
    effect = "its bytes are not the recorded ones: damaged, edited, or of another version of the repo"
    return _failed(name, f"{found[:12]}…, on record {file.sha256[:12]}…", effect, file)


def _failed(name: str, value: str, effect: str, file: Recorded) -> Rule:
    return Rule(name, "gguftools", False, value, None, "wrong", f"{file.path}: {effect}", _again(file))


def _again(file: Recorded) -> str:
    if not file.repo:
        return "download it again"
    command = f"hf download {file.repo} {shlex.quote(file.name)} --force-download"
    if any(_CACHED.fullmatch(part) for part in file.path.parts):
        return command
    depth = len(PurePosixPath(file.name).parts) if _ends(file.path, file.name) else 1
    return f"{command} --local-dir {shlex.quote(str(file.path.absolute().parents[depth - 1]))}"


def _ends(path: Path, name: str) -> bool:
    """Whether the path ends in the name that the file has in its repo."""
    parts = PurePosixPath(name).parts
    return path.absolute().parts[-len(parts) :] == parts


def sha256(path: Path, tell: Callable[[int], None]) -> str:
    """In hex; `tell(bytes so far)` may raise to stop."""
    digest, done = hashlib.sha256(), 0
    buffer = memoryview(bytearray(_PIECE))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            digest.update(buffer[:count])
            done += count
            tell(done)
    return digest.hexdigest()


def _from_cache(file: HubFile, offline: bool) -> Iterator[Recorded]:
    paths = hub.cached(file)
    missing = [shard for shard, path in zip(file.files, paths, strict=True) if not path.is_file()]
    if len(missing) == len(paths):
        raise NotFound(
            f"{file.repo}:{file.files[0]} is not in the cache",
            "--full reads what was downloaded",
            f"hf download {file.repo} {file.files[0]}",
        )
    known = {} if offline else hub.digests(file.repo, revision=file.revision)
    for shard, size, path in zip(file.files, file.sizes, paths, strict=True):
        digest = known.get(shard, "") or _kept(path)
        if not digest:
            raise _no_record(f"{file.repo}:{shard}")
        yield Recorded(path, shard, file.repo, None if offline else size, digest)


def _kept(path: Path) -> str:
    """The SHA-256 that a download left: the name of its content in the cache, a note beside; else empty."""
    found = path.resolve().name
    for root in path.absolute().parents[:_DEEP]:
        note = root / ".cache" / "huggingface" / "download" / f"{path.absolute().relative_to(root)}.metadata"
        if note.is_file():
            found = [*note.read_text("utf-8", "replace").splitlines(), "", ""][1].strip()
            break
    return found if re.fullmatch(r"[0-9a-f]{64}", found) else ""


def _no_record(what: str) -> InputError:
    return InputError(
        f"{what}: no SHA-256 on record", "the Hub has one of large files alone", "compare its size"
    )


def _local(path: Path, repo: str | None, offline: bool) -> list[Recorded]:
    if path.is_dir():
        path = shards.pick(path)
    files = _siblings(path)
    if repo is None and all(_kept(file) for file in files):
        return [Recorded(file, file.name, _repo_of(file), None, _kept(file)) for file in files]
    if repo is None:
        why = "nothing beside it says what it should be"
        raise InputError(f"{path}: no record to compare with", why, "name the repo: --repo ORG/REPO")
    if offline:
        raise InputError("--repo needs the Hub", "the record is there", "leave out --offline")
    listing = hub.repo(repo)
    known = hub.digests(listing.repo, revision=listing.revision)
    found = []
    for file in files:
        name = _named(file, listing)
        if name not in known:
            raise _no_record(f"{listing.repo}:{name}")
        found.append(Recorded(file, name, listing.repo, listing.files[name], known[name]))
    return found


def _siblings(path: Path) -> list[Path]:
    """All shards that a file's name speaks of, there or not; the file alone where it speaks of none."""
    match = re.fullmatch(r"(.+)-\d{5}-of-(\d{5})\.gguf", path.name, re.DOTALL)
    count = int(match[2]) if match else 0
    if not match or not 0 < count <= shards.MAX_SHARDS:
        return [path]
    return [path.with_name(f"{match[1]}-{i:05}-of-{match[2]}.gguf") for i in range(1, count + 1)]


def _named(path: Path, listing: HubRepo) -> str:
    """The one file of the repo with this name, in whatever folder; of several, the one in such a folder."""
    hits = [file for file in listing.files if PurePosixPath(file).name == path.name]
    if len(hits) > 1:
        hits = [file for file in hits if len(PurePosixPath(file).parts) > 1 and _ends(path, file)] or hits
    if len(hits) == 1:
        return hits[0]
    what = f"{listing.repo} has {len(hits) or 'no'} file{'s' * (len(hits) > 1)} {path.name}"
    if hits:
        raise InputError(what, f"they are {', '.join(hits[:5])}", "put it into a folder of that name")
    raise NotFound(what, "files are found by their names", "give it the name that it has there")


def _repo_of(path: Path) -> str:
    """org/repo of a file in the Hub's cache; empty elsewhere."""
    names = [part for part in path.absolute().parts if _CACHED.fullmatch(part)]
    return names[-1].removeprefix("models--").replace("--", "/") if names else ""
