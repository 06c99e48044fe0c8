"""`gguftools quantize`: a GGUF in another type."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import ui
from .kinds import File, within

if TYPE_CHECKING:
    from ..verbs.quantize import Quantized


@click.command(name="quantize")
@click.argument("src", type=File())
@click.option("-o", "--out", type=File(), help="The GGUF to write; only --dry-run needs none.")
@click.option("--type", "type_", required=True, metavar="TYPE", help="The type of the whole, see below.")
@click.option("--imatrix", type=File(), metavar="FILE", help="Importance matrix: GGUF or .dat.")
@click.option(
    "--tensor-type",
    multiple=True,
    metavar="REGEX=TYPE",
    help="Type of the tensors whose names the expression is found in; the first that fits holds.",
)
@click.option("--output-type", metavar="TYPE", help="Type of output.weight.")
@click.option("--embedding-type", metavar="TYPE", help="Type of token_embd.weight.")
@click.option("--allow-requantize", is_flag=True, help="Take a source that has lost precision already.")
@click.option("--threads", type=within("threads"), metavar="N", help="Default: physical cores.")
@click.option("--dry-run", is_flag=True, help="Print each tensor's type and the bytes, and write nothing.")
@click.option("--force", is_flag=True, help="Replace the output if it exists.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
def command(
    src: Path,
    out: Path | None,
    type_: str,
    imatrix: Path | None,
    tensor_type: tuple[str, ...],
    output_type: str | None,
    embedding_type: str | None,
    allow_requantize: bool,
    threads: int | None,
    dry_run: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Write SRC, a GGUF (of a split one any shard), as one file in another type.

    Types: f32 f16 bf16 q8_0 q6_k q5_k_m q5_k_s q5_1 q5_0 q4_k_m q4_k_s q4_1 q4_0 iq4_nl iq4_xs q3_k_l q3_k_m
    q3_k_s q2_k; with --imatrix best, or only: q2_k_s iq3_m iq3_s iq3_xs iq3_xxs iq2_m iq2_s iq2_xs iq2_xxs
    iq1_m iq1_s; also tq1_0 tq2_0 mxfp4_moe. Of one tensor: f32 f16 bf16 q8_0 q6_k … without _m, _s, _l.
    """
    from ..verbs.quantize import quantize

    if out is None and not dry_run:
        raise click.UsageError("Missing option '-o' / '--out'.", click.get_current_context())
    with ui.progress() as progress:
        done = quantize(
            src,
            out,
            type=type_,
            imatrix=imatrix,
            tensor_type=tensor_type,
            output_type=output_type,
            embedding_type=embedding_type,
            allow_requantize=allow_requantize,
            threads=threads,
            dry_run=dry_run,
            force=force,
            progress=progress,
        )
    if as_json:
        ui.result_json(done.to_json())
        return
    if dry_run:
        _tensors(done)
    _summary(done)


def _tensors(done: Quantized) -> None:
    rows = [
        (row.name, " × ".join(map(str, row.shape)), row.source, row.type, f"{row.nbytes:,}")
        for row in done.tensors
    ]
    ui.table(rows, ("tensor", "shape", "from", "to", "bytes"))


def _summary(done: Quantized) -> None:
    types = ", ".join(f"{count} {name}" for name, count in done.types.items())
    nothing = done.path is None
    ui.table(
        [
            ("would write" if nothing else "wrote", f"{done.nbytes:,} bytes" if nothing else str(done.path)),
            ("size", f"{done.nbytes / 1e6:,.1f} MB, {done.nbytes / done.source_nbytes:.0%} of the source"),
            ("type", f"{done.type}, {done.bits_per_weight:.2f} bits per weight"),
            ("tensors", types),
        ]
    )
