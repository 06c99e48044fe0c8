"""A jinja2 sandbox with a budget, for chat templates that came with a stranger's file.

On top of jinja2's ImmutableSandboxedEnvironment every loop step and call costs a step, and every string that
an operator, filter or method makes costs its length; past the budget the render ends with a SecurityError.
jinja2 has no `while`, so loops, calls and recursion are all that can take time. Not covered: comparisons of
deeply shared lists, and the time that Python needs to compile a source of MAX_SOURCE characters.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from jinja2 import Undefined, nodes
from jinja2.exceptions import SecurityError, TemplateSyntaxError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_SOURCE = 1 << 18  # characters of a template
MAX_STEPS = 2_000_000  # loop steps and calls of one render
MAX_CHARS = 1 << 26  # characters made by all operations of one render
MAX_TEXT = 1 << 24  # characters of one string, the output included
MAX_SECONDS = 20.0
MAX_WIDTH = 1024  # widths, indents and counts given to filters and methods
MAX_INDENT = 16  # of JSON
MAX_DIGITS = 40  # of a number that passes weigh()

WIDTH_METHODS = {"center", "ljust", "rjust", "zfill", "expandtabs"}
WIDTH_FILTERS = {"center", "indent", "batch", "slice", "tojson"}
TEXT_FILTERS = {"tojson", "string", "upper", "lower", "title", "capitalize", "trim", "e", "escape"}
REFUSED_FILTERS = ("pprint", "random", "urlize", "wordwrap", "xmlattr")
REFUSED_METHODS = ("maketrans", "translate")


class GenerationTag(Extension):
    """{% generation %}…{% endgeneration %}, a mark around the assistant's part: renders its body."""

    tags = {"generation"}  # noqa: RUF012 (jinja2 declares it so)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Sandbox(ImmutableSandboxedEnvironment):
    """One environment per template; start() opens the budget of a render."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,
            cache_size=0,
            finalize=self.weigh,
            extensions=[loopcontrols, GenerationTag],
        )
        self.globals.pop("lipsum", None)
        for name in REFUSED_FILTERS:
            self.filters.pop(name, None)
        self.filters["tojson"] = to_json
        self.filters = {name: self._capped(name, function) for name, function in self.filters.items()}
        self.filters |= {"__steps": self._steps, "__joined": self._joined}
        self.globals |= {"raise_exception": raise_exception, "strftime_now": strftime_now}
        self.start()

    def start(self) -> None:
        self._steps_left, self._chars_left = MAX_STEPS, MAX_CHARS
        self._deadline = time.monotonic() + MAX_SECONDS

    def spend(self, steps: int = 1, chars: int = 0) -> None:
        self._steps_left -= steps
        self._chars_left -= chars
        if self._steps_left < 0 or self._chars_left < 0 or chars > MAX_TEXT:
            raise SecurityError("the template does more work than a chat template needs")
        if self._steps_left % 256 == 0 and time.monotonic() > self._deadline:
            raise SecurityError(f"the template ran for more than {MAX_SECONDS:.0f} s")

    def measured(self, value: Any) -> Any:
        self.spend(chars=len(value) if isinstance(value, (str, list, tuple)) else 0)
        return value

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        if len(source) > MAX_SOURCE:
            raise TemplateSyntaxError(f"longer than {MAX_SOURCE:,} characters", 1)
        tree = super()._parse(source, name, filename)
        for loop in tree.find_all(nodes.For):
            loop.iter = nodes.Filter(loop.iter, "__steps", [], [], None, None, lineno=loop.lineno)
        _meter_joins(tree)
        return tree

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" and not (abs(left) <= 1_000_000 and abs(right) <= 16):
            raise SecurityError("a power that is too large")
        if operator == "*" and isinstance(left, int) and isinstance(right, (str, list, tuple)):
            left, right = right, left
        if operator == "*" and isinstance(left, (str, list, tuple)):
            self.spend(chars=len(left) * max(0, int(right)))
        elif operator == "*":
            self.weigh(left), self.weigh(right)
        if operator == "%" and isinstance(left, str):
            self._check_format(left, right)
        return self.measured(super().call_binop(context, operator, left, right))

    def call(self, context: Context, function: Any, *args: Any, **kwargs: Any) -> Any:
        self.spend()
        owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
        if name in REFUSED_METHODS:
            raise SecurityError(f"{name}() is not for chat templates")
        if isinstance(owner, (str, bytes)):
            self._check_method(str(owner), name, args, kwargs)
        return self.measured(super().call(context, function, *args, **kwargs))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None

        def metered(*args: Any, **kwargs: Any) -> str:
            self._check_format(str(value.__self__), [*args, *kwargs.values()])
            return wrapped(*args, **kwargs)

        return metered

    def _check_method(self, text: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if name in WIDTH_METHODS:
            _check_widths(args, kwargs)
        if name == "expandtabs":
            self.spend(chars=text.count("\t") * _widest(8, *args, *kwargs.values()))
        elif name == "replace" and len(args) > 1:
            self.spend(chars=(text.count(args[0]) if args[0] else len(text) + 1) * len(args[1]))
        elif name == "join" and args:
            self.weigh(args[0])
            self.spend(chars=len(text) * (len(args[0]) if hasattr(args[0], "__len__") else MAX_WIDTH))

    def _check_format(self, text: str, values: Any) -> None:
        """Charges each field with all values, since it may name any of them."""
        _check_widths_in(text)
        steps, chars = self._steps_left, self._chars_left
        self.weigh(values)
        cost = MAX_DIGITS * (1 + steps - self._steps_left) + chars - self._chars_left
        self.spend(chars=cost * (text.count("{") + text.count("%")))

    def _capped(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The filter with its inputs weighed and its result charged."""
        passes = hasattr(function, "jinja_pass_arg")

        def capped(*args: Any, **kwargs: Any) -> Any:
            given = args[passes:]
            if name in WIDTH_FILTERS:
                _check_widths(given[1:], kwargs)
            if name in TEXT_FILTERS:
                self.weigh(given[0])
            if name == "format":
                self._check_format(str(given[0]), [*given[1:], *kwargs.values()])
            elif name == "indent":
                self.spend(chars=str(given[0]).count("\n") * _widest(4, *given[1:], *kwargs.values()))
            elif name == "replace":
                self._check_method(str(given[0]), name, given[1:], {})
            elif name == "join":
                self._check_method(str((*given, "")[1]), name, (given[0],), {})
            return self.measured(function(*args, **kwargs))

        if passes:
            capped.jinja_pass_arg = function.jinja_pass_arg  # type: ignore[attr-defined]
        return capped

    def weigh(self, value: Any) -> Any:
        """Charges what writing the value out would cost: shared parts count as often as they are written."""
        if isinstance(value, str):
            self.spend(chars=len(value))
        elif isinstance(value, Mapping):
            for item in value.items():
                self.weigh(item)
        elif isinstance(value, (list, tuple)):
            for item in value:
                self.spend()
                self.weigh(item)
        elif isinstance(value, int) and abs(value) > 1 << 128:
            raise SecurityError("a number that is too large")
        return value

    def _steps(self, values: Iterable[Any]) -> Iterator[Any]:
        if isinstance(values, Undefined):
            iter(values)  # an undefined value is an empty loop, or the error that its kind raises
        for value in values:
            self.spend()
            yield value

    def _joined(self, parts: list[Any]) -> str:
        return "".join([str(self.weigh(part)) for part in parts])


