"""The findings as a picture, or as one page that needs nothing else."""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ... import goal
from ...errors import InputError, Unsupported
from .measures import PARTS
from .report import Report, Side
from .runs import speeds

SUFFIXES = (".png", ".html", ".htm")
INSTALL = "python -m pip install 'gguftools[plot]'"
PLAIN, DRAFT, THIRD, FOURTH = "#8a94a6", "#1f77b4", "#e08e2b", "#5aa469"
COLORS = {"draft": THIRD, "target": DRAFT, "selection": FOURTH, "elsewhere": PLAIN}
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse;margin:1rem 0}td,th{padding:.25rem .9rem .25rem 0;text-align:left;"
    "border-bottom:1px solid #ddd;vertical-align:top}svg{max-width:100%;height:auto}.advice{color:#8a4b00}"
)


def check(path: Path, *, force: bool = False) -> None:
    """Raises, before anything is measured, what `write` would raise."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"{path} is no picture that can be drawn", "its name ends with .png or .html")
    goal.check_file(path, force=force)
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise Unsupported("drawing needs matplotlib", "it is not installed", f"run: {INSTALL}") from None


def write(report: Report, rows: Sequence[Sequence[str]], path: Path, *, force: bool = False) -> None:
    """A PNG, or a page with the same picture and `rows` as a table."""
    check(path, force=force)
    is_page = path.suffix.lower() != ".png"
    picture = _rendered(report, "svg" if is_page else "png")
    data = _page(report, rows, picture.decode()).encode() if is_page else picture
    with goal.new_file(path, len(data), force=force) as file:
        file.write(data)


def _rendered(report: Report, kind: str) -> bytes:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    panels = [panel for panel in (_speeds, _positions, _widths, _shares, _lengths, _sweep) if panel(report)]
    columns = min(2, len(panels))
    lines = -(-len(panels) // columns)
    with rc_context({"svg.hashsalt": "gguftools", "font.size": 10}):
        figure = Figure(figsize=(6.2 * columns, 3.7 * lines + 0.5), layout="constrained")
        figure.suptitle(_title(report), fontsize=12)
        for i, panel in enumerate(panels):
            axes = figure.add_subplot(lines, columns, i + 1)
            axes.spines[["top", "right"]].set_visible(False)
            panel(report, axes)
        out = io.BytesIO()
        figure.savefig(out, format=kind, dpi=130, metadata={"Date": None} if kind == "svg" else None)
    return out.getvalue()


def _title(report: Report) -> str:
    speedup = report.speedup
    if report.plain is None or report.draft is None:
        return report.target
    return f"{report.target}: {speedup.value:.2f} × with the draft ({speedup.low:.2f} … {speedup.high:.2f})"


# Each panel says whether it has anything to show, and draws it when it gets axes.


def _speeds(report: Report, axes: Any = None) -> bool:
    sides = [
        (name, side, color)
        for name, side, color in (("plain", report.plain, PLAIN), ("draft", report.draft, DRAFT))
        if side is not None
    ]
    if axes is None:
        return True
    count = len(report.prompts)
    height = 0.8 / len(sides)
    for j, (name, side, color) in enumerate(sides):
        places = [i + (j - (len(sides) - 1) / 2) * height for i in range(count)]
        axes.barh(places, speeds(side.runs), height=height, color=color, label=name)
    if count <= 16:
        axes.set_yticks(range(count), [_short(report, i) for i in range(count)], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("tokens per second")
    axes.set_title("Speed of each prompt")
    axes.legend(frameon=False)
    return True


def _short(report: Report, i: int) -> str:
    prompt = report.prompts[i]
    title = prompt.title if len(prompt.title) <= 26 else prompt.title[:25].rstrip() + "…"
    return title.replace("$", r"\$")  # matplotlib reads formulas between two of them


def _positions(report: Report, axes: Any = None) -> bool:
    found = report.draft.acceptance.positions if report.draft else ()
    if axes is None:
        return bool(found)
    axes.bar(range(1, len(found) + 1), [100 * one.rate for one in found], color=DRAFT)
    axes.set_ylim(0, 100)
    axes.set_xticks(range(1, len(found) + 1))
    axes.set_xlabel("position in the draft")
    axes.set_ylabel("kept, %")
    axes.set_title("Acceptance by position")
    return True


def _widths(report: Report, axes: Any = None) -> bool:
    costs = report.costs
    if axes is None:
        return len(costs) > 1
    widths = [cost.width for cost in costs]
    target, draft = [cost.target_ms for cost in costs], [cost.draft_ms for cost in costs]
    axes.bar(widths, target, color=DRAFT, label="target")
    axes.bar(widths, draft, bottom=target, color=THIRD, label="draft before it")
    if costs[0].width == 1:
        axes.plot(widths, [w * target[0] for w in widths], ":", color="#444", label="as single tokens")
    axes.set_xticks(widths)
    axes.set_ylim(0, 1.25 * max(t + d for t, d in zip(target, draft, strict=True)))
    axes.set_xlabel("tokens verified at once")
    axes.set_ylabel("ms")
    axes.set_title("Cost of a round by width")
    axes.legend(frameon=False, loc="upper left")
    return True


def _shares(report: Report, axes: Any = None) -> bool:
    if axes is None:
        return report.time_share is not None
    assert report.time_share is not None
    names = list(reversed(PARTS))
    shares = [100 * report.time_share[name] for name in names]
    bars = axes.barh(names, shares, color=[COLORS[name] for name in names])
    axes.bar_label(bars, [f"{share:.1f} %" for share in shares], padding=3)
    axes.set_xlim(0, 118)
    axes.set_xticks(range(0, 101, 25))
    axes.set_xlabel("% of the time after the prompt")
    axes.set_title("Where the time goes, with the draft")
    return True


def _lengths(report: Report, axes: Any = None) -> bool:
    found = report.lengths_over_time
    if axes is None:
        return bool(found)
    places = [100 * (i + 0.5) / len(found) for i in range(len(found))]
    axes.plot(places, found, "o-", color=DRAFT)
    axes.set_xlim(0, 100)
    axes.set_ylim(0, max(1.0, 1.25 * max(found)))
    axes.set_xlabel("% of the answer")
    axes.set_ylabel("tokens drafted per step")
    axes.set_title("Draft length over time")
    return True


def _sweep(report: Report, axes: Any = None) -> bool:
    if axes is None:
        return bool(report.sweep)
    found = [report.speedup_of(side) for side in report.sweep]
    below = [one.value - one.low for one in found]
    above = [one.high - one.value for one in found]
    colors = [
        PLAIN if side.draft_tokens == 0 else THIRD if side is report.draft else DRAFT for side in report.sweep
    ]
    places = range(len(found))
    axes.bar(
        places, [one.value for one in found], yerr=[below, above], color=colors, capsize=3, ecolor="#444"
    )
    axes.axhline(1, color="#444", linestyle=":")
    axes.set_xticks(places, [_length(side) for side in report.sweep])
    axes.set_xlabel("tokens drafted per step")
    axes.set_ylabel("speed-up")
    axes.set_title("Fixed lengths, 95 % intervals")
    return True


def _length(side: Side) -> str:
    return "none" if side.draft_tokens == 0 else str(side.draft_tokens)


def _page(report: Report, rows: Sequence[Sequence[str]], svg: str) -> str:
    """One page: no script, nothing fetched, and whatever names and prompts hold is text."""
    table = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    advice = "".join(f'<p class="advice">{html.escape(text)}</p>' for text in report.advice)
    notes = "".join(f"<p>{html.escape(text)}</p>" for text in report.notes)
    title = html.escape(_title(report))
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"><style>{_STYLE}</style></head>'
        f"<body><h1>{title}</h1>{advice}<table>{table}</table>{svg[svg.index('<svg') :]}{notes}</body>"
        "</html>\n"
    )
