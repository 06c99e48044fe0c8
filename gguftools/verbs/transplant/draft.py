"""The draft as a file or as a folder, which take their names only when `check` accepts them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ... import gguf_write, goal
from ...checkpoint import floats
from ...errors import IncompatibleDraft, LoadAborted
from ..check import check
from ..check.side import Side, load
from ..export import export, foreign
from .align import Alignment
from .donor import Donor, Progress
from .keys import arch_keys, general_keys, own_keys, tokenizer_keys
from .rows import NewRows
from .special_map import Mapped
from .unit import Unit
from .write import TYPES, OutType, Plan, plan, write

_GOOD = ("identical", "compatible")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a draft is made from. It says how large the draft will be."""

    donor: Donor
    target: Side
    layers: Sequence[int]  # of the donor, in their new order
    options: Mapping[str, Any]  # outtype, layers, context, map, calibrate, calibrate_tokens
    digests: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Draft(Asked):
    """What goes into a draft, whatever it is written as. `unit`: see write.write."""

    mapped: tuple[Mapped, ...]
    alignment: Alignment
    rows: NewRows
    unit: Unit | None
    coverage: Mapping[str, float] | None


@dataclass(frozen=True, slots=True)
class Written:
    """Bytes (of a folder's weights), ties (see write.write) and the verdict of `check`."""

    architecture: str
    nbytes: int
    ties: int
    verdict: str


def teller(progress: Progress | None, stage: str) -> Callable[[float], None]:
    """A function to call with the part of the stage that is done. It raises LoadAborted when told to stop."""

    def tell(fraction: float) -> None:
        if progress is not None and progress(stage, fraction) is False:
            raise LoadAborted("the transplant was stopped", "nothing was kept", "run it again")

    return tell


def check_room(asked: Asked, out: Path | None, hf_out: Path | None) -> None:
    """Raises DiskFull where an output does not fit on its disk with all that lies there at the same time.

    That is the GGUF, and of a folder both the GGUF that it is made from and its own files. A checkpoint that
    is the donor lies there as a GGUF by now. Raises what arch_keys raises too.
    """
    nbytes = 0
    if out is not None:
        nbytes = _laid_out(asked).nbytes
        goal.check_room(out, nbytes)
    if hf_out is not None:
        before = nbytes if out is not None and goal.same_disk(out, hf_out) else 0
        outtype = _plain(asked)
        made = _laid_out(asked, outtype)
        goal.check_room(hf_out, before + made.nbytes + _folder_bytes(made, outtype))


@dataclass(frozen=True, slots=True)
class _Layout:
    """The GGUF to come: its tensors, all bytes before them, and its size."""

    plan: Plan
    head: bytes
    nbytes: int


def _laid_out(asked: Asked, plain: OutType | None = None) -> _Layout:
    """`plain`: see write_gguf."""
    n_tokens, options = asked.target.vocab.n_tokens, asked.options
    new = plan(asked.donor, n_tokens, asked.layers, plain or options["outtype"], fold=plain is not None)
    tensors = new.announced()
    head = gguf_write.header_bytes(
        [
            *general_keys(asked.donor, asked.target, new.arch, new.n_weights()),
            *own_keys(asked.donor, asked.target, options, asked.digests),
            *arch_keys(asked.donor, new.arch, n_tokens, asked.layers, options["context"]),
            *tokenizer_keys(asked.target),
        ],
        tensors,
    )
    return _Layout(new, head, len(head) + gguf_write.data_bytes(tensors))


def _plain(asked: Asked) -> Any:
    """The type of all weights in a folder."""
    outtype = asked.options["outtype"]
    return outtype if outtype in ("f32", "f16", "bf16") else "bf16"


def _folder_bytes(made: _Layout, outtype: OutType) -> int:
    """Of a folder that export makes of this GGUF, its tokenizer's files as it estimates them."""
    return made.plan.n_weights() * floats.row_bytes(1, TYPES[outtype]) + 2 * len(made.head)


def write_gguf(
    draft: Draft,
    out: Path,
    *,
    plain: OutType | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Written:
    """Writes a GGUF. `plain`: its outtype, and no output.bias, as a Hugging Face class needs it."""
    made = _laid_out(draft, plain)
    tell = teller(progress, "rows" if plain is None else "rows for the folder")
    with goal.new_file(out, made.nbytes, force=force) as file:
        ties = write(made.plan, made.head, draft.donor, draft.rows, file, unit=draft.unit, tell=tell)
        file.flush()
        verdict = _verdict(draft.target, Path(file.name), out, progress)
    return Written(made.plan.arch, made.nbytes, ties, verdict)


def write_folder(
    draft: Draft, out: Path, *, force: bool = False, progress: Progress | None = None
) -> Written:
    """Writes a Hugging Face folder, by way of a GGUF beside it; block types become BF16."""
    plain = _plain(draft)
    with goal.scratch(out, "draft") as scratch:
        made = write_gguf(draft, scratch / "draft.gguf", plain=plain, progress=progress)
        with goal.new_folder(out, 0, foreign, force=force) as part:  # export knows what it needs
            done = export(scratch / "draft.gguf", part, outtype=plain, progress=progress)
            verdict = _verdict(draft.target, part, out, progress)
    return Written(made.architecture, done.nbytes, made.ties, verdict)


def _verdict(target: Side, part: Path, out: Path, progress: Progress | None) -> str:
    """What `check` says of the pair. Raises IncompatibleDraft."""
    tell = teller(progress, "check")
    tell(0.0)
    report = check(target, replace(load(part), name=str(out)))
    tell(1.0)
    if report.verdict in _GOOD:
        return report.verdict
    failed = [rule for rule in report.failed() if rule.level in ("fatal", "refused")] or report.failed()
    why = "; ".join(f"{rule.name}: {rule.effect or rule.target}" for rule in failed[:3])
    raise IncompatibleDraft(
        f"the draft would be {report.verdict} with {target.name}",
        why or "check says so",
        "look at the target by itself: gguftools check TARGET",
        report,
    )
