"""The `gguftools` command: one module per verb, imported only when the verb is used.

A verb's module is `gguftools.cli.VERB` and holds a click command named `command`. Its callback prints the
result through `ui`, returns the exit code (None is 0) and lets errors rise: `main` turns them into three
lines, or into the JSON object that `--json` promises.

Exit codes: 0 done, 1 failed, 2 usage, 3 `check` found no usable draft, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

import click

from .. import __version__
from ..errors import GGUFToolsError, IncompatibleDraft
from . import signals

if TYPE_CHECKING:
    from ..verbs.check import Report

VERBS = {
    "check": "Say whether two models can work as target and draft, or judge one file.",
    "convert": "Convert a Hugging Face folder or Hub repo into a GGUF.",
    "edit": "Change the metadata of a GGUF, and show each change first.",
    "export": "Convert a GGUF back into a Hugging Face folder.",
    "quantize": "Write a GGUF in another type: Q8_0, the K- and IQ-quants of llama.cpp.",
    "transplant": "Give a small donor the vocabulary of a target, as its draft.",
    "info": "Show what a GGUF holds, what memory it takes, and where it can live.",
    "run": "Answer one prompt.",
    "chat": "Chat with a model in the terminal.",
    "bench": "Measure how much a draft brings, or a running server.",
    "demo": "Show the whole way with a small model, offline.",
}


_VERBOSE: dict[str, Any] = {
    "count": True,
    "help": "Show the log, of llama.cpp its warnings; -vv all.",
}


def _show_log(_context: click.Context, _option: click.Parameter, count: int) -> None:
    """-v stands before a verb or after it."""
    if count:
        from . import ui

        ui.show_log(count)


class _Verbs(click.Group):
    """A group that knows its verbs by name, so that `--help` imports none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command = cast(click.Command, import_module(f".{cmd_name}", __name__).command)
        if not any(param.name == "verbose" for param in command.params):
            command.params.append(
                click.Option(["-v", "--verbose"], **_VERBOSE, expose_value=False, callback=_show_log)
            )
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


@click.group(
    cls=_Verbs,
    subcommand_metavar="VERB [ARGS]...",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="gguftools VERB --help tells more. Results go to stdout, everything else to stderr.",
)
@click.version_option(__version__, message="gguftools %(version)s")
@click.option("-v", "--verbose", **_VERBOSE)
@click.pass_context
def group(context: click.Context, verbose: int) -> None:
    """Find, make, check and run draft models for speculative decoding on llama.cpp."""
    from . import ui

    context.call_on_close(ui.log_to_stderr(verbose))


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs the command line `argv` (default: sys.argv[1:]) and exits the process."""
    args = list(sys.argv[1:] if argv is None else argv)
    _open_streams()
    signals.end_in_order()
    sys.exit(_run(args))


def _open_streams() -> None:
    """A standard stream that the caller closed becomes the null device, so that no file takes its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115


def _run(args: list[str]) -> int:
    try:
        code = group.main(args or ["--help"], prog_name="gguftools", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.UsageError as error:
        _fail(args, *_usage(error), kind="UsageError")
        return 2
    except (click.Abort, KeyboardInterrupt):
        _fail(args, "interrupted", kind="Interrupted")
        return 130
    except click.ClickException as error:
        _fail(args, error.format_message(), kind=type(error).__name__)
    except GGUFToolsError as error:
        _fail(args, error.what, error.why, error.hint, kind=type(error).__name__, report=_report(error))
    except BrokenPipeError:
        # The reader of stdout is gone (`gguftools run … | head`); Python would complain once more at exit.
        _silence()
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _fail(args, f"{where}{error.strerror or error}", kind=type(error).__name__)
    except Exception as error:
        if "--json" not in args:
            raise  # a mistake of ours: the traceback is what a report needs
        _fail(args, f"{type(error).__name__}: {error}", kind="InternalError")
    return 1


def _silence() -> None:
    """What Python still holds for stdout goes nowhere, so that it does not complain at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _usage(error: click.UsageError) -> tuple[str, str, str]:
    path = error.ctx.command_path if error.ctx else "gguftools"
    why = error.ctx.get_usage().replace("Usage:", "usage:", 1) if error.ctx else ""
    return error.format_message(), " ".join(why.split()), f"run: {path} --help"


def _report(error: GGUFToolsError) -> Report | None:
    """What `check` found, when that is why a pair was refused."""
    return error.report if isinstance(error, IncompatibleDraft) else None


def _fail(
    args: list[str], what: str, why: str = "", hint: str = "", *, kind: str, report: Report | None = None
) -> None:
    from . import ui

    if "--json" in args:
        found = {"report": report.to_json()} if report else {}
        try:
            ui.result_json({"error": {"kind": kind, "what": what, "why": why, "hint": hint, **found}})
            return
        except OSError as error:  # stdout takes nothing: the person may still read stderr
            if not isinstance(error, BrokenPipeError):
                ui.error("nothing can be written to stdout", error.strerror or str(error), "")
                _silence()
    ui.error(what, why, hint)
