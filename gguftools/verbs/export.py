"""export: a GGUF becomes a Hugging Face folder, dequantized: the way back from convert."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from .. import arch, goal
from ..arch.rope import short
from ..arch.slot import Slot, to_hf
from ..checkpoint import floats, safetensors
from ..errors import InputError, LoadAborted
from ..header import Header, read_header, read_tensor
from ..header.tensors import TensorInfo
from ..vocab import Vocab, tokenizer_json
from .convert.general import SAMPLING

OutType = Literal["auto", "f32", "f16", "bf16"]
Progress = Callable[[str, float], "bool | None"]

SHARD = 5 * 10**9  # bytes of weights in one file, as Hugging Face's own tools split
CHUNK = 1 << 20  # numbers dequantized at a time
_TYPES = {"f32": floats.F32, "f16": floats.F16, "bf16": floats.BF16}
_NAMES = {floats.F32: "F32", floats.F16: "F16", floats.BF16: "BF16"}
_WRITTEN = re.compile(
    r"(config|generation_config|tokenizer|tokenizer_config|model\.safetensors\.index)\.json"
    r"|(tokenizer|tiktoken)\.model|model(-\d{5}-of-\d{5})?\.safetensors"
)
_TORCH = {floats.F32: "float32", floats.F16: "float16", floats.BF16: "bfloat16"}


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written: the folder, the bytes of its weights, its shards, Hugging Face's class."""

    path: Path
    nbytes: int
    shards: int
    architecture: str

    def to_json(self) -> dict[str, Any]:
        """The same as plain JSON values."""
        return {**asdict(self), "path": str(self.path)}


@dataclass(frozen=True, slots=True)
class _Job:
    """One tensor to write: its place in the GGUF, its type (F32, F16, BF16) and bytes in the folder."""

    slot: Slot
    info: TensorInfo
    type: int
    nbytes: int


def export(
    file: str | Path,
    out: str | Path,
    *,
    outtype: OutType = "auto",
    force: bool = False,
    progress: Progress | None = None,
) -> Exported:
    """Writes the Hugging Face folder of a GGUF (llama, qwen2, qwen3): config, tokenizer, safetensors.

    `outtype` auto loses nothing: F32, F16 and BF16 stay, block types become F32.
    Raises NotFound, FormatError, InputError, Unsupported, OutputExists, DiskFull; LoadAborted when `progress`
    returns False. In each case nothing is left behind.
    """
    if outtype not in get_args(OutType):
        raise InputError(
            f"outtype {outtype!r} is unknown",
            f"it is one of {', '.join(get_args(OutType))}",
            "give --outtype one of these",
        )
    header = read_header(file)
    _not_inside(header, Path(out))
    goal.check_folder(Path(out), foreign, force=force)
    model = arch.for_header(header)
    config = model.config(header)
    jobs = _plan(header, model.slots(config), outtype)
    vocab = Vocab.from_header(header)
    config["torch_dtype"] = _TORCH[next(job.type for job in jobs if len(job.slot.shape) == 2)]
    shards = split(jobs, SHARD)
    nbytes = sum(job.nbytes for job in jobs)
    with goal.new_folder(Path(out), nbytes + 2 * header.data_offset, foreign, force=force) as folder:
        config |= tokenizer_json.write_tokenizer(vocab, folder)
        _write_json(folder / "config.json", config)
        _write_json(folder / "generation_config.json", _generation(header, vocab))
        _write_weights(header, shards, folder, _ticker(nbytes, progress))
    return Exported(Path(out), nbytes, len(shards), model.CLASSES[0])


def foreign(folder: Path) -> str:
    """Why `folder` is not an earlier export alone, and so not one to replace; empty where it is."""
    for path in sorted(folder.iterdir()):
        if not _WRITTEN.fullmatch(path.name) or path.is_dir() or path.is_symlink():
            return f"{path.name} in it is no file that export writes"
    weights = list(folder.glob("*.safetensors"))
    if not weights or not all(map(safetensors.is_made_here, weights)):
        return "its weights were not written by export"
    return ""


def _plan(header: Header, slots: Sequence[Slot], outtype: OutType) -> list[_Job]:
    """One job a tensor, all names and shapes checked. Raises InputError."""
    tensors = {tensor.name: tensor for tensor in header.tensors}
    missing = [slot.gguf for slot in slots if slot.gguf not in tensors]
    strangers = sorted(tensors.keys() - {slot.gguf for slot in slots})
    if missing or strangers:
        raise InputError(
            f"{header.path} {'lacks' if missing else 'has the unknown tensor'} {(missing or strangers)[0]}",
            f"an exported {header.architecture} has exactly the tensors of its Hugging Face class",
            "check the file: gguftools check FILE",
        )
    jobs = []
    for slot in slots:
        info = tensors[slot.gguf]
        if info.shape != slot.shape[::-1]:
            raise InputError(
                f"{header.path}: {slot.gguf} has the shape {list(info.shape)}",
                f"by the file's own keys it is {list(slot.shape[::-1])}",
                "check the file: gguftools check FILE",
            )
        if slot.made is None:
            kind = _TYPES.get(outtype, info.type if info.type in _NAMES else floats.F32)
            jobs.append(_Job(slot, info, kind, math.prod(slot.shape) * floats.PLAIN[kind].itemsize))
    return jobs


