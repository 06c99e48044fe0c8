"""convert: a Hugging Face checkpoint becomes a GGUF, tensor by tensor."""

from __future__ import annotations

import json
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from .. import arch, gguf_write, goal
from ..arch.slot import Slot, to_gguf
from ..checkpoint import Checkpoint, floats, safetensors, small_files
from ..checkpoint.safetensors import Entry
from ..errors import InputError, LoadAborted, NotFound, Unsupported
from ..gguf_write import Announced
from ..header.ggml_types import TENSOR_TYPES, ValueType
from ..vocab import Vocab
from ..vocab.hf_tokenizer import MODELS, json_object
from . import convert_general
from .check.templates import failure

OutType = Literal["auto", "f32", "f16", "bf16", "q8_0", "q4_0"]
Progress = Callable[[str, float], "bool | None"]

CHUNK = 4 << 20  # bytes of source read at a time: a small part of any tensor that matters
_TYPES = {"f32": floats.F32, "f16": floats.F16, "bf16": floats.BF16, "q8_0": floats.Q8_0, "q4_0": floats.Q4_0}
_SOURCES = {"F32": floats.F32, "F16": floats.F16, "BF16": floats.BF16}
_IGNORED = (".rotary_emb.inv_freq", ".attention.bias", ".attention.masked_bias")  # buffers, not weights

log = logging.getLogger("gguftools.verbs.convert")


@dataclass(frozen=True, slots=True)
class Converted:
    """What was written: the file, its bytes, its architecture, tensors by type name, tokens."""

    path: Path
    nbytes: int
    architecture: str
    types: Mapping[str, int]
    n_tokens: int

    def to_json(self) -> dict[str, Any]:
        """The same as plain JSON values."""
        return {**asdict(self), "path": str(self.path)}


@dataclass(frozen=True, slots=True)
class _Job:
    """One tensor to write: where it comes from (None: `slot.made`), its type there and in the GGUF."""

    slot: Slot
    entry: Entry | None
    source: int
    out: Announced


def convert(
    src: str | Path,
    out: str | Path,
    *,
    outtype: OutType = "auto",
    tokenizer: str | Path | None = None,
    vocab_only: bool = False,
    force: bool = False,
    offline: bool = False,
    progress: Progress | None = None,
) -> Converted:
    """Writes the GGUF of a Hugging Face folder or Hub repo (Llama, Qwen2, Qwen3; `vocab_only`: any class).

    `outtype` auto keeps the type of each weight. Norms and biases are always F32; with q4_0 the output matrix
    (a tied embedding too) is Q8_0, since the last step suffers most; rows that are no whole blocks are F16.
    `tokenizer` is a folder whose vocabulary and template take the place of the checkpoint's.
    Memory stays at the header and a few chunks of CHUNK bytes. The same input gives the same bytes.
    Raises NotFound, FormatError, InputError, Unsupported, OutputExists, DiskFull, HubError; LoadAborted when
    `progress` returns False. In each case nothing is left behind.
    """
    if outtype not in get_args(OutType):
        raise InputError(
            f"outtype {outtype!r} is unknown",
            f"it is one of {', '.join(get_args(OutType))}",
            "give --outtype one of these",
        )
    goal.check_file(Path(out), force=force)
    checkpoint = Checkpoint.open(src, tensors=not vocab_only, offline=offline)
    files = small_files(Path(tokenizer)) if tokenizer else checkpoint.files
    _need_tokenizer(files, str(tokenizer or src))
    if vocab_only:
        return _write_vocabulary(checkpoint, Vocab.from_checkpoint(files), Path(out), force)
    if any(entry.path.resolve() == Path(out).resolve() for entry in checkpoint.tensors.values()):
        raise InputError(
            f"{out} is a file of the checkpoint", "it is about to be read", "choose another place"
        )
    model = arch.for_config(checkpoint.config)
    _no_quantization(checkpoint.config)
    own = model.keys(checkpoint.config)
    jobs = _plan(checkpoint, model.slots(checkpoint.config), outtype)
    vocab = _vocab(checkpoint, files)
    _try_template(vocab)
    announced = [job.out for job in jobs]
    keys = [*convert_general.keys(checkpoint, model.NAME, announced), *own, *vocab.gguf_keys()]
    head = gguf_write.header_bytes(keys, announced)
    nbytes = len(head) + gguf_write.data_bytes(announced)
    with goal.new_file(Path(out), nbytes, force=force) as file:
        checkpoint.fetch(offline=offline, progress=progress)
        file.write(head)
        for job, tell in zip(jobs, _shares(jobs, progress), strict=True):
            gguf_write.write_tensor(file, job.out, _pieces(job, tell))
    types = Counter(TENSOR_TYPES[tensor.type].name for tensor in announced)
    return Converted(Path(out), nbytes, model.NAME, dict(types), vocab.n_tokens)


def _write_vocabulary(checkpoint: Checkpoint, vocab: Vocab, out: Path, force: bool) -> Converted:
    name = arch.vocab_only_name(checkpoint.config, "deepseek2" if vocab.is_kimi else "llama")
    general = [
        *convert_general.named(checkpoint, name),
        (f"{name}.vocab_size", vocab.n_tokens, ValueType.U32),
    ]
    head = gguf_write.header_bytes([*general, *vocab.gguf_keys()], [])
    with goal.new_file(out, len(head), force=force) as file:
        file.write(head)
    return Converted(out, len(head), name, {}, vocab.n_tokens)


