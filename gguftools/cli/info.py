"""`gguftools info`: a GGUF's header, what memory it takes, and with `--plan` where it can live."""

from __future__ import annotations

import shutil
from typing import Any

import click

from . import ui
from .kinds import name, within


@click.command(name="info")
@click.argument("file", type=name)
@click.option("--n-ctx", type=within("n_ctx"), metavar="N", help="Count the memory for N tokens of context.")
@click.option("--cache-type-k", default="f16", show_default=True, metavar="TYPE", help="Type of the K cache.")
@click.option("--cache-type-v", default="f16", show_default=True, metavar="TYPE", help="Type of the V cache.")
@click.option("--plan", is_flag=True, help="Find a place for the model, and maybe its draft, and say why.")
@click.option(
    "--vram", metavar="SIZE,...", help="GPU memory to plan for: 24G, or 24G,24G. Default: what is free."
)
@click.option("--ram", metavar="SIZE", help="Main memory to plan for: 512G. Default: what is free.")
@click.option("--draft", type=name, metavar="DRAFT", help="The draft model that is to live beside it.")
@click.option(
    "--draft-n-ctx",
    type=within("draft_n_ctx"),
    metavar="N",
    help="The draft's context. Default: 4096, as for run.",
)
@click.option("--offline", is_flag=True, help="Never ask the Hub; use what is in its cache.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
def command(file: str, as_json: bool, **options: Any) -> int:
    """Show what FILE holds: its keys, tensors, vocabulary, chat templates, and the memory that it needs.

    FILE is a GGUF (of a split one any shard), or a name on the Hub (org/repo[:file or quant]), of which only
    headers are fetched. With --plan (or --vram, --ram, --draft) it says where the model can live: which
    layers and experts go to the GPUs, how long a context fits, and the command lines for it. A size of 24G is
    24 GiB, as memory is sold.

    Exit code: 0, or 1 where a plan was asked for and nothing fits.
    """
    from ..verbs.info import info
    from .info_lines import info_lines, plan_lines

    found = info(file, **options)
    if as_json:
        ui.result_json(found.to_json())
    else:
        width = min(shutil.get_terminal_size().columns, 100) if ui.is_terminal() else 100
        for text, style in plan_lines(found, width) if found.plan else info_lines(found, width):
            ui.line(text, style)
    return 1 if found.plan is not None and not found.plan.fits else 0
