"""What to do next about a pair or a file: a command where this version has one, else keys and values."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from ...header.shards import local
from .metadata import is_vocabulary_alone, metadata_rules
from .pair import Pair
from .report import Rule, Verdict
from .side import Side

_CONVERTIBLE = ("llama", "qwen2", "qwen3")


def for_pair(
    verdict: Verdict, pair: Pair, rules: Sequence[Rule], shared: float, quick: bool
) -> tuple[str, ...]:
    """Lines for the reader; a command stands alone on its line."""
    failed = [rule for rule in rules if not rule.passed]
    lines: list[str] = []
    if any(rule.level == "fatal" for rule in failed):
        lines += ["Do not load this pair with llama.cpp: see what is fatal above."]
        lines += [
            f"{rule.name}: {rule.mend.splitlines()[0]}"
            for rule in failed
            if rule.level == "fatal" and rule.mend
        ]
    elif any(rule.name == "draft kind" for rule in failed):
        lines.append("llama.cpp itself runs this pair; gguftools needs a draft that is a whole model.")
    elif verdict == "incompatible":
        lines += _none_fits(pair, shared)
    else:
        lines += _run(pair)
    if verdict == "alignable":
        lines += _align(pair, failed)
    if not quick:
        lines += [line for side in (pair.target, pair.draft) for line in _faulty(side)]
    return tuple(lines)


def for_file(rules: Sequence[Rule], side: Side | None = None) -> tuple[str, ...]:
    failed = [rule for rule in rules if not rule.passed and rule.level != "note"]
    mends = [line for rule in failed for line in rule.mend.splitlines()]
    again = [line for line in mends if line.startswith("hf download ")]
    lines = ["Fetch again what is not as it should be:", *again] if again else []
    keys = [line for line in mends if re.match(r"[\w.\[\]-]+ = ", line)]
    if keys:
        lines += ["Change these keys, or fetch a file where they are right:", *(f"  {key}" for key in keys)]
    settings = [each for line in mends if (each := _setting(line, side))]
    if side is not None and settings and not again and _is_local(side):
        lines.append(f"gguftools edit {_quoted(side)} {' '.join(settings)} -o mended.gguf")
    return tuple(lines)


_SETTING = re.compile(
    r"(?P<key>[\w.-]+)(?P<index>\[\d+\])? = "
    r"(?:(?P<number>\d+)(?: \(\w+\))?|(?P<flag>true|false)|(?P<text>[\w.-]+) \(the tokens are .*\))"
)
_RETYPE = re.compile(r"([\w.-]+) as (\w+)")


def _setting(mend: str, side: Side | None) -> str:
    """The option of `edit` that does what a line of advice says; empty where a person must choose."""
    if match := _RETYPE.fullmatch(mend):
        return f"--set {match[1]}:{match[2]}"
    match = _SETTING.fullmatch(mend)
    if not match or side is None or side.header is None:
        return ""
    kind = {"number": "u32", "flag": "bool", "text": "str"}[match.lastgroup or "number"]
    value = match["number"] or match["flag"] or match["text"]
    typed = "" if match["key"] in side.header.keys else f":{kind}"
    return f"--set {shlex.quote(match['key'] + (match['index'] or '') + typed + '=' + value)}"


def _is_local(side: Side) -> bool:
    return side.header is not None and local(side.name).exists()


def _quoted(side: Side) -> str:
    return shlex.quote(side.name)


def _run(pair: Pair) -> list[str]:
    """A checkpoint is converted first, and a vocabulary alone does not run."""
    lines, names = [], []
    for side, name in ((pair.target, "target.gguf"), (pair.draft, "draft.gguf")):
        names.append(_quoted(side) if side.header else name)
        if side.header is None:
            lines.append(f"gguftools convert {_quoted(side)} -o {name}")
    alone = [side for side in (pair.target, pair.draft) if side.header and is_vocabulary_alone(side.header)]
    lines += [f"{side.name} is a vocabulary alone: fetch the model itself to run the pair." for side in alone]
    return lines if alone else [*lines, f"gguftools chat {names[0]} --draft {names[1]}"]


def _none_fits(pair: Pair, shared: float) -> list[str]:
    lines = [
        f"The vocabularies are different ones ({shared:.0%} of the target's tokens are in the draft): "
        "take a draft with the target's vocabulary."
    ]
    if pair.target.vocab.is_kimi:
        lines.append("Kimi-K2 to K3, Kimi-Linear, Kimi-VL and Moonlight-16B-A3B share their ordinary tokens.")
    alone = pair.draft.header is not None and is_vocabulary_alone(pair.draft.header)
    if pair.draft.architecture in _CONVERTIBLE and not alone:
        lines.append("Or give this one the target's vocabulary:")
        lines.append(f"gguftools transplant {_quoted(pair.draft)} {_quoted(pair.target)} -o draft.gguf")
    return lines


def _align(pair: Pair, failed: Sequence[Rule]) -> list[str]:
    lines = ["gguftools exchanges the ids itself. llama.cpp would accept the draft with these keys:"]
    mends = [rule.mend for rule in failed if rule.source == "llama.cpp" and rule.mend]
    lines += [f"  {line}" for mend in mends for line in mend.splitlines()]
    header = pair.draft.header
    if _is_local(pair.draft) and not any(rule.name == "size" for rule in failed):
        lines.append("To write such a draft:")
        lines.append(
            f"gguftools edit {_quoted(pair.draft)} --align-to {_quoted(pair.target)} -o aligned.gguf"
        )
        return lines
    if header is not None and is_vocabulary_alone(header):
        return lines
    if pair.draft.architecture not in _CONVERTIBLE or pair.target.vocab.n_tokens != pair.draft.vocab.n_tokens:
        return lines
    source = _quoted(pair.draft)
    tokenizer = _quoted(pair.target) if pair.target.header is None else "FOLDER_OF_THE_TARGETS_TOKENIZER"
    lines.append("To write such a draft:")
    if header is not None:
        lines.append(f"gguftools export {source} -o draft-folder")
        source = "draft-folder"
    lines.append(f"gguftools convert {source} --tokenizer {tokenizer} -o aligned.gguf")
    return lines


def _faulty(side: Side) -> list[str]:
    wrong = [rule.name for rule in metadata_rules(side) if not rule.passed and rule.level != "note"]
    if not wrong:
        return []
    return [f"{side.name} has wrong metadata ({', '.join(wrong)}):", f"gguftools check {_quoted(side)}"]