def _vocab(checkpoint: Checkpoint, files: Mapping[str, bytes]) -> Vocab:
    """The vocabulary, padded to the embedding's rows. Raises InputError when it has more tokens than rows."""
    rows = int(checkpoint.config["vocab_size"])
    if files is not checkpoint.files:
        other = json_object("config.json", files.get("config.json", b"{}"))
        files = {**files, "config.json": json.dumps({**other, "vocab_size": rows}).encode()}
    vocab = Vocab.from_checkpoint(files)
    if vocab.n_tokens != rows:
        raise InputError(
            f"the tokenizer has {vocab.n_tokens:,} tokens, the embedding {rows:,} rows",
            "each token needs a row",
            "give the folder of the right tokenizer with --tokenizer",
        )
    return vocab


def _try_template(vocab: Vocab) -> None:
    """Warns where no conversation can be written with the template, which goes into the file as it is."""
    source = vocab.templates.get("default")
    if source is not None and (why := failure(source)):
        log.warning("the chat template cannot write a conversation: %s", why)


def _need_tokenizer(files: Mapping[str, bytes], where: str) -> None:
    if not any(name in files for name in MODELS):
        raise NotFound(
            f"{where} has no tokenizer",
            f"none of {', '.join(MODELS)} is there",
            "give the folder of one with --tokenizer",
        )


def _plan(checkpoint: Checkpoint, slots: Sequence[Slot], outtype: OutType) -> list[_Job]:
    """One job a tensor, all shapes and types checked. Raises InputError, Unsupported."""
    wanted = {slot.hf for slot in slots}
    tied = "lm_head.weight" not in wanted
    ignored = (*_IGNORED, "lm_head.weight") if tied else _IGNORED
    strangers = [name for name in checkpoint.tensors if name not in wanted and not name.endswith(ignored)]
    missing = [slot.hf for slot in slots if slot.made is None and slot.hf not in checkpoint.tensors]
    if missing:
        raise InputError(
            f"the checkpoint lacks {_some(missing)}",
            "config.json demands it",
            "download the checkpoint again",
        )
    if strangers:
        raise InputError(
            f"the checkpoint has {_some(strangers)}",
            f"{arch.class_name(checkpoint.config)} has no such tensor: something would be lost",
            "check that config.json belongs to these weights",
        )
    last = "token_embd.weight" if tied else "output.weight"
    return [_job(checkpoint, slot, outtype, slot.gguf == last) for slot in slots]


def _job(checkpoint: Checkpoint, slot: Slot, outtype: OutType, last: bool) -> _Job:
    entry = None if slot.made is not None else checkpoint.tensors[slot.hf]
    source = floats.F32
    if entry is not None:
        if entry.shape != slot.shape:
            raise InputError(
                f"{slot.hf} has the shape {list(entry.shape)}",
                f"by config.json it is {list(slot.shape)}",
                "check that config.json belongs to these weights",
            )
        if entry.dtype not in _SOURCES:
            raise Unsupported(
                f"{slot.hf} is {entry.dtype}",
                "weights in F32, F16 and BF16 can be converted",
                "use the checkpoint that it was made from",
            )
        source = _SOURCES[entry.dtype]
    kind = _out_type(slot, source, outtype, last)
    nbytes = math.prod(slot.shape[:-1]) * floats.row_bytes(slot.shape[-1], kind)
    return _Job(slot, entry, source, Announced(slot.gguf, slot.shape[::-1], kind, nbytes))


def _out_type(slot: Slot, source: int, outtype: OutType, last: bool) -> int:
    if len(slot.shape) == 1:
        return floats.F32
    kind = source if outtype == "auto" else _TYPES[outtype]
    if kind == floats.Q4_0 and last:
        kind = floats.Q8_0
    return kind if floats.fits(slot.shape[-1], kind) else floats.F16


def _pieces(job: _Job, tell: Callable[[float], None]) -> Iterator[NDArray[Any]]:
    """A tensor's bytes in the GGUF, CHUNK by CHUNK of its source; whole heads where rows are regrouped."""
    slot, rows = job.slot, job.slot.shape[0]
    width = math.prod(slot.shape[1:])
    if slot.made is not None or job.entry is None:
        yield np.asarray(slot.made, np.float32)
        return
    dtype = floats.PLAIN[job.source]
    unit = slot.head_dim or 1
    step = max(CHUNK // (unit * width * dtype.itemsize), 1) * unit
    for at in range(0, rows, step):
        n = min(step, rows - at)
        raw = safetensors.read_bytes(job.entry, at * width * dtype.itemsize, n * width * dtype.itemsize)
        piece = raw.view(dtype).reshape(n, *slot.shape[1:])
        floats.check_finite(piece, job.source, slot.hf)
        if slot.head_dim:
            piece = to_gguf(piece, slot.head_dim)
        yield floats.recode(piece, job.source, job.out.type, slot.hf)
        tell((at + n) / rows)


def _shares(jobs: Sequence[_Job], progress: Progress | None) -> Iterator[Callable[[float], None]]:
    """For each job a function that turns "this part of the tensor" into "this part of the file"."""
    total = sum(job.out.nbytes for job in jobs)
    done = 0
    for job in jobs:

        def tell(part: float, done: int = done, size: int = job.out.nbytes) -> None:
            if progress is not None and progress("convert", (done + part * size) / total) is False:
                raise LoadAborted("the conversion was stopped", "nothing was kept", "run it again")

        yield tell
        done += job.out.nbytes


def _no_quantization(config: Mapping[str, Any]) -> None:
    quantization = config.get("quantization_config")
    if quantization:
        method = quantization.get("quant_method") if isinstance(quantization, Mapping) else quantization
        raise Unsupported(
            f"the checkpoint is quantized ({method})",
            "weights in F32, F16 and BF16 can be converted",
            "use the checkpoint that it was made from",
        )


def _some(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more tensors"
