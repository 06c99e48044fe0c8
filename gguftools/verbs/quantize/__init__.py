"""quantize: a GGUF in another type, tensor by tensor, as llama.cpp's own quantizer makes it.

Order of steps: names of types, headers, the type of each tensor, free space, then the rows as a stream.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ... import gguf_write, goal
from ...checkpoint import floats
from ...errors import InputError, LoadAborted
from ...gguf_write import Announced, Key
from ...header import Header, read_header
from ...header.ggml_types import TENSOR_TYPES, ValueType
from ...header.tensors import TensorInfo
from ...libllama import MAX_THREADS, hardware
from ...libllama import quantize as llama
from . import checks, mix, rows
from . import imatrix as matrices
from .imatrix import Imatrix
from .mix import Fate, Wish
from .rows import Job

Progress = Callable[[str, float], "bool | None"]

_DROPPED = ("split.", "general.alignment")  # one file, aligned as gguf_write does


@dataclass(frozen=True, slots=True)
class Row:
    """One tensor: shape fastest first, its type before and after; `wished`: what its width did not allow."""

    name: str
    shape: tuple[int, ...]
    source: str
    type: str
    nbytes: int
    wished: str | None = None


@dataclass(frozen=True, slots=True)
class Quantized:
    """What was written, or with `dry_run` (path None) what would be: bytes of the files, a Row a tensor."""

    path: Path | None
    type: str
    nbytes: int
    source_nbytes: int
    bits_per_weight: float
    tensors: tuple[Row, ...]

    @property
    def types(self) -> Mapping[str, int]:
        """Tensors by type."""
        return dict(Counter(row.type for row in self.tensors))

    def to_json(self) -> dict[str, Any]:
        """The same as plain JSON values."""
        return {**asdict(self), "path": None if self.path is None else str(self.path), "types": self.types}


def quantize(
    src: str | Path,
    out: str | Path | None = None,
    *,
    type: str,
    imatrix: str | Path | None = None,
    tensor_type: Sequence[str] = (),
    output_type: str | None = None,
    embedding_type: str | None = None,
    allow_requantize: bool = False,
    threads: int | None = None,
    dry_run: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> Quantized:
    """Writes a GGUF (any shard of a split one, or its folder) as one file of type `type`, as q4_k_m.

    Each tensor gets the type and the bytes that llama_model_quantize gives it. `imatrix` says which columns
    matter; tensor_type holds "REGEX=TYPE", the first found in a tensor's name wins; output_type is of
    output.weight, embedding_type of token_embd.weight. `dry_run` writes nothing and needs no `out`.
    Memory: the header and two pieces of rows.CHUNK numbers a thread; an importance matrix's rows besides.
    Raises NotFound, FormatError, InputError, Unsupported, OutputExists, DiskFull; LoadAborted when `progress`
    returns False. In each case nothing is left behind.
    """
    wish = mix.wish(type, output_type, embedding_type, tensor_type, weighted=imatrix is not None)
    threads = _threads(threads)
    header = read_header(src)
    matrix = None if imatrix is None else matrices.read(Path(imatrix))
    path = None if dry_run else _goal(out, [*header.files, *([matrix.path] if matrix else [])], force)
    jobs = plan(header, wish, matrix)
    checks.can_requantize(jobs, allow_requantize)
    checks.fits_matrix(jobs, matrix)
    checks.tell_unmatched(jobs, wish)
    checks.tell_fallbacks(jobs)
    announced = [job.out for job in jobs]
    head = gguf_write.header_bytes(_keys(header, wish, matrix), announced)
    nbytes = len(head) + gguf_write.data_bytes(announced)
    if path is not None:
        with goal.new_file(path, nbytes, force=force) as file:
            file.write(head)
            stream = _told(rows.stream(header, jobs, matrix, threads), jobs, progress)
            for number, pieces in groupby(stream, itemgetter(0)):
                gguf_write.write_tensor(file, announced[number], (piece for _, piece in pieces))
    return _result(path, wish, nbytes, header, jobs)


def through(
    make: Callable[[Path], object], out: str | Path, *, type: str, force: bool = False, **options: Any
) -> Quantized:
    """Quantizes the file that make(path) writes into a folder beside `out`, which goes again in any case.

    `options` are those of `quantize`. Wrong names of types are an InputError before `make` is called:

        through(lambda path: convert(src, path), "m.gguf", type="q4_k_m")
    """
    asked = {key: options.get(key) for key in ("output_type", "embedding_type")}
    weighted = options.get("imatrix") is not None
    mix.wish(type, **asked, tensor_type=options.get("tensor_type", ()), weighted=weighted)
    goal.check_file(Path(out), force=force)
    with goal.scratch(Path(out), "source") as folder:
        scratch = folder / "model.gguf"
        make(scratch)
        return quantize(scratch, out, type=type, force=force, **options)


def plan(header: Header, wish: Wish, matrix: Imatrix | None = None) -> list[Job]:
    """A Job for each tensor, in the source's order. Raises InputError, Unsupported, see mix.fates."""
    if not header.tensors:
        raise InputError(
            f"{header.path} has no tensors", "it is a vocabulary", "quantize the model that it belongs to"
        )
    header.architecture  # noqa: B018 (raises FormatError without one)
    shapes = {info.name: info.shape for info in header.tensors}
    fates = mix.fates(_plain_keys(header), shapes, wish, None if matrix is None else matrix.weights)
    return [_job(info, fates[info.name]) for info in header.tensors]


