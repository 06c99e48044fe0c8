"""Whether the result of an edit is still a model: by check's rules, before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import FormatError, InputError, TemplateError, Unsupported
from ...header import Header
from ...template import ChatTemplate
from ..check.loads import load_rules
from ..check.metadata import metadata_rules
from ..check.report import Rule
from ..check.side import from_header
from ..check.templates import failure
from .asserts import broken, layers_of
from .changes import Change

# Keys that the shapes of the tensors follow from.
_SHAPES = (
    *("block_count", "embedding_length", "feed_forward_length", "vocab_size", "rope.dimension_count"),
    *("attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.value_length"),
    *("attention.q_lora_rank", "attention.kv_lora_rank", "leading_dense_block_count", "nextn_predict_layers"),
    *("expert_count", "expert_used_count", "expert_feed_forward_length", "expert_shared_count"),
)
_AS = "leave it as the model has it"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What to tell about an edit that may be made: what is worse, and the rules that pass by now."""

    warnings: tuple[str, ...]
    mended: tuple[str, ...]


def judge(old: Header, new: Header, changes: Sequence[Change]) -> Judgement:
    """Raises InputError where libllama would refuse the result, or end the process, and did not before."""
    name = str(old.path)
    _refuse_numbers(old, new)
    before, after = _rules(old, name), _rules(new, name)
    warnings = list(_about_tensors(new, changes))
    if isinstance(after, str):
        if not isinstance(before, str):
            raise InputError(f"{name} would be no model any more", after, "nothing was written")
        return Judgement((*warnings, f"the result cannot be checked: {after}"), ())
    failed = {} if isinstance(before, str) else {rule.name: rule for rule in before if not rule.passed}
    for rule in after:
        if rule.passed or _is_known(rule, failed.get(rule.name)):
            continue
        if rule.level == "fatal" or rule.name == "special ids":
            raise InputError(
                f"{name} would not load any more: {rule.name}", f"{rule.target}: {rule.effect}", _hint(rule)
            )
        if rule.level == "wrong":
            warnings.append(f"{rule.name}: {rule.target}; {rule.effect}")
    passed = {rule.name for rule in after if rule.passed}
    return Judgement(tuple(warnings), tuple(each for each in failed if each in passed))


def template_failure(source: str) -> str:
    """Why the sandbox cannot write a conversation with it; empty where it can. InputError: it is none."""
    try:
        ChatTemplate(source, ())
    except TemplateError as error:
        why = f"{error.what}: {error.why}" if error.why else error.what
        raise InputError("this is no chat template", why, "give the model's own, a Jinja template") from error
    return failure(source)


def _rules(header: Header, name: str) -> tuple[Rule, ...] | str:
    """Rules of the file; why there are none for one that is no language model."""
    try:
        side = from_header(header, name)
        return (*load_rules(side, side.vocab.texts.tolist()), *metadata_rules(side))
    except (FormatError, InputError, Unsupported) as error:
        return error.why or error.what


def _is_known(rule: Rule, before: Rule | None) -> bool:
    """Whether it failed before in the same things or more, so that this edit is not to blame."""
    if before is None:
        return False
    if rule.target == before.target:
        return True
    return bool(rule.mend) and set(rule.mend.splitlines()) <= set(before.mend.splitlines())


def _hint(rule: Rule) -> str:
    lines = rule.mend.splitlines()
    return f"needed: {lines[0]}" if lines else "nothing was written"


def _refuse_numbers(old: Header, new: Header) -> None:
    """Numbers that end the process, and a number of layers that is not the tensors'."""
    known = set(broken(old))
    for key, why in broken(new):
        if (key, why) not in known:
            raise InputError(
                f"{key} cannot be {new.get_plain(key)}: llama.cpp would end the process", why, _AS
            )
    key = f"{new.get_plain('general.architecture')}.block_count"
    value, there = new.get_plain(key), layers_of(new)
    if there and type(value) is int and value not in (there, old.get_plain(key)):
        raise InputError(f"{key} cannot be {value}", f"the tensors have {there} layers", _AS)


def _about_tensors(new: Header, changes: Sequence[Change]) -> list[str]:
    arch = new.get_plain("general.architecture")
    lines = []
    for change in changes:
        name = change.key.removeprefix(f"{arch}.")
        if name == change.key or change.old is None:
            continue
        if change.new is None:
            lines.append(f"{change.key} is gone: llama.cpp may need it and refuse the file")
        elif name in _SHAPES and new.tensors:
            lines.append(f"{change.key} says how the tensors are shaped, and they stay as they are")
        elif change.old_type != change.new_type:
            lines.append(
                f"{change.key} is {change.new_type} now: llama.cpp refuses a type it does not expect"
            )
    return lines
