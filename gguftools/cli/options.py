"""What `run` and `chat` share: options of the model and of a request, `-o KEY=VALUE`, opening the pair."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..errors import GGUFToolsError
from . import ui
from .conversation import read_text
from .kinds import NUMBERS, name, within

if TYPE_CHECKING:
    from ..session.model import Model

NGRAM, NONE = "ngram", "none"  # as --draft
ACCEPT = ("auto", "match", "coupled", "reject")

Function = TypeVar("Function", bound=Callable[..., Any])


def switch(text: str) -> bool:
    """on, true, yes, 1 → True; off, false, no, 0 → False. Raises ValueError."""
    if text.lower() in ("on", "true", "yes", "1"):
        return True
    if text.lower() in ("off", "false", "no", "0"):
        return False
    raise ValueError("on or off")


def layers(text: str) -> int | str:
    """A number of layers, or "all". Raises ValueError."""
    if text == "all":
        return text
    if not text.isdecimal():
        raise ValueError("a number of layers, or all")
    return int(text)


def names(text: str) -> list[str]:
    """Parts between commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def shares(text: str) -> list[float]:
    """Numbers between commas. Raises ValueError."""
    try:
        return [float(part) for part in names(text)]
    except ValueError:
        raise ValueError("numbers with commas between them") from None


def overrides(text: str) -> list[str]:
    """REGEX=BUFFER texts between commas. Raises ValueError."""
    found = names(text)
    if not all(re.fullmatch(r".+=[^=]+", part) for part in found):
        raise ValueError("REGEX=BUFFER, several with commas between them")
    return found


def escaped(text: str) -> str:
    """`text` with \\n, \\t and \\\\ meaning newline, tab and backslash, which a shell makes hard to type."""
    meaning = {"n": "\n", "t": "\t", "\\": "\\"}
    return re.sub(r"\\([nt\\])", lambda match: meaning[match[1]], text)


def length(text: str) -> int | str:
    """A number of tokens to draft, or "auto". Raises ValueError."""
    if text == "auto":
        return text
    try:
        return int(NUMBERS["draft_tokens"](text))
    except ValueError as error:
        raise ValueError(f"{error}, or auto") from None


def rule(text: str) -> str:
    """A rule of acceptance. Raises ValueError."""
    if text not in ACCEPT:
        raise ValueError(", ".join(ACCEPT))
    return text


def grammar(text: str) -> str:
    """A GBNF grammar, or @FILE that holds one."""
    return read_text(Path(text[1:])) if text.startswith("@") else text


# Keys of -o that go to Model.load, with what reads their value …
LOAD: dict[str, Callable[[str], Any]] = {
    "n_ctx": NUMBERS["n_ctx"],
    "draft_n_ctx": NUMBERS["draft_n_ctx"],
    "gpu_layers": layers,
    "draft_gpu_layers": layers,
    "n_cpu_moe": layers,
    "override_tensor": overrides,
    "tensor_split": shares,
    "devices": names,
    "draft_devices": names,
    "threads": NUMBERS["threads"],
    "flash_attn": switch,
    "cache_type_k": str,
    "cache_type_v": str,
    "draft_cache_type_k": str,
    "draft_cache_type_v": str,
    "load_mode": str,
    "ngram": switch,
    "remember": switch,
}
# … and those that go to a request; `/set` of the chat takes these too.
REQUEST: dict[str, Callable[[str], Any]] = {
    "max_tokens": NUMBERS["max_tokens"],
    "temperature": NUMBERS["temperature"],
    "top_k": NUMBERS["top_k"],
    "top_p": NUMBERS["top_p"],
    "min_p": NUMBERS["min_p"],
    "repeat_penalty": NUMBERS["repeat_penalty"],
    "frequency_penalty": NUMBERS["frequency_penalty"],
    "presence_penalty": NUMBERS["presence_penalty"],
    "repeat_last_n": NUMBERS["repeat_last_n"],
    "seed": NUMBERS["seed"],
    "grammar": grammar,
    "stop": escaped,
    "draft_tokens": length,
    "draft_p_min": NUMBERS["draft_p_min"],
    "accept": rule,
}


