"""The draft as a file or as a folder, which take their names only when `check` accepts them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ... import gguf_write, goal
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
from .write import OutType, plan, write

_GOOD = ("identical", "compatible")


@dataclass(frozen=True, slots=True)
class Draft:
    """What goes into a draft, whatever it is written as. `unit`: see write.write."""

    donor: Donor
    target: Side
    mapped: tuple[Mapped, ...]
    alignment: Alignment
    layers: Sequence[int]  # of the donor, in their new order
    rows: NewRows
    unit: Unit | None
    coverage: Mapping[str, float] | None
    options: Mapping[str, Any]  # outtype, layers, context, map, calibrate, calibrate_tokens
    digests: Mapping[str, str]


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


def write_gguf(
    draft: Draft,
    out: Path,
    *,
    plain: OutType | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Written:
    """Writes a GGUF. `plain`: its outtype, and no output.bias, as a Hugging Face class needs it."""
    n_tokens = draft.target.vocab.n_tokens
    outtype = plain or draft.options["outtype"]
    new = plan(draft.donor, n_tokens, draft.layers, outtype, fold=plain is not None)
    tensors = new.announced()
    head = gguf_write.header_bytes(
        [
            *general_keys(draft.donor, draft.target, new.arch, new.n_weights()),
            *own_keys(draft.donor, draft.target, draft.options, draft.digests),
            *arch_keys(draft.donor, new.arch, n_tokens, draft.layers, draft.options["context"]),
            *tokenizer_keys(draft.target),
        ],
        tensors,
    )
    nbytes = len(head) + gguf_write.data_bytes(tensors)
    tell = teller(progress, "rows" if plain is None else "rows for the folder")
    with goal.new_file(out, nbytes, force=force) as file:
        ties = write(new, head, draft.donor, draft.rows, file, unit=draft.unit, tell=tell)
        file.flush()
        verdict = _verdict(draft.target, Path(file.name), out, progress)
    return Written(new.arch, nbytes, ties, verdict)


def write_folder(
    draft: Draft, out: Path, *, force: bool = False, progress: Progress | None = None
) -> Written:
    """Writes a Hugging Face folder, by way of a GGUF beside it; block types become BF16."""
    outtype = draft.options["outtype"]
    plain: Any = outtype if outtype in ("f32", "f16", "bf16") else "bf16"
    with goal.scratch(out, "draft") as scratch:
        made = write_gguf(draft, scratch / "draft.gguf", plain=plain, progress=progress)
        with goal.new_folder(out, made.nbytes, foreign, force=force) as part:
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