def _job(info: TensorInfo, fate: Fate | None) -> Job:
    if fate is None or not info.nbytes:
        fate = Fate(info.type, info.type)
    width = info.shape[0] if info.shape else 1
    nbytes = info.nbytes
    if fate.type != info.type:
        elements = nbytes // TENSOR_TYPES[info.type].nbytes * TENSOR_TYPES[info.type].block
        nbytes = elements // width * floats.row_bytes(width, fate.type)
    return Job(info, Announced(info.name, info.shape, fate.type, nbytes), fate.wished)


def _threads(threads: int | None) -> int:
    if threads is None:
        return hardware.physical_cores()
    if not isinstance(threads, int) or not 1 <= threads <= MAX_THREADS:
        raise InputError(f"threads is {threads!r}", f"it takes a whole number from 1 to {MAX_THREADS}")
    return threads


def _goal(out: str | Path | None, sources: Sequence[Path], force: bool) -> Path:
    """The file to write. Raises InputError for none and for one that is read; else as goal.check_file."""
    if out is None:
        raise InputError("there is no output", "only a dry run needs none", "give the GGUF to write")
    path = Path(out)
    if path.exists() and any(source.samefile(path) for source in sources):
        raise InputError(f"{out} is about to be read", "it would replace itself", "choose another place")
    goal.check_file(path, force=force)
    return path


def _plain_keys(header: Header) -> list[Key]:
    return [
        (key, value, header.types[key]) for key, value in header.keys.items() if not key.startswith(_DROPPED)
    ]


def _keys(header: Header, wish: Wish, matrix: Imatrix | None) -> list[Key]:
    """The source's keys with the new type, and llama-quantize's notes of the importance matrix."""
    new: dict[str, tuple[Any, int]] = {
        "general.quantization_version": (llama.VERSION, ValueType.U32),
        "general.file_type": (llama.FILE_TYPES[wish.file_type], ValueType.U32),
    }
    if matrix is not None:
        new["quantize.imatrix.file"] = (matrix.path.name, ValueType.STR)
        new["quantize.imatrix.entries_count"] = (len(matrix.weights), ValueType.U32)
        if matrix.dataset:
            new["quantize.imatrix.dataset"] = (matrix.dataset, ValueType.STR)
        if matrix.chunks:
            new["quantize.imatrix.chunks_count"] = (matrix.chunks, ValueType.U32)
    found = {key: (value, kind) for key, value, kind in _plain_keys(header)} | new
    return [(key, value, int(kind)) for key, (value, kind) in found.items()]


def _told(
    stream: Iterator[rows.Piece], jobs: Sequence[Job], progress: Progress | None
) -> Iterator[tuple[int, NDArray[Any]]]:
    """The stream, with progress by the bytes that came out of it."""
    total, done = max(sum(job.out.nbytes for job in jobs), 1), 0
    for number, piece in stream:
        yield number, piece
        done += piece.nbytes
        if progress is not None and progress("quantize", done / total) is False:
            raise LoadAborted("quantizing was stopped", "nothing was kept", "run it again")


def _result(path: Path | None, wish: Wish, nbytes: int, header: Header, jobs: Sequence[Job]) -> Quantized:
    def name(kind: int) -> str:
        return TENSOR_TYPES[kind].name

    table = tuple(
        Row(
            job.info.name,
            job.info.shape,
            name(job.info.type),
            name(job.out.type),
            job.out.nbytes,
            name(job.wished) if job.wished != job.out.type else None,
        )
        for job in jobs
    )
    forms = [(job.info.nbytes, TENSOR_TYPES[job.info.type]) for job in jobs]
    weights = sum(size // form.nbytes * form.block for size, form in forms)
    bits = 8 * sum(job.out.nbytes for job in jobs) / max(weights, 1)
    return Quantized(path, wish.file_type, nbytes, header.nbytes, round(bits, 3), table)
