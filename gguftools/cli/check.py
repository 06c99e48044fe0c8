"""`gguftools check`: one file, or a target with one or more drafts."""

from __future__ import annotations

import click

from ..verbs.check import Report, check
from . import ui
from .kinds import name
from .report_lines import ranking, report_lines


@click.command(name="check")
@click.argument("target", type=name)
@click.argument("drafts", type=name, nargs=-1, metavar="[DRAFT]...")
@click.option("-a", "--all", "everything", is_flag=True, help="Show all about one file, or about each draft.")
@click.option("--offline", is_flag=True, help="Use only what is in the Hub's cache on this machine.")
@click.option(
    "--full", is_flag=True, help="Of one file: compare all its bytes with the Hub's record (SHA-256)."
)
@click.option(
    "--repo", type=name, metavar="ORG/REPO", help="With --full: the repo that a local file is from."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
def command(
    target: str,
    drafts: tuple[str, ...],
    everything: bool,
    offline: bool,
    full: bool,
    repo: str | None,
    as_json: bool,
) -> int:
    """Say whether TARGET and each DRAFT can work together; without a DRAFT judge TARGET's metadata.

    Each may be a GGUF, a Hugging Face folder, or a name on the Hub (org/repo[:file or quant]), of which only
    the header is fetched. Several drafts are listed best first, those that cannot be read last, with the
    report of the best one.

    Exit code: 0 if any draft can be used (or the one file is right), else 3.
    """
    if drafts and (full or repo):
        raise click.UsageError("--full and --repo are about one file: leave out the drafts")
    if repo and not full:
        raise click.UsageError("--repo says where the bytes are on record: give --full too")
    found: Report | list[Report]
    if full:
        with ui.progress() as progress:
            found = check(target, offline=offline, full=True, repo=repo, progress=progress)
    else:
        found = check(target, *drafts, offline=offline)
    reports = found if isinstance(found, list) else [found]
    if as_json:
        ui.result_json({"reports": [report.to_json() for report in reports]})
    else:
        _show(reports, everything)
    return 0 if any(report.usable if drafts else report.verdict == "ok" for report in reports) else 3


def _show(reports: list[Report], everything: bool) -> None:
    lines = list(ranking(reports)) if len(reports) > 1 else []
    for report in reports if everything else reports[:1]:
        lines += report_lines(report, everything=everything)
    if len(reports) > 1 and not everything:
        lines.append(("The other reports: --all", "dim"))
    for text, style in lines:
        ui.line(text, style)
