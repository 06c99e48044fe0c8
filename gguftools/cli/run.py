"""`gguftools run`: one prompt, its answer on stdout."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import ui
from .conversation import read_text
from .kinds import File, name
from .options import KEYS_HELP, model_options, open_model, split_options

if TYPE_CHECKING:
    from ..session.session import Session
    from ..session.stream import Stream


@click.command(name="run", epilog=KEYS_HELP)
@click.argument("target", type=name)
@click.argument("prompt", required=False)
@click.option("-f", "--file", type=File(), help="Read the prompt from a file.")
@click.option("--system", metavar="TEXT", help="The system message.")
@click.option(
    "--raw",
    is_flag=True,
    help="Give the prompt to the model as it is, without its template; control tokens written in it count.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
@model_options
def command(
    target: str,
    prompt: str | None,
    file: Path | None,
    system: str | None,
    raw: bool,
    as_json: bool,
    draft: str | None,
    offline: bool,
    **options: Any,
) -> None:
    """Answer one prompt with TARGET: the text goes to stdout, all else to stderr.

    TARGET and DRAFT are GGUF files or names on the Hub: org/repo[:file or quant]. Without PROMPT and -f the
    prompt is read from stdin.
    """
    if raw and (system or options["think"]):
        raise click.UsageError("--raw uses no template, so --system and --think have no effect with it")
    load, request = split_options(options)
    text = _prompt(prompt, file)
    if not (text if raw else text.strip()):
        raise click.UsageError("the prompt is empty: give one as an argument, with -f FILE, or on stdin")
    with (
        open_model(target, draft, load, offline=offline) as model,
        model.session() as session,
        _ask(session, text, system, raw, request) as stream,
    ):
        if as_json:
            ui.result_json(_result(stream))
        else:
            paced = draft not in (None, "ngram", "none") and request.get("draft_tokens", "auto") == "auto"
            _show(stream, paced)


def _show(stream: Stream, paced: bool) -> None:
    answer = ui.AnswerWriter()
    try:
        for token in stream:
            answer.token(token)
    finally:
        answer.end()
    stats = stream.stats
    ui.figures(ui.statistics(stats, paced=paced))
    if stats.seed is not None:
        ui.note(f"seed {stats.seed} · sampling from {stats.sampling_source}")


def _prompt(prompt: str | None, file: Path | None) -> str:
    if prompt is not None and file is not None:
        raise click.UsageError("give the prompt either as an argument or with -f, not both")
    if file is not None:
        return read_text(file)
    if prompt is not None and prompt != "-":
        return prompt
    if prompt is None and sys.stdin.isatty():
        raise click.UsageError("no prompt: give one as an argument, with -f FILE, or on stdin")
    return sys.stdin.read()


def _ask(session: Session, text: str, system: str | None, raw: bool, request: dict[str, Any]) -> Stream:
    if raw:
        return session.generate(text, parse_special=True, **request)
    first = [{"role": "system", "content": system}] if system else []
    return session.chat([*first, {"role": "user", "content": text}], **request)


def _result(stream: Stream) -> dict[str, Any]:
    result = stream.result()
    return {
        "text": result.text,
        "reasoning": result.reasoning,
        "tokens": result.tokens,
        "finish_reason": result.finish_reason,
        "stats": result.stats.to_json(),
    }
