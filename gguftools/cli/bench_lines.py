"""The findings of `bench` as rows of text, for the terminal and for the page that --plot writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..intervals import Estimate
from ..verbs.bench.measures import PARTS
from ..verbs.bench.report import Report, Side
from ..verbs.bench.runs import speeds

Rows = list[tuple[str, ...]]
MANY = 24  # prompts: more are not listed one by one


def brief_rows(report: Report) -> Rows:
    """(name, value) of what one wants to know first."""
    rows: Rows = [("target", report.target), *_sides(report), ("measured", _how(report))]
    sides = {"plain": report.plain, "draft": report.draft}
    times = [f"{name} {side.prompt_ms:,.0f} ms" for name, side in sides.items() if side is not None]
    rows.append(("prompt", ", ".join(times) + " until it is read"))
    if report.plain is not None and report.draft is not None:
        rows += [("speed-up", _speedup(report)), ("texts", _texts(report))]
    if report.draft is not None:
        rows += [*_acceptance(report.draft), *_lengths(report)]
    if report.time_share is not None:
        shares = [f"{part} {report.time_share[part]:.1%}" for part in PARTS]
        rows.append(("time", ", ".join(shares)))
    return rows


def tables(report: Report) -> Iterator[tuple[Sequence[str], Rows]]:
    """(headings, rows) of the rest."""
    if len(report.prompts) <= MANY:
        yield _prompts(report)
    if report.draft is not None and report.draft.acceptance.positions:
        found = report.draft.acceptance.positions
        heads = ("position in the draft", *(str(i) for i in range(1, len(found) + 1)))
        yield heads, [("kept", *(f"{one.rate:.0%}" for one in found))]
    if len(report.costs) > 1:
        yield _costs(report)
    if report.sweep:
        yield _sweep(report)


_SOURCES = {"model": "model", "ngram": "n-grams", "both": "n-grams and model"}


def _sides(report: Report) -> Rows:
    rows: Rows = []
    for title, side in (("plain", report.plain), ("draft", report.draft)):
        if side is not None:
            alone = "n-grams" if title == "draft" and report.length_counts else ""
            name = f" · {side.name or alone}" if side.name or alone else ""
            length = "" if not side.draft_tokens else f", draft length {side.draft_tokens}"
            rows.append((title, f"{side.tokens_per_second:.2f} tokens/s{name}{length}"))
    return rows


def _how(report: Report) -> str:
    kinds = [prompt.kind for prompt in report.prompts if prompt.kind]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    settings = report.settings
    parts = [
        f"{len(report.prompts)} prompts" + (f" ({counts})" if counts else ""),
        f"up to {settings['max_tokens']} tokens",
        "greedy" if settings["temperature"] == 0 else f"temperature {settings['temperature']:g}",
    ]
    if settings["repeats"] > 1:
        parts.append(f"the median of {settings['repeats']} each")
    return ", ".join(parts)


def _speedup(report: Report) -> str:
    ratios = report.ratios(report.draft)
    kinds = "".join(f"; {kind} {value:.2f}" for kind, value in report.speedup_by_kind.items())
    spread = f"; prompts from {min(ratios):.2f} to {max(ratios):.2f}" if len(ratios) > 1 else ""
    return f"{estimate(report.speedup)}{spread}{kinds}"


def estimate(found: Estimate) -> str:
    """A ratio with its interval."""
    return f"{found.value:.2f} × ({found.low:.2f} … {found.high:.2f})"


def _texts(report: Report) -> str:
    words = {True: "the same", False: "NOT the same", None: "not known to be the same"}
    names = {
        "equal": "equal",
        "tie": "part at a near tie",
        "different": "differ",
        "unknown": "differ, with scores unknown",
    }
    counts = ", ".join(f"{n} {names[verdict]}" for verdict, n in report.texts.items() if n)
    return f"{words[report.same_text]}: {counts}"


def _acceptance(side: Side) -> Rows:
    found = side.acceptance
    parts = []
    if found.rate is not None:
        parts.append(f"{found.rate:.1%} of the drafted tokens")
    if found.mean_length is not None:
        parts.append(f"{found.mean_length:.2f} tokens per step")
    return [("accepted", ", ".join(parts))] if parts else []


def _lengths(report: Report) -> Rows:
    """How many tokens were proposed, and by whom where there are several sources."""
    if not report.length_counts:
        return []
    total = sum(report.length_counts.values())
    shares = ", ".join(f"{length}: {n / total:.0%}" for length, n in report.length_counts.items())
    over_time = " ".join(f"{length:.1f}" for length in report.lengths_over_time)
    rows: Rows = [("drafted", f"{shares} of the steps"), ("", f"over the answer, by tenths: {over_time}")]
    sources = {name: counts for name, counts in report.sources.items() if name != "none"}
    each = [f"{_SOURCES[name]} {c['accepted']} of {c['drafted']} kept" for name, c in sources.items()]
    if report.draft and report.draft.name and not sources.keys() & {"model", "both"}:
        each.append("the draft model was left alone, since it would not pay")
    if len(each) > 1 or "ngram" in sources:
        rows.append(("sources", ", ".join(each)))
    return rows


def _prompts(report: Report) -> tuple[Sequence[str], Rows]:
    sides = [side for side in (report.plain, report.draft) if side is not None]
    names = [name for name, side in (("plain", report.plain), ("draft", report.draft)) if side is not None]
    found = [speeds(side.runs) for side in sides]
    rows: Rows = []
    for i, prompt in enumerate(report.prompts):
        cells = [f"{speed[i]:.2f}" for speed in found]
        if len(found) == 2 and found[0][i]:
            cells.append(f"{found[1][i] / found[0][i]:.2f} ×")
        rows.append((prompt.title, prompt.kind, *cells))
    return ("prompt, tokens/s", "", *names, *(["speed-up"] if len(sides) == 2 else [])), rows


def _costs(report: Report) -> tuple[Sequence[str], Rows]:
    single = report.costs[0].target_ms if report.costs[0].width == 1 else 0.0
    rows: Rows = [
        (
            str(cost.width),
            f"{cost.target_ms:.1f}",
            f"{cost.target_ms / single:.2f} ×" if single else "",
            f"{cost.draft_ms:.1f}",
            str(cost.rounds),
        )
        for cost in report.costs
    ]
    return ("tokens verified at once", "target, ms", "of one token's", "draft before, ms", "rounds"), rows


def _sweep(report: Report) -> tuple[Sequence[str], Rows]:
    rows: Rows = []
    for side in report.sweep:
        found = side.acceptance
        drafted = side.draft_tokens != 0
        rows.append(
            (
                str(side.draft_tokens),
                f"{side.tokens_per_second:.2f}",
                estimate(report.speedup_of(side)) if drafted else "1",
                f"{found.rate:.1%}" if drafted and found.rate is not None else "",
                f"{found.mean_length:.2f}" if drafted and found.mean_length is not None else "",
            )
        )
    return ("tokens drafted", "tokens/s", "speed-up", "accepted", "tokens per step"), rows
