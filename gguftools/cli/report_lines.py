"""A report of `check` as lines of text, each with the style that it is drawn in."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from ..verbs.check import Report, Rule

Line = tuple[str, str]

_VERDICTS = {
    "identical": ("bold green", "the vocabularies are the same"),
    "compatible": ("bold green", "llama.cpp accepts the pair as it stands"),
    "alignable": ("bold yellow", "gguftools runs the pair and exchanges ids; llama.cpp alone refuses it"),
    "incompatible": ("bold red", "the draft cannot serve this target"),
    "ok": ("bold green", "nothing wrong was found"),
    "faulty": ("bold red", "some of its metadata is wrong"),
}
_STYLES = {"refused": "red", "fatal": "bold red", "wrong": "yellow", "note": "cyan"}
_INDENT = " " * 10
_WIDTH = 100
_KEYS = 8


def report_lines(report: Report, *, everything: bool = False) -> Iterator[Line]:
    """Lines (text, rich style) of 100 columns; what is right about one file in short, or `everything`."""
    style, meaning = _VERDICTS[report.verdict]
    yield f"{report.verdict}: {meaning}", style
    if report.draft is None:
        yield f"  file    {report.target}", ""
        yield from _file(report, everything)
    else:
        yield f"  target  {report.target}", ""
        yield f"  draft   {report.draft}", ""
        yield from _unreadable(report) if report.unreadable else _pair(report)
    yield from _advice(report.advice)
    yield "", ""


def brief_lines(report: Report, width: int = _WIDTH) -> Iterator[Line]:
    """The verdict on a pair, what decided it, and what both have in common, in a few lines."""
    style, meaning = _VERDICTS[report.verdict]
    yield f"{report.verdict}: {meaning}", style
    decisive = list(_decisive(report))
    others = len(report.failed()) - len(decisive)
    for rule in decisive:
        yield from _wrapped(f"  {rule.level:<8}", f"{rule.name}: {_values(rule)}", _STYLES[rule.level], width)
    if decisive and others:
        yield f"{_INDENT}and {others} more that llama.cpp does not look at", "dim"
    elif not decisive:
        yield f"  ok      {sum(rule.passed for rule in report.rules)} of {len(report.rules)} rules", ""
    yield f"  the draft has {_percent(report.shared_fraction)} of the target's tokens, byte for byte", ""


def ranking(reports: Sequence[Report]) -> Iterator[Line]:
    """Several drafts, best first as `check` gives them: verdict, shared tokens, name, and why not."""
    yield f"  {'verdict':<14}{'shared tokens':>18}   draft", "bold"
    for report in reports:
        fits = report.usable
        verdict = "unreadable" if report.unreadable else report.verdict
        style = _VERDICTS[report.verdict][0] if fits else "bold red"
        shared = "" if report.unreadable else _percent(report.shared_fraction)
        yield f"  {verdict:<14}{shared:>18}   {report.draft}", style
        if not fits:
            for rule in _decisive(report):
                what = rule.name
                if report.unreadable:  # the draft's name stands in the line above
                    what = (rule.draft or "").removeprefix(f"{report.draft}: ")
                why = f"{what}: {rule.effect}" if rule.effect else what
                yield from _wrapped(_INDENT, why, "dim")
    yield "", ""


def _decisive(report: Report) -> Iterator[Rule]:
    """The failed rules that keep a draft from being used."""
    return (rule for rule in report.failed() if rule.level in ("refused", "fatal"))


def _file(report: Report, everything: bool) -> Iterator[Line]:
    failed = report.failed()
    right = [rule for rule in report.rules if rule.passed]
    if failed:
        yield "", ""
    yield from _rules(failed)
    if everything:
        yield from _rules(right)
    else:
        yield from _wrapped("  ok      ", ", ".join(rule.name for rule in right), "dim")


def _unreadable(report: Report) -> Iterator[Line]:
    yield "", ""
    for rule in report.rules:
        yield from _wrapped(f"  {rule.level:<8}", rule.draft or "", _STYLES[rule.level])
        yield from _wrapped(_INDENT, rule.effect, "")


def _pair(report: Report) -> Iterator[Line]:
    for source, title in (("llama.cpp", "llama.cpp's rules"), ("gguftools", "what they do not look at")):
        yield "", ""
        yield f"  {title}", "bold"
        yield from _rules(rule for rule in report.rules if rule.source == source)
    if report.differences:
        yield "", ""
        yield f"  ids whose texts differ: {report.n_differences:,}", "bold"
        for each in report.differences:
            yield f"    {each.id:>7}  {_text(each.target)}  ≠  {_text(each.draft)}", ""
        rest = report.n_differences - len(report.differences)
        if rest:
            yield f"    and {rest:,} more", "dim"
    yield "", ""
    yield f"  the draft has {_percent(report.shared_fraction)} of the target's tokens, byte for byte", ""
    if report.unshared:
        yield f"  {len(report.unshared):,} of the target's ids are never drafted", ""


def _percent(share: float) -> str:
    """Never 100 % where something is missing."""
    return f"{share:.2%}" if share in (0.0, 1.0) or share < 0.9999 else "more than 99.99%"


def _text(token: str | None) -> str:
    return "none" if token is None else f'"{token}"'


def _rules(rules: Iterable[Rule]) -> Iterator[Line]:
    for rule in rules:
        mark = "ok" if rule.passed else rule.level
        yield from _wrapped(
            f"  {mark:<8}", f"{rule.name}: {_values(rule)}", "" if rule.passed else _STYLES[rule.level]
        )
        if not rule.passed:
            yield from _wrapped(_INDENT, rule.effect, "")
            for mend in _shortened(rule.mend.splitlines()):
                yield from _wrapped(_INDENT, f"→ {mend}", "")


def _shortened(lines: Sequence[str]) -> Iterator[str]:
    yield from lines[:_KEYS]
    if len(lines) > _KEYS:
        yield f"and {len(lines) - _KEYS} more: --json lists all"


def _values(rule: Rule) -> str:
    if rule.draft is None:
        return rule.target
    if rule.target == rule.draft:
        return rule.target
    return f"target {rule.target or '–'} · draft {rule.draft or '–'}"


def _wrapped(start: str, text: str, style: str, width: int = _WIDTH) -> Iterator[Line]:
    if not text:
        return
    lines = textwrap.wrap(text, width - len(_INDENT), break_long_words=False, break_on_hyphens=False)
    for i, each in enumerate(lines):
        yield (start if i == 0 else _INDENT) + each, style


def _advice(advice: Sequence[str]) -> Iterator[Line]:
    if advice:
        yield "", ""
        yield "  next", "bold"
    for text in _without_most_keys(advice):
        command = text.startswith("gguftools ") and not text.startswith("gguftools exchanges")
        yield f"    {text}", "cyan" if command else ""


def _without_most_keys(advice: Sequence[str]) -> Iterator[str]:
    """The lines, of a run of keys (which are indented) the first ones alone."""
    for keys, run in groupby(advice, lambda text: text.startswith("  ")):
        lines = list(run)
        yield from (f"  {line.strip()}" for line in _shortened(lines)) if keys else lines