def split(jobs: Sequence[_Job], limit: int) -> list[list[_Job]]:
    """The jobs in order, cut into shards of at most `limit` bytes (a larger tensor has its own)."""
    shards: list[list[_Job]] = [[]]
    for job in jobs:
        if shards[-1] and sum(other.nbytes for other in shards[-1]) + job.nbytes > limit:
            shards.append([])
        shards[-1].append(job)
    return shards


def _write_weights(
    header: Header, shards: Sequence[Sequence[_Job]], folder: Path, tell: Callable[[int], None]
) -> None:
    weight_map: dict[str, str] = {}
    for i, shard in enumerate(shards, 1):
        name = "model.safetensors" if len(shards) == 1 else f"model-{i:05d}-of-{len(shards):05d}.safetensors"
        ordered = sorted(
            shard, key=lambda job: -floats.PLAIN[job.type].itemsize
        )  # wide types first: all aligned
        table = [(job.slot.names[0], _NAMES[job.type], job.slot.shape, job.nbytes) for job in ordered]
        with (folder / name).open("xb") as file:
            file.write(safetensors.table_bytes(table))
            for job in ordered:
                for piece in _pieces(header, job):
                    file.write(np.ascontiguousarray(piece).data)
                    tell(piece.nbytes)
        weight_map |= {job.slot.names[0]: name for job in shard}
    if len(shards) > 1:
        total = sum(job.nbytes for shard in shards for job in shard)
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
        _write_json(folder / "model.safetensors.index.json", index)


def _pieces(header: Header, job: _Job) -> Iterator[NDArray[Any]]:
    """A tensor's rows in the folder, CHUNK numbers at a time; whole heads where rows are regrouped."""
    slot, rows = job.slot, job.slot.shape[0]
    source, width = job.info.type, math.prod(slot.shape[1:])
    if len(slot.shape) == 1:
        data = np.frombuffer(read_tensor(header, job.info), np.uint8).reshape(1, -1)
        flat = floats.to_f32(_typed(data, source), source).reshape(rows)
        turned = to_hf(flat, slot.head_dim) if slot.head_dim else flat
        yield floats.recode(turned, floats.F32, job.type, slot.gguf)
        return
    data = np.frombuffer(read_tensor(header, job.info), np.uint8).reshape(rows, -1)
    unit = slot.head_dim or 1
    step = max(CHUNK // (unit * width), 1) * unit
    for at in range(0, rows, step):
        piece = _typed(data[at : at + step], source)
        if source != job.type:
            piece = floats.recode(piece, source, job.type, slot.gguf)
        yield to_hf(piece, slot.head_dim) if slot.head_dim else piece


def _typed(rows: NDArray[np.uint8], source: int) -> NDArray[np.generic]:
    return rows.view(floats.PLAIN[source]) if source in floats.PLAIN else rows


def _ticker(nbytes: int, progress: Progress | None) -> Callable[[int], None]:
    """A function to call with the bytes just written."""
    done = 0

    def tell(written: int) -> None:
        nonlocal done
        done += written
        if progress is not None and progress("export", done / nbytes) is False:
            raise LoadAborted("the export was stopped", "nothing was kept", "run it again")

    return tell


def _generation(header: Header, vocab: Vocab) -> dict[str, Any]:
    """generation_config.json: the ids that end a text or a turn, and the sampling that the file names."""
    special = vocab.special
    ends = sorted({special[name] for name in ("eos", "eot") if name in special})
    ids: dict[str, Any] = {f"{name}_token_id": special[name] for name in ("bos", "pad") if name in special}
    found = {theirs: header.get_plain(f"general.sampling.{ours}") for theirs, (ours, _) in SAMPLING.items()}
    numbers = {name: value for name, value in found.items() if type(value) in (int, float)}
    sampling = {name: short(n) if isinstance(n, float) else n for name, n in numbers.items()}
    if ends:
        ids["eos_token_id"] = ends[0] if len(ends) == 1 else ends
    return {**ids, **({"do_sample": True} if sampling else {}), **sampling}


def _not_inside(header: Header, folder: Path) -> None:
    """Replacing a folder must not delete what is being read."""
    if any(folder.resolve() in file.resolve().parents for file in header.files):
        raise InputError(
            f"{header.path} lies in {folder}", "the folder is replaced as a whole", "choose another place"
        )


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", "utf-8")