def parse_value(key: str, text: str, keys: Mapping[str, Callable[[str], Any]]) -> Any:
    """The value of KEY. Raises click.UsageError that lists the valid keys, or says what the value must be."""
    if key not in keys:
        raise click.UsageError(f"{key}: no such option; valid are: {', '.join(keys)}")
    try:
        return keys[key](text)
    except GGUFToolsError:
        raise
    except ValueError as error:
        raise click.UsageError(f"{key}={text}: must be {error}") from None


def parse_pairs(pairs: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """`KEY=VALUE` texts → (arguments of Model.load, arguments of a request)."""
    load: dict[str, Any] = {}
    request: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        key = key.strip().replace("-", "_")
        if not equals:
            raise click.UsageError(f"-o {pair}: give it as KEY=VALUE")
        value = parse_value(key, text, {**LOAD, **REQUEST})
        (load if key in LOAD else request)[key] = value
    return load, request


KEYS_HELP = (
    f"Keys of -o for the models: {', '.join(LOAD)}. For the answers: {', '.join(REQUEST)}. "
    "Lists go between commas, a grammar is GBNF text or @FILE. docs/defaults.md has the defaults."
)


def model_options(function: Function) -> Function:
    """The options that every verb with a running model has."""
    options = [
        click.option(
            "--draft",
            type=name,
            metavar="DRAFT",
            help="The draft model: a file or a Hub name; or ngram: copies from the text, no model; or none.",
        ),
        click.option(
            "--draft-tokens",
            metavar="N|auto",
            help="Tokens to draft per step: 0 to 16, or auto (default): as many as are worth it.",
        ),
        click.option(
            "--accept",
            type=click.Choice(ACCEPT),
            help="How drafted tokens are kept above temperature 0. Default: coupled.",
        ),
        click.option("--n-ctx", type=within("n_ctx"), metavar="N", help="Size of the context in tokens."),
        click.option("--gpu-layers", metavar="N|all", help="Layers of the target on the GPU."),
        click.option("--draft-gpu-layers", metavar="N|all", help="Layers of the draft on the GPU."),
        click.option("--temperature", type=within("temperature"), metavar="T", help="0 is greedy."),
        click.option("--seed", type=within("seed"), metavar="N", help="Default: a new one, printed."),
        click.option(
            "--max-tokens", type=within("max_tokens"), metavar="N", help="Longest answer. Default: what fits."
        ),
        click.option("--think", type=click.Choice(["on", "off"]), help="The template's thinking switch."),
        click.option("--offline", is_flag=True, help="Never ask the Hub; use what is in its cache."),
        click.option(
            "-o", "pairs", multiple=True, metavar="KEY=VALUE", help="Further options, listed below."
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def split_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values of `model_options` → (arguments of Model.load, of a request), without the unset ones."""
    load, request = parse_pairs(options["pairs"])
    for key in ("n_ctx", "gpu_layers", "draft_gpu_layers"):
        if options[key] is not None:
            value = options[key]
            load[key] = parse_value(key, value, LOAD) if isinstance(value, str) else value
    for key in ("draft_tokens", "accept", "temperature", "seed", "max_tokens"):
        if options.get(key) is not None:  # bench has no --accept
            value = options[key]
            request[key] = parse_value(key, value, REQUEST) if isinstance(value, str) else value
    if options["think"]:
        request["think"] = options["think"] == "on"
    return load, request


@contextmanager
def open_model(target: str, draft: str | None, load: Mapping[str, Any], *, offline: bool) -> Iterator[Model]:
    """Finds or downloads both models, loads them with bars on the terminal, and closes them at the end.

    draft "ngram": no model, copies from the text alone; "none": no drafts at all.
    """
    from .. import hub
    from ..session.model import Model

    if draft in (NGRAM, NONE):
        load = {"ngram": draft == NGRAM, **load}
        draft = None
    with ui.progress() as progress:
        files = [hub.download(name, progress=progress, offline=offline) for name in (target, draft) if name]
        model = Model.load(*files, progress=progress, **load)
    with model:
        yield model
