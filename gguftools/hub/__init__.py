"""The Hub: names, listings, byte ranges, downloads into the usual cache.

This folder alone uses huggingface_hub. HF_ENDPOINT, HF_HOME and the other variables of that package hold;
its token is sent to the Hub alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from ..errors import FormatError, HubError, InputError, LoadAborted, NotFound
from ..header import Header, Truncated, read_header
from ..header.shards import local
from . import names as hub_names
from . import resume
from .http import explained, is_transient, stream
from .names import HubFile, HubName, HubRepo

Progress = Callable[[str, float], "bool | None"]

_FIRST_BYTES = 1 << 19
_HEADER_CAP = 1 << 28  # a Kimi-sized header has 9 MB
_SMALL_CAP = 1 << 26


def resolve(name: str | Path, *, offline: bool = False) -> Path | HubFile | HubRepo:
    """What `name` means: an existing path wins, else `org/repo[:file or quant]` on the Hub.

    A repo with a GGUF means that GGUF; see `repo` for its checkpoint.
    Raises NotFound, InputError (several models fit: they are listed) or HubError.
    """
    path = local(name)
    if path.exists():
        return path
    hub_name = _parsed(name)
    return _pick(hub_name, *_listing(hub_name, offline))


def repo(name: str | Path, *, offline: bool = False) -> HubRepo:
    """The whole repo `org/repo` on the Hub, GGUFs among its files or not. Raises as `resolve`."""
    hub_name = _parsed(name)
    if hub_name.pick:
        why = "a checkpoint is a whole repo of safetensors, not one file of it"
        raise InputError(f"{name} names a file or quant", why, f"write {hub_name.repo}")
    return HubRepo(hub_name.repo, *_listing(hub_name, offline), hub_name.revision)


def _parsed(name: str | Path) -> HubName:
    hub_name = hub_names.parse(str(name))
    if hub_name is None:
        raise NotFound(
            f"{name}: no such file or folder",
            "and it is no name of a repo on the Hub, which reads org/repo or org/repo:file",
            "check the spelling",
        )
    return hub_name


def _pick(name: HubName, commit: str, sizes: Mapping[str, int]) -> HubFile | HubRepo:
    files = hub_names.choose(name, sizes)
    if files is None:
        return HubRepo(name.repo, commit, sizes, name.revision)
    return HubFile(name.repo, commit, files, tuple(sizes[file] for file in files), name.revision)


def _listing(name: HubName, offline: bool) -> tuple[str, dict[str, int]]:
    """The commit and the safe file names with sizes, from the Hub or (offline) from the cache."""
    from huggingface_hub import HfApi, constants

    if offline or constants.HF_HUB_OFFLINE:
        return _cached(name)

    with explained(name.repo, answer=True):
        info = HfApi(endpoint=_endpoint()).model_info(name.repo, revision=name.revision, files_metadata=True)
        sizes = {str(f.rfilename): max(int(f.size or 0), 0) for f in info.siblings or ()}
    return _checked_commit(info.sha), {file: size for file, size in sizes.items() if hub_names.is_safe(file)}


def _cached(name: HubName) -> tuple[str, dict[str, int]]:
    folder = _storage(name.repo)
    ref = folder / "refs" / name.revision
    commit = ref.read_text("utf-8").strip() if ref.is_file() else name.revision
    snapshot = folder / "snapshots" / commit
    if not hub_names.is_safe(commit) or not snapshot.is_dir():
        raise NotFound(
            f"{name.repo} is not in the cache",
            f"looked in {folder}",
            "leave out --offline to download it",
        )
    files = [path for path in snapshot.rglob("*") if path.is_file()]
    return commit, {path.relative_to(snapshot).as_posix(): path.stat().st_size for path in files}


def digests(repo: str, *, revision: str = "main") -> dict[str, str]:
    """File name → SHA-256 in hex, as the Hub records it of each file in its large-file storage."""
    from huggingface_hub import HfApi

    with explained(repo, answer=True):
        info = HfApi(endpoint=_endpoint()).model_info(repo, revision=revision, files_metadata=True)
        found = {str(f.rfilename): str(f.lfs["sha256"]) for f in info.siblings or () if f.lfs}
    return {name: digest for name, digest in found.items() if re.fullmatch(r"[0-9a-f]{64}", digest)}


def cached(file: HubFile) -> list[Path]:
    """Where the cache has, or would have, each shard."""
    return [_storage(file.repo) / "snapshots" / file.revision / shard for shard in file.files]


def gguf_header(name: str | HubFile) -> Header:
    """The header of a GGUF on the Hub, from the cache or by range requests: no tensor's data is fetched.

    Of a split model the first shard's header, which holds all keys. Raises FormatError for what is no GGUF.
    """
    file = _one_gguf(resolve(name), name) if isinstance(name, str) else name
    cached = _storage(file.repo) / "snapshots" / file.revision
    if all((cached / shard).is_file() for shard in file.files):
        return read_header(cached / file.files[0])
    data = b""
    want = _FIRST_BYTES
    while True:
        data += read_range(file.repo, file.files[0], len(data), want - len(data), revision=file.revision)
        try:
            return read_header(data, name=f"{file.repo}:{file.files[0]}")
        except Truncated as error:
            if len(data) < want or want >= _HEADER_CAP:
                raise
            want = min(max(error.needed, 2 * want), _HEADER_CAP)


def _one_gguf(found: Path | HubFile | HubRepo, name: object) -> HubFile:
    if isinstance(found, HubFile):
        return found
    why = "it is a path on this machine" if isinstance(found, Path) else "the repo holds no GGUF file"
    raise InputError(f"{name}: not a GGUF on the Hub", why, "name a repo with a GGUF, as org/repo:file")


def repo_files(
    repo: str, names: Sequence[str], *, revision: str = "main", optional: bool = True
) -> dict[str, bytes]:
    """The content of small files, from the cache or the Hub; what the repo lacks is left out, or NotFound.

    Raises FormatError for one that is larger than 64 MiB.
    """
    found = {}
    cached = _storage(repo) / "snapshots" / revision
    for name in names:
        if hub_names.is_safe(name) and (cached / name).is_file():
            found[name] = (cached / name).read_bytes()
            continue
        try:
            found[name] = read_range(repo, name, 0, _SMALL_CAP + 1, revision=revision)
        except NotFound:
            if not optional:
                raise
            continue
        if len(found[name]) > _SMALL_CAP:
            raise FormatError(f"{repo}:{name}", _SMALL_CAP, f"it is larger than {_SMALL_CAP:,} bytes")
    return found


def read_range(repo: str, file: str, start: int, length: int, *, revision: str = "main") -> bytes:
    """At most `length` bytes of a file on the Hub from byte `start`; fewer only where the file ends."""
    if length <= 0:
        return b""
    with explained(repo, file):
        blocks = stream(_url(repo, file, revision), start, start + length)
        return b"".join(blocks)


def download(
    name: str | HubFile,
    *,
    progress: Progress | None = None,
    offline: bool = False,
    force_file: str | None = None,
) -> Path:
    """A GGUF with all its shards in the usual cache: the first shard's path, or `name` where that is a path.

    `force_file` names a file of the repo and overrides what follows the colon. A download that was cut short
    goes on where it stopped. `progress("download", fraction)` may return False: LoadAborted, what is there
    is kept.
    """
    if isinstance(name, str) and force_file:
        name = f"{name.split(':')[0]}:{force_file}"
    found = resolve(name, offline=offline) if isinstance(name, str) else name
    if isinstance(found, Path):
        return found
    file = _one_gguf(found, name)
    total = max(sum(file.sizes), 1)
    done = 0
    paths = []
    for shard, size in zip(file.files, file.sizes, strict=True):
        paths.append(_fetch(file, shard, partial(_tell, progress, done, total)))
        done += size
    _tell(progress, 0, total, total)
    return paths[0]


def _tell(progress: Progress | None, before: int, total: int, now: int) -> None:
    if progress is not None and progress("download", min((before + now) / total, 1.0)) is False:
        raise LoadAborted("the download was stopped", "what is there is kept", "run again to go on")


def _fetch(file: HubFile, shard: str, tell: Callable[[int], None]) -> Path:
    """Brings one file's bytes into the cache's blobs, then lets huggingface_hub link it into the snapshot."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.file_download import are_symlinks_supported
    from huggingface_hub.utils import WeakFileLock

    if not hub_names.is_safe(shard):
        raise HubError(f"{file.repo}: refuses the file name {shard!r}", "it leads out of the cache")
    storage = _storage(file.repo)
    pointer = storage / "snapshots" / file.revision / shard
    if not pointer.exists():
        with explained(file.repo, shard):
            url, size, etag = _metadata(file, shard)
            locks = storage.parent / ".locks" / storage.name
            locks.mkdir(parents=True, exist_ok=True)
            linked = are_symlinks_supported(storage.parent)
            goal = storage / "blobs" / etag if linked else pointer
            goal.parent.mkdir(parents=True, exist_ok=True)
            with WeakFileLock(locks / f"{etag}.gguftools.lock"):
                resume.fill(
                    goal,
                    size,
                    etag,
                    lambda start, stop: stream(url, start, stop),
                    tell,
                    is_transient,
                )
            if linked:
                hf_hub_download(
                    file.repo, shard, revision=file.revision, endpoint=_endpoint(), cache_dir=storage.parent
                )
        _remember(storage, file)
    return pointer


