"""`gguftools export`: a GGUF becomes a Hugging Face folder."""

from __future__ import annotations

from pathlib import Path

import click

from . import ui
from .kinds import File


@click.command(name="export")
@click.argument("file", type=File())
@click.option("-o", "--out", required=True, type=File(), help="The folder to write.")
@click.option(
    "--outtype",
    type=click.Choice(["auto", "f32", "f16", "bf16"]),
    default="auto",
    show_default=True,
    help="Type of the weights; auto loses nothing: F32, F16, BF16 stay, all else becomes F32.",
)
@click.option("--force", is_flag=True, help="Replace the folder if it holds an earlier export.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
def command(file: Path, out: Path, outtype: str, force: bool, as_json: bool) -> None:
    """Convert FILE, a GGUF of the Llama, Qwen2 or Qwen3 family, into a Hugging Face folder.

    Writes config.json, generation_config.json, the tokenizer's files and safetensors, dequantized.
    """
    from ..verbs.export import export

    with ui.progress() as progress:
        done = export(file, out, outtype=outtype, force=force, progress=progress)  # type: ignore[arg-type]
    if as_json:
        ui.result_json(done.to_json())
        return
    ui.table(
        [
            ("wrote", str(done.path)),
            ("weights", f"{done.nbytes / 1e6:,.1f} MB in {done.shards} file{'s' * (done.shards > 1)}"),
            ("class", done.architecture),
        ]
    )
