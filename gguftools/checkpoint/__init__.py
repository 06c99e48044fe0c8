"""Checkpoint: a Hugging Face folder or Hub repo: its config, its tokenizer files, its tensors as byte ranges.

Only safetensors are read: a pickle runs code when it is loaded, so .bin and .pt files are never opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from .. import hub
from ..errors import FormatError, InputError, NotFound, Unsupported
from ..hub.names import HubFile, HubRepo
from ..vocab.hf_tokenizer import FILES, MORE_TEMPLATES, json_object, more_templates
from . import safetensors
from .safetensors import Entry

Progress = Callable[[str, float], "bool | None"]

_SMALL_CAP = 200_000_000  # bytes; the largest tokenizer.json seen is 35 MB
_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_AGAIN = "download the checkpoint again"
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")
_FIRST_BYTES = 1 << 18  # of a shard on the Hub; most tables fit


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a folder holds. `config` is config.json; `files` are the small files; `tensors` byte ranges.

    Of a Hub repo, `remote`, the ranges are known before the weights are here: `fetch` brings them.
    """

    name: str
    folder: Path
    config: Mapping[str, Any]
    files: Mapping[str, bytes]
    tensors: Mapping[str, Entry]
    remote: HubRepo | None = None

    @classmethod
    def open(cls, src: str | Path, *, tensors: bool = True, offline: bool = False) -> Checkpoint:
        """Reads the small files and, with `tensors`, every shard's table; no weights.

        `src` is a folder or org/repo on the Hub, whose small files go into the usual cache.
        Raises NotFound, FormatError, InputError (files that contradict each other), Unsupported (pickles
        alone), HubError.
        """
        remote = None
        folder = Path(src)
        if not folder.is_dir():
            remote, folder = _hub_folder(src, offline)
        files = small_files(folder)
        if "config.json" not in files and tensors:
            raise NotFound(
                f"{folder} has no config.json", "a Hugging Face model folder has one", "check the path"
            )
        config = json_object(folder / "config.json", files.get("config.json", b"{}"))
        table = _tensors(folder, remote) if tensors else {}
        name = remote.repo.split("/")[1] if remote else folder.resolve().name
        name = name.encode("utf-8", "replace").decode()  # a folder's name may hold any bytes
        return cls(
            name, folder, MappingProxyType(config), MappingProxyType(files), MappingProxyType(table), remote
        )

    def fetch(
        self,
        files: Iterable[str] | None = None,
        *,
        offline: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """Downloads files of a Hub repo, or all, into the usual cache; a folder has them. Raises HubError."""
        names = sorted({entry.path.name for entry in self.tensors.values()} if files is None else files)
        if self.remote is not None and names:
            _download(self.remote, names, offline, progress)

    def tensor(self, name: str) -> tuple[str, tuple[int, ...], memoryview]:
        """A whole tensor: its safetensors dtype, its shape (outermost first), its bytes."""
        entry = self.tensors[name]
        return entry.dtype, entry.shape, safetensors.read_bytes(entry, 0, entry.nbytes).data


def small_files(folder: Path) -> dict[str, bytes]:
    """The config and tokenizer files that a folder has, by name. Raises NotFound, FormatError."""
    if not folder.is_dir():
        raise NotFound(
            f"{folder} is no folder", "a tokenizer or checkpoint is a folder of files", "check the path"
        )
    found = {name: folder / name for name in FILES}
    found |= {
        f"{MORE_TEMPLATES}{path.name}": path for path in sorted(folder.glob(f"{MORE_TEMPLATES}*.jinja"))
    }
    out = {}
    for name, path in found.items():
        if not path.is_file():
            continue
        if path.stat().st_size > _SMALL_CAP:
            raise FormatError(path, _SMALL_CAP, f"it is larger than {_SMALL_CAP} bytes", _AGAIN)
        out[name] = path.read_bytes()
    return out


def _hub_folder(src: str | Path, offline: bool) -> tuple[HubRepo, Path]:
    """The repo and its folder in the cache, the small files downloaded. Raises as `Checkpoint.open`."""
    if Path(src).exists():
        raise InputError(
            f"{src} is a file", "a checkpoint is a folder", f"give the folder: {Path(src).parent}"
        )
    repo = hub.repo(src, offline=offline)
    wanted = [name for name in (*FILES, _INDEX) if name in repo.files]
    wanted += more_templates(repo.files)
    if "config.json" not in repo.files:
        if any(name.endswith(".gguf") for name in repo.files):
            why, hint = "it holds GGUFs: there is nothing to convert", "use one as it is"
        else:
            why, hint = "a Hugging Face model repo has one", "check the name"
        raise NotFound(f"{src} has no config.json", why, hint)
    return repo, _download(repo, wanted, offline, None)


def _download(repo: HubRepo, names: Sequence[str], offline: bool, progress: Progress | None) -> Path:
    """Brings files of the repo into the cache; returns their folder (that of the first)."""
    sizes = tuple(repo.files[name] for name in names)
    wanted = HubFile(repo.repo, repo.revision, tuple(names), sizes, repo.ref)
    return hub.download(wanted, offline=offline, progress=progress).parent


def _tensors(folder: Path, remote: HubRepo | None) -> dict[str, Entry]:
    """All shards' tables as one. Raises InputError for a tensor in two shards or not where the index says."""
    index = _weight_map(folder, remote)
    shards = sorted(set(index.values())) if index else [_SINGLE]
    found: dict[str, Entry] = {}
    for shard in shards:
        for name, entry in _table(folder / shard, remote).items():
            if name in found:
                raise InputError(
                    f"{name} is in two shards",
                    f"{found[name].path.name} and {shard}",
                    "download the checkpoint again",
                )
            found[name] = entry
    for name, shard in index.items():
        if name not in found or found[name].path.name != shard:
            raise InputError(
                f"{name} is not in {shard}", f"{_INDEX} says that it is", "download the checkpoint again"
            )
    return found


def _table(path: Path, remote: HubRepo | None) -> dict[str, Entry]:
    """One shard's table, from the file or, where it is not here yet, by range requests."""
    if path.is_file():
        return safetensors.read_table(path)
    if remote is None or path.name not in remote.files:
        raise NotFound(f"{path} is missing", "the checkpoint is not complete", "download it again")
    size = remote.files[path.name]
    head = hub.read_range(remote.repo, path.name, 0, _FIRST_BYTES, revision=remote.revision)
    stop = 8 + safetensors.header_length(head, size, path)
    if len(head) < stop:
        head += hub.read_range(remote.repo, path.name, len(head), stop - len(head), revision=remote.revision)
    return safetensors.parse_table(head[8:stop], size, path)


def _weight_map(folder: Path, remote: HubRepo | None) -> dict[str, str]:
    """Tensor name → shard, of the index file; empty for a checkpoint in one file."""
    names = set(remote.files) if remote else {path.name for path in folder.iterdir()}
    if _INDEX not in names:
        if _SINGLE in names:
            return {}
        raise _no_weights(remote.repo if remote else str(folder), names)
    path = folder / _INDEX
    weight_map = json_object(path, path.read_bytes()).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise FormatError(path, None, "it has no weight_map", _AGAIN)
    for name, shard in weight_map.items():
        inside = (
            isinstance(shard, str) and shard == Path(shard).name and "\\" not in shard and ":" not in shard
        )
        if not inside or not shard.endswith(".safetensors"):
            raise FormatError(
                path,
                None,
                f"it sends {name} to {shard!r}, which is no .safetensors file in this folder",
                _AGAIN,
            )
    return weight_map


def _no_weights(where: str, names: Iterable[str]) -> Exception:
    pickles = sorted(name for name in names if name.endswith(_PICKLES))
    if pickles:
        return Unsupported(
            f"{where} has its weights as pickles only ({pickles[0]})",
            "loading a pickle runs whatever code is in it, so gguftools never does",
            "look for a safetensors copy of the model",
        )
    return NotFound(
        f"{where} has no weights",
        f"neither {_SINGLE} nor {_INDEX} is there",
        "with --vocab-only none are needed",
    )
