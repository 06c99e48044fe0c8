"""llama.cpp's names of pre-tokenizers (tokenizer.ggml.pre) and what each is in a tokenizer.json.

The patterns are those of the models' own tokenizer.json files; llama.cpp's src/llama-vocab.cpp says which
name stands for which. Where several names stand for one pattern, the first here is the one that is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _SPACES
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_QWEN35 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + _SPACES
_CASED = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%s"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%s"
)
_TEKKEN = _CASED.replace("%s", "") + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _SPACES
_GPT4O = _CASED.replace("%s", _CONTRACTIONS + "?") + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _SPACES
_DEEPSEEK3 = (
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
    "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """Steps in order: ("split", regex), ("digits",) or ("gpt2",); every one ends with the byte letters."""

    steps: tuple[tuple[str, ...], ...]
    ignore_merges: bool = False  # whole words that are tokens are taken as they are
    nfc: bool = False  # the model's tokenizer.json normalizes; libllama does not


KNOWN = {
    "gpt-2": PreTokenizer((("gpt2",),)),
    "smollm": PreTokenizer((("digits",), ("gpt2",))),
    "llama-bpe": PreTokenizer((("split", _LLAMA3),), ignore_merges=True),
    "dbrx": PreTokenizer((("split", _LLAMA3),)),
    "qwen2": PreTokenizer((("split", _QWEN2),), nfc=True),
    "qwen35": PreTokenizer((("split", _QWEN35),), nfc=True),
    "tekken": PreTokenizer((("split", _TEKKEN),), ignore_merges=True),
    "gpt-4o": PreTokenizer((("split", _GPT4O),)),
    "deepseek-v3": PreTokenizer(tuple(("split", regex) for regex in _DEEPSEEK3)),
}
# Other names for the same splitting, read from GGUFs.
ALIASES = {
    "llama3": "llama-bpe",
    "llama-v3": "llama-bpe",
    "falcon3": "llama-bpe",
    "smaug-bpe": "dbrx",
    "deepseek-r1-qwen": "qwen2",
    "megrez": "qwen2",
    "llama4": "gpt-4o",
    "starcoder": "smollm",
    "refact": "smollm",
    "codeshell": "smollm",
    "phi-2": "gpt-2",
    "exaone4": "gpt-2",
}


def name_of(pre_tokenizer: Any, ignore_merges: bool | None) -> str | None:
    """llama.cpp's name for the `pre_tokenizer` of a tokenizer.json, or None where no known one is like it.

    `ignore_merges` as the file says it; None (files from before it existed) goes with either.
    """
    steps = tuple(_steps(pre_tokenizer))
    if all(node.get("type") != "ByteLevel" for node in nodes(pre_tokenizer, "pretokenizers")):
        return None
    for name, known in KNOWN.items():
        if known.steps == steps and ignore_merges in (None, known.ignore_merges):
            return name
    # ignore_merges changes nothing where every token can be merged, so only the steps are decisive then.
    return next((name for name, known in KNOWN.items() if known.steps == steps), None)


def describe(pre_tokenizer: Any) -> str:
    """The steps of a tokenizer.json's pre-tokenizer in one line, for messages."""
    found = "; ".join(" ".join(step) for step in _steps(pre_tokenizer))[:300]
    return found or "it splits nothing, or not into bytes"


def nodes(root: Any, inside: str) -> Iterator[Mapping[str, Any]]:
    """The steps of a pre-tokenizer or normalizer in order; a Sequence holds them under `inside`."""
    left = [root]
    while left:
        node = left.pop()
        if isinstance(node, dict) and node.get("type") == "Sequence" and isinstance(node.get(inside), list):
            left += reversed(node[inside])
        else:
            yield node if isinstance(node, dict) else {}


def _steps(root: Any) -> Iterator[tuple[str, ...]]:
    for node in nodes(root, "pretokenizers"):
        kind = node.get("type")
        if kind == "Split":
            yield _split_step(node)
        elif kind == "Digits" and node.get("individual_digits"):
            yield ("digits",)
        elif kind == "ByteLevel" and not node.get("add_prefix_space"):
            if node.get("use_regex", True):
                yield ("gpt2",)
        else:
            yield ("unknown", str(kind))


def _split_step(node: Mapping[str, Any]) -> tuple[str, ...]:
    pattern = node.get("pattern")
    regex = pattern.get("Regex") if isinstance(pattern, dict) else None
    matches = (node.get("behavior"), bool(node.get("invert"))) in (("Isolated", False), ("Removed", True))
    return ("split", regex) if matches and isinstance(regex, str) else ("unknown", "Split")


def to_json(pre: str) -> tuple[dict[str, Any], dict[str, Any] | None, bool] | None:
    """(pre_tokenizer, normalizer, ignore_merges) in tokenizer.json for llama.cpp's name, None if unknown."""
    known = KNOWN.get(ALIASES.get(pre, pre))
    if known is None:
        return None
    parts: list[dict[str, Any]] = []
    for step in known.steps:
        if step[0] == "split":
            pattern = {"Regex": step[1]}
            parts.append({"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False})
        elif step[0] == "digits":
            parts.append({"type": "Digits", "individual_digits": True})
    use_regex = ("gpt2",) in known.steps
    parts.append(
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}
    )
    whole = parts[0] if len(parts) == 1 else {"type": "Sequence", "pretokenizers": parts}
    return whole, {"type": "NFC"} if known.nfc else None, known.ignore_merges
