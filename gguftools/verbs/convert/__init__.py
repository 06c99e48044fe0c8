"""convert: a Hugging Face checkpoint becomes a GGUF, tensor by tensor."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

from ... import arch, gguf_write, goal
from ...checkpoint import Checkpoint, small_files
from ...errors import InputError, LoadAborted, NotFound
from ...gguf_write import Key
from ...header.ggml_types import TENSOR_TYPES, ValueType
from ...vocab import Vocab
from ...vocab.hf_tokenizer import MODELS, json_object
from ..check.templates import failure
from . import general, heads, pieces, plan
from .plan import Job, OutType

Progress = Callable[[str, float], "bool | None"]

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


def convert(
    src: str | Path,
    out: str | Path,
    *,
    outtype: OutType = "auto",
    tokenizer: str | Path | None = None,
    target: str | Path | None = None,
    layer_ids: str = "auto",
    vocab_only: bool = False,
    force: bool = False,
    offline: bool = False,
    progress: Progress | None = None,
) -> Converted:
    """Writes the GGUF of a Hugging Face folder or Hub repo (Llama, Qwen2, Qwen3; `vocab_only`: any class).

    `outtype` auto keeps the type of each weight. Norms and biases are always F32; with q4_0 the output matrix
    (a tied embedding too) is Q8_0, since the last step suffers most; rows that are no whole blocks are F16.
    `tokenizer` is a folder whose vocabulary and template take the place of the checkpoint's.
    An EAGLE-3 head takes them from its `target`; `layer_ids` says what its numbers of layers mean (heads.py).
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
    checkpoint = heads.open_checkpoint(src, target, vocab_only=vocab_only, offline=offline)
    head = None if vocab_only else heads.of(checkpoint, target, layer_ids, tokenizer, offline=offline)
    files = small_files(Path(tokenizer)) if tokenizer else checkpoint.files
    if head is None:
        _need_tokenizer(files, str(tokenizer or src))
    else:
        checkpoint = head.checkpoint
    if vocab_only:
        return _write_vocabulary(checkpoint, Vocab.from_checkpoint(files), Path(out), force)
    if any(entry.path.resolve() == Path(out).resolve() for entry in checkpoint.tensors.values()):
        raise InputError(
            f"{out} is a file of the checkpoint", "it is about to be read", "choose another place"
        )
    model = arch.for_config(checkpoint.config)
    own = model.keys(checkpoint.config)
    jobs = plan.jobs(checkpoint, model.slots(checkpoint.config), outtype)
    vocab = head.vocab if head is not None else _vocab(files, _rows(own, model.NAME))
    _try_template(vocab)
    announced = [job.out for job in jobs]
    keys = [*general.keys(checkpoint, model.NAME, announced), *own, *vocab.gguf_keys()]
    front = gguf_write.header_bytes(keys, announced)
    nbytes = len(front) + gguf_write.data_bytes(announced)
    with goal.new_file(Path(out), nbytes, force=force) as file:
        checkpoint.fetch(offline=offline, progress=progress)
        file.write(front)
        for job, tell in zip(jobs, _shares(jobs, progress), strict=True):
            gguf_write.write_tensor(file, job.out, pieces.of(job, tell))
    types = Counter(TENSOR_TYPES[tensor.type].name for tensor in announced)
    return Converted(Path(out), nbytes, model.NAME, dict(types), vocab.n_tokens)


def _write_vocabulary(checkpoint: Checkpoint, vocab: Vocab, out: Path, force: bool) -> Converted:
    name = arch.vocab_only_name(checkpoint.config, "deepseek2" if vocab.is_kimi else "llama")
    keys = [
        *general.named(checkpoint, name),
        (f"{name}.vocab_size", vocab.n_tokens, ValueType.U32),
    ]
    head = gguf_write.header_bytes([*keys, *vocab.gguf_keys()], [])
    with goal.new_file(out, len(head), force=force) as file:
        file.write(head)
    return Converted(out, len(head), name, {}, vocab.n_tokens)


def _rows(own: Sequence[Key], name: str) -> int:
    """Tokens by the architecture's keys."""
    return int(next(value for key, value, _ in own if key == f"{name}.vocab_size"))


def _vocab(files: Mapping[str, bytes], rows: int) -> Vocab:
    """The vocabulary, padded to the embedding's rows. Raises InputError when it has more tokens than rows."""
    config = json_object("config.json", files.get("config.json", b"{}"))
    files = {**files, "config.json": json.dumps({**config, "vocab_size": rows}).encode()}
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


def _shares(jobs: Sequence[Job], progress: Progress | None) -> Iterator[Callable[[float], None]]:
    """For each job a function that turns "this part of the tensor" into "this part of the file"."""
    total = sum(job.out.nbytes for job in jobs)
    done = 0
    for job in jobs:

        def tell(part: float, done: int = done, size: int = job.out.nbytes) -> None:
            if progress is not None and progress("convert", (done + part * size) / total) is False:
                raise LoadAborted("the conversion was stopped", "nothing was kept", "run it again")

        yield tell
        done += job.out.nbytes