def _remember(storage: Path, file: HubFile) -> None:
    """Notes the commit that the branch or tag means, so that `--offline` finds it."""
    if file.ref == file.revision or not hub_names.is_safe(file.ref):
        return
    note = storage / "refs" / file.ref
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(file.revision, "utf-8")


def _metadata(file: HubFile, shard: str) -> tuple[str, int, str]:
    """URL, size in bytes and etag, which is the sha256 of a large file."""
    from huggingface_hub import get_hf_file_metadata

    url = _url(file.repo, shard, file.revision)
    with explained(file.repo, shard, answer=True):
        meta = get_hf_file_metadata(url, endpoint=_endpoint())
    if not re.fullmatch(r"[\w-]+", meta.etag or "") or meta.size is None:
        raise HubError(
            f"{file.repo}: {shard}", "the server gives no size or no usable etag", "try again later"
        )
    _checked_commit(meta.commit_hash)
    return url, meta.size, str(meta.etag)


def _checked_commit(commit: str | None) -> str:
    if not commit or not re.fullmatch(r"[0-9a-f]{40}", commit):
        raise HubError("the server is no Hub", f"it names no commit: {commit!r}", "check HF_ENDPOINT")
    return commit


def _endpoint() -> str | None:
    return os.environ.get("HF_ENDPOINT") or None


def _url(repo: str, file: str, revision: str) -> str:
    from huggingface_hub import hf_hub_url

    return str(hf_hub_url(repo, file, revision=revision, endpoint=_endpoint()))


def _storage(repo: str) -> Path:
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    return Path(constants.HF_HUB_CACHE, repo_folder_name(repo_id=repo, repo_type="model"))