def _meter_joins(node: nodes.Node) -> nodes.Node:
    """Sends every `~` below and at this node through the budget; returns what takes the node's place."""
    for field, value in node.iter_fields():
        if isinstance(value, list):
            parts = [_meter_joins(item) if isinstance(item, nodes.Node) else item for item in value]
            setattr(node, field, parts)
        elif isinstance(value, nodes.Node):
            setattr(node, field, _meter_joins(value))
    if not isinstance(node, nodes.Concat):
        return node
    operands = nodes.List(node.nodes, lineno=node.lineno)
    return nodes.Filter(operands, "__joined", [], [], None, None, lineno=node.lineno)


def _check_widths(args: Iterable[Any], kwargs: dict[str, Any]) -> None:
    for value in (*args, *kwargs.values()):
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) > MAX_WIDTH:
            raise SecurityError("a width, indent or count that is too large")


def _widest(*widths: Any) -> int:
    return max(len(width) if isinstance(width, str) else int(width or 0) for width in widths)


def _check_widths_in(text: str) -> None:
    if re.search(r"\d{4}|\*|\{[^{}]*\{", text):
        raise SecurityError("a format string with a large or computed width")


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as chat templates expect it: no HTML escaping, non-ASCII kept."""
    marks = [len(mark) if isinstance(mark, str) else mark for mark in (indent, *(separators or ())) if mark]
    if any(mark > MAX_INDENT for mark in marks):
        raise SecurityError("an indent or separator that is too long")
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def raise_exception(message: str) -> None:
    raise TemplateSyntaxError(str(message), 1)


def strftime_now(pattern: str) -> str:
    if len(pattern) > MAX_WIDTH or re.search(r"%\W?\d", pattern):
        raise SecurityError("a date format that is too long")
    return datetime.now().strftime(pattern)
