"""An Info as lines of text, each with the style that it is drawn in."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ..verbs.info import Info, Key, Memory, Place, Plan, Tensors
from ..verbs.info.rooms import gib

Line = tuple[str, str]
_FILES = 4  # shown of a split model
_ARRAY = 3  # elements of an array
_PLACES = ("weights", "cache", "compute", "draft", "used", "of", "reserve")
_LEVELS = {
    "gpu": "all on the GPU",
    "experts": "experts in main memory, all else on the GPU",
    "layers": "some layers on the GPU, the rest in main memory",
    "cpu": "all in main memory",
}


def info_lines(info: Info, width: int) -> Iterator[Line]:
    """Everything but a plan."""
    yield from _title(info)
    yield from _files(info, width)
    yield from _head("keys")
    yield from _keys(info.keys, width)
    if info.types:
        yield from _head("tensors")
        yield from _tensors("type", info.types, info.nbytes)
        yield "", ""
        yield from _tensors("group", info.groups, info.nbytes)
    yield from _vocabulary(info, width)
    yield from _templates(info, width)
    yield from _memory(info, width)


def _head(text: str) -> Iterator[Line]:
    yield "", ""
    yield text, "bold"


def _title(info: Info) -> Iterator[Line]:
    yield info.title, "bold green"
    facts = [info.architecture or "no architecture", f"GGUF {info.version}"]
    if info.n_elements:
        facts += [f"{_count(info.n_elements)} weights", f"{info.bits_per_weight:.2f} bits each"]
    yield f"  {' · '.join(facts)}", ""


def _count(n: int) -> str:
    """1,234,567,890 → 1.23 B."""
    for value, unit in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "K")):
        if n >= value:
            return f"{n / value:.3g} {unit}"
    return str(n)


def _files(info: Info, width: int) -> Iterator[Line]:
    if len(info.files) == 1:
        yield from _row("file", info.name, width, 10)
        yield from _row("size", _size(info.nbytes), width, 10)
        return
    yield from _row("size", f"{gib(info.nbytes)} in {len(info.files)} files", width, 10)
    names = [Path(file.name).name for file in info.files]
    for file, name in list(zip(info.files, names, strict=True))[:_FILES]:
        yield from _row("", f"{name}  {gib(file.nbytes)}", width, 10)
    if len(names) > _FILES:
        yield from _row("", f"and {len(names) - _FILES} more", width, 10)


def _row(label: str, text: str, width: int, column: int, style: str = "") -> Iterator[Line]:
    """A label and its text, which goes on below itself."""
    lines = textwrap.wrap(text, max(20, width - column - 3), break_on_hyphens=False) or [""]
    for i, part in enumerate(lines):
        yield f"  {label if i == 0 else '':<{column}} {part}", style


def _keys(keys: Sequence[Key], width: int) -> Iterator[Line]:
    column = min(max((len(key.name) for key in keys), default=0), 46)
    for key in keys:
        room = width - 3 - max(column, len(key.name))
        yield f"  {key.name:<{column}} {_value(key, max(room, 12))}", ""


def _value(key: Key, room: int) -> str:
    if key.count is None:
        text = str(key.value).lower() if isinstance(key.value, bool) else _number(key.value)
        return _cut(text, room)
    first = ", ".join(_cut(str(each), 12) for each in key.first[:_ARRAY])
    more = ", …" if key.count > len(key.first[:_ARRAY]) else ""
    full = f"{key.count:,} × {key.type}: {first}{more}"
    return full if len(full) <= room else _cut(f"{key.count:,} × {key.type}", room)


def _number(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:.6g}"
    return str(value)


def _cut(text: str, room: int) -> str:
    """One line of at most `room` characters."""
    text = text.replace("\n", "⏎").replace("\t", " ")
    return text if len(text) <= room else text[: room - 1] + "…"


def _tensors(kind: str, rows: Iterable[Tensors], total: int) -> Iterator[Line]:
    yield f"  {kind:<18}{'tensors':>8}{'weights':>10}{'size':>14}{'share':>8}", "dim"
    for row in rows:
        share = row.nbytes / max(1, total)
        small = "<0.1%" if 0 < share < 0.001 else f"{share:.1%}"
        size = _size(row.nbytes)
        yield f"  {row.name:<18}{row.count:>8,}{_count(row.elements):>10}{size:>14}{small:>8}", ""


def _size(nbytes: int) -> str:
    if nbytes >= 1 << 30:
        return gib(nbytes)
    return f"{nbytes / (1 << 20):,.0f} MiB" if nbytes >= 10 << 20 else f"{nbytes / (1 << 10):,.0f} KiB"


def _vocabulary(info: Info, width: int) -> Iterator[Line]:
    vocab = info.vocabulary
    if vocab is None:
        return
    yield from _head("vocabulary")
    style = "green" if vocab.identical else ""
    yield from _row("family", vocab.words, width, 10, style)
    kind = f"{vocab.model}, {vocab.pre}" if vocab.pre else vocab.model
    yield from _row("tokens", f"{vocab.n_tokens:,} ({kind}), {vocab.n_merges:,} merges", width, 10)
    special = ", ".join(f"{name} {i}" for name, i in vocab.special.items()) or "none named"
    yield from _row("special", special, width, 10)
    for name in ("ordinary", "tokens", "merges"):
        yield f"  {'sha256' if name == 'ordinary' else '':<10} {name:<9}{_digest(info, name)}", "dim"


def _digest(info: Info, name: str) -> str:
    return str(getattr(info.vocabulary, f"digest_{name}"))[:32] + "…"


def _templates(info: Info, width: int) -> Iterator[Line]:
    if info.vocabulary is None:
        return
    yield from _head("chat template")
    if not info.templates:
        yield "  none: run and chat need one, run --raw does not", "yellow"
    for template in info.templates:
        form = f"writes the {template.family} format" if template.family else "writes a format of its own"
        text = f"{form}, {template.characters:,} characters"
        text += f"; cannot be rendered: {template.fault}" if template.fault else "; renders"
        yield from _row(_cut(template.name, 10), text, width, 10, "yellow" if template.fault else "")


def _memory(info: Info, width: int) -> Iterator[Line]:
    if info.memory is None:
        yield from _head("memory")
        yield from _row("unknown", info.unknown, width, 10, "yellow")
        return
    memory = info.memory
    yield from _head(f"memory for {memory.n_ctx:,} tokens, without a GPU")
    for label, nbytes, note in _amounts(memory):
        yield f"  {label:<10}{_size(nbytes):>14}   {note}".rstrip(), ""
    yield f"  {'together':<10}{_size(memory.total):>14}", "bold"
    for note in memory.notes:
        yield from _row("", note, width, 10, "yellow")
    yield "  → --plan: where it can live", "dim"


def _amounts(memory: Memory) -> Iterator[tuple[str, int, str]]:
    yield "weights", memory.weights, ""
    types = memory.cache_type_k
    types += "" if types == memory.cache_type_v else f", {memory.cache_type_v}"
    window = f"; {_size(memory.cache_window)} in llama-server" if memory.cache_window < memory.cache else ""
    yield "cache", memory.cache, f"keys and values in {types}{window}"
    if memory.state:
        yield "state", memory.state, "of recurrent layers, at any length"
    server = _size(memory.compute_server)
    yield "compute", memory.compute, f"an estimate; {server} in llama-server"


def plan_lines(info: Info, width: int) -> Iterator[Line]:
    """The plan alone."""
    plan = info.plan
    if plan is None:
        return
    yield from _title(info)
    yield "", ""
    if plan.fits:
        yield f"fits: {_LEVELS[plan.level]}", "bold green"
    else:
        yield "does not fit", "bold red"
    yield from _decisions(plan, width)
    yield "", ""
    yield from _places(plan)
    for title, texts in (("why", plan.why), ("limits", plan.limits)):
        if texts:
            yield from _head(title)
        for text in texts:
            yield from _bullet(text, width)
    for command in plan.commands:
        yield from _head(command.program)
        if command.note:
            yield from _bullet(command.note, width)
        yield f"  {command.line}", "cyan"


def _bullet(text: str, width: int) -> Iterator[Line]:
    for i, line in enumerate(textwrap.wrap(text, width - 4, break_on_hyphens=False)):
        yield f"  {'· ' if i == 0 else '  '}{line}", ""


def _decisions(plan: Plan, width: int) -> Iterator[Line]:
    yield from _row("context", f"{plan.n_ctx:,} tokens", width, 10)
    layers = min(plan.gpu_layers, plan.n_layers + 1)
    text = f"{layers} of {plan.n_layers + 1} on the GPU, the output counted as one"
    if len(plan.tensor_split) > 1:
        text += f" ({', '.join(str(n) for n in plan.tensor_split)})"
    yield from _row("layers", text if layers else "none on a GPU", width, 10)
    if plan.n_cpu_moe:
        yield from _row("experts", f"of the first {plan.n_cpu_moe} layers in main memory", width, 10)
    if plan.draft is not None:
        where = "in main memory" if plan.draft_place == plan.places[-1].name else f"on {plan.draft_place}"
        yield from _row("draft", f"{where}, {plan.draft_n_ctx:,} tokens of context", width, 10)
        style = "bold red" if plan.draft_verdict in (None, "incompatible") else ""
        yield from _row("pair", plan.draft_verdict or "not checked", width, 10, style)


def _places(plan: Plan) -> Iterator[Line]:
    columns = [name for name in _PLACES if name != "draft" or plan.draft is not None]
    heads = "".join(f"{name:>9}" for name in columns)
    yield f"  {'GiB':<12}{heads}", "dim"
    for place in plan.places:
        short = place.free < 0
        cells = "".join(f"{_cell(place, name):>9}" for name in columns)
        yield f"  {place.name:<12}{cells}", "red" if short else ""


def _cell(place: Place, name: str) -> str:
    nbytes = place.memory if name == "of" else getattr(place, name)
    value = nbytes / (1 << 30)
    return f"{value:,.1f}" if value >= 1000 else f"{value:.2f}" if nbytes else "–"
