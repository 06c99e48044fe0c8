"""convert: a Hugging Face checkpoint becomes a GGUF, tensor by tensor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

from ... import arch, goal
from ...checkpoint import Checkpoint, small_files
from ...errors import InputError
from ...header.ggml_types import TENSOR_TYPES
from ...vocab import Vocab
from . import general, heads, plan, stream, vocabulary
from . import shards as split
from .plan import Job, OutType
from .shards import Shard
from .stream import Progress


@dataclass(frozen=True, slots=True)
class Made:
    """One tensor of the output: what it is made of, its type by name, its shape fastest first, its bytes."""

    name: str
    sources: tuple[str, ...]
    type: str
    shape: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True, slots=True)
class File:
    """One file of the output; `nbytes` are all of its bytes."""

    path: Path
    nbytes: int
    tensors: tuple[Made, ...]


@dataclass(frozen=True, slots=True)
class Converted:
    """What was written, or would be: bytes of all files, architecture, tensors by type name, tokens.

    `path` is the first of `files`, the one to open; `n_kept` files were whole from an earlier run.
    """

    path: Path
    nbytes: int
    architecture: str
    types: Mapping[str, int]
    n_tokens: int
    files: tuple[File, ...]
    n_kept: int = 0
    dry_run: bool = False

    def to_json(self) -> dict[str, Any]:
        """The same as plain JSON values; the tensors of each file only of a dry run."""
        found = asdict(self)
        for file, entry in zip(self.files, found["files"], strict=True):
            entry["path"] = str(file.path)
            if not self.dry_run:
                del entry["tensors"]
        return {**found, "path": str(self.path)}


def convert(
    src: str | Path,
    out: str | Path,
    *,
    outtype: OutType = "auto",
    split_size: int | None = None,
    tokenizer: str | Path | None = None,
    target: str | Path | None = None,
    layer_ids: str = "auto",
    vocab_only: bool = False,
    dry_run: bool = False,
    force: bool = False,
    offline: bool = False,
    progress: Progress | None = None,
) -> Converted:
    """Writes the GGUF of a Hugging Face folder or Hub repo (see arch/; `vocab_only`: any class).

    `outtype` auto keeps the type of each weight. Norms and biases are always F32; with q4_0 the output matrix
    (a tied embedding too) is Q8_0, since the last step suffers most; rows that are no whole blocks are F16.
    `tokenizer` is a folder whose vocabulary and template take the place of the checkpoint's.
    An EAGLE-3 head takes them from its `target`; `layer_ids` says what its numbers of layers mean (heads.py).
    With `split_size`, the most bytes of a file, it writes shards; what is stopped then goes on where it was
    when it is called again (resume.py). `dry_run` only tells what would be written, without weights.
    Memory stays at the header and a few chunks of CHUNK bytes. The same input gives the same bytes.
    Raises NotFound, FormatError, InputError, Unsupported, OutputExists, DiskFull, HubError; LoadAborted when
    `progress` returns False. But for whole shards nothing is left behind then.
    """
    _check_options(outtype, split_size)
    out = Path(out)
    goal.check_file(out, force=force or dry_run or split_size is not None)
    checkpoint = heads.open_checkpoint(src, target, vocab_only=vocab_only, offline=offline)
    head = None if vocab_only else heads.of(checkpoint, target, layer_ids, tokenizer, offline=offline)
    files = small_files(Path(tokenizer)) if tokenizer else checkpoint.files
    if head is None:
        vocabulary.need(files, str(tokenizer or src))
    else:
        checkpoint = head.checkpoint
    if vocab_only:
        vocab = Vocab.from_checkpoint(files)
        name = arch.vocab_only_name(checkpoint.config, "deepseek2" if vocab.is_kimi else "llama")
        shards = [vocabulary.alone(checkpoint, name, vocab, out)]
    else:
        model = arch.for_config(checkpoint.config)
        name, own = model.NAME, model.keys(checkpoint.config)
        jobs = plan.jobs(checkpoint, model.slots(checkpoint.config), outtype)
        vocab = head.vocab if head is not None else vocabulary.fitting(files, own, name)
        vocabulary.try_template(vocab)
        keys = [*general.keys(checkpoint, name, [job.out for job in jobs]), *own, *vocab.gguf_keys()]
        shards = split.plan(out, keys, jobs, split_size)
    done = _told(shards, name, vocab.n_tokens, dry_run)
    _apart(checkpoint, shards, tokenizer)
    if dry_run:
        return done
    options = {"outtype": outtype, "split_size": split_size}
    n_kept = stream.write(checkpoint, out, shards, options, force=force, offline=offline, progress=progress)
    return replace(done, n_kept=n_kept)


def _check_options(outtype: str, split_size: int | None) -> None:
    if outtype not in get_args(OutType):
        raise InputError(
            f"outtype {outtype!r} is unknown",
            f"it is one of {', '.join(get_args(OutType))}",
            "give --outtype one of these",
        )
    if split_size is not None and split_size < 1:
        raise InputError(
            f"a split size of {split_size} bytes", "no file is that small", "give one as 4G or 500M"
        )


def _told(shards: Sequence[Shard], name: str, n_tokens: int, dry_run: bool) -> Converted:
    def made(job: Job) -> Made:
        out = job.out
        return Made(
            out.name,
            tuple(source.name for source in job.sources),
            TENSOR_TYPES[out.type].name,
            out.shape,
            out.nbytes,
        )

    files = tuple(File(shard.path, shard.nbytes, tuple(map(made, shard.jobs))) for shard in shards)
    types = Counter(tensor.type for file in files for tensor in file.tensors)
    nbytes = sum(file.nbytes for file in files)
    return Converted(files[0].path, nbytes, name, dict(types), n_tokens, files, dry_run=dry_run)


def _apart(checkpoint: Checkpoint, shards: Sequence[Shard], tokenizer: str | Path | None) -> None:
    """No output takes the place of a file of its source, which --force would lose."""
    folders = [checkpoint.folder, *([Path(tokenizer)] if tokenizer else [])]
    read = {entry.path.resolve() for entry in checkpoint.tensors.values()}
    read |= {path.resolve() for folder in folders for path in folder.iterdir() if path.suffix != ".gguf"}
    for shard in shards:
        if shard.path.resolve() in read:
            raise InputError(
                f"{shard.path} is a file of the checkpoint", "it is about to be read", "choose another place"
            )
