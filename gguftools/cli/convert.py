"""`gguftools convert`: a Hugging Face checkpoint becomes a GGUF."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from . import convert_lines, ui
from .kinds import File, name, size


@click.command(name="convert")
@click.argument("src", type=name)
@click.option("-o", "--out", required=True, type=File(), help="The GGUF to write.")
@click.option(
    "--outtype",
    type=click.Choice(["auto", "f32", "f16", "bf16", "q8_0", "q4_0"]),
    default="auto",
    show_default=True,
    help="Type of the weights; auto keeps the checkpoint's. Norms and biases are always F32.",
)
@click.option(
    "--split-size",
    type=size,
    metavar="SIZE",
    help="Write shards of at most this size (4G, 500M); the same command goes on after a stop.",
)
@click.option("--tokenizer", type=name, metavar="DIR", help="Take vocabulary and template from this folder.")
@click.option(
    "--target", type=name, help="The model that an EAGLE-3 head drafts for: its vocabulary is taken."
)
@click.option(
    "--layer-ids",
    default="auto",
    show_default=True,
    metavar="auto|inputs|outputs|N,N,N",
    help="What an EAGLE-3 head's layer ids name: layers' inputs or outputs.",
)
@click.option("--vocab-only", is_flag=True, help="Write the vocabulary alone; any architecture.")
@click.option("--dry-run", is_flag=True, help="Only list what would be written: each tensor and all bytes.")
@click.option("--force", is_flag=True, help="Replace the output if it exists, and another one's beginning.")
@click.option("--offline", is_flag=True, help="Use only what is in the Hub's cache on this machine.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
def command(
    src: str,
    out: Path,
    outtype: str,
    split_size: int | None,
    tokenizer: str | None,
    target: str | None,
    layer_ids: str,
    vocab_only: bool,
    dry_run: bool,
    force: bool,
    offline: bool,
    as_json: bool,
) -> None:
    """Convert SRC into a GGUF: a Hugging Face folder, or org/repo on the Hub.

    Llama, Qwen2, Qwen3, Qwen3-MoE, Gemma 3, DeepSeek-V3, Kimi-K2 to K2.6 and Moonlight in safetensors (F32,
    F16, BF16, FP8 in blocks, packed int4), with tokenizer.json, tokenizer.model or Kimi's tiktoken.model;
    EAGLE-3 heads (SpecForge, AngelSlim, vLLM, speculators) beside their target. For K-quants and other types
    see `gguftools quantize`.
    """
    from ..verbs.convert import convert

    with ui.progress() as progress:
        done = convert(
            src,
            out,
            outtype=outtype,  # type: ignore[arg-type]
            split_size=split_size,
            tokenizer=tokenizer,
            target=target,
            layer_ids=layer_ids,
            vocab_only=vocab_only,
            dry_run=dry_run,
            force=force,
            offline=offline,
            progress=progress,
        )
    if as_json:
        ui.result_json(done.to_json())
        return
    if dry_run:
        convert_lines.tensors(done)
    convert_lines.summary(done, shutil.disk_usage(out.resolve().parent).free if dry_run else None)
