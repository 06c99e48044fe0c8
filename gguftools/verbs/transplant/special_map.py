"""Which donor tokens stand for each special token of the target: by role, name and chat template.

In this order: what the caller says; the table of models/special-tokens.toml, by the roles of both families;
the same text; the ids that the files name (end of turn, end of text …); both chat templates, side by side.
What ends a turn is known best by a template: the special token that it writes after an answer.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ... import recipes
from ...errors import InputError
from ...vocab import TokenType, Vocab, byte_letters
from ...vocab import special as vocab_special
from .align import looks_reserved
from .conversation import Reading, side_by_side
from .conversation import read as read_template
from .spelling import Speller, is_text, ordinary, speller

# The roles of ids that a file names, where no table knows better.
_NAMED = {"bos": "bos", "eot": "turn_end", "eos": "text_end", "eom": "other_end"}
_NAMED |= {"fim_pre": "fim_pre", "fim_suf": "fim_suf", "fim_mid": "fim_mid", "fim_pad": "fim_pad"}
_NAMED |= {"fim_rep": "repo", "fim_sep": "file"}


log = logging.getLogger("gguftools.verbs.transplant")


@dataclass(frozen=True, slots=True)
class Mapped:
    """A special token of the target and what stands for it."""

    target: int
    target_text: str
    donor: tuple[int, ...]  # at least one
    donor_text: str
    how: str  # "--map", "table kimi-k2: turn_end", "name", "role: turn_end", "template"
    draftable: bool  # False: only read, never proposed


@dataclass(frozen=True, slots=True)
class _Side:
    """One vocabulary and what is known of its special tokens."""

    vocab: Vocab
    specials: Mapping[str, int]  # text -> id
    family: Mapping[str, Any]  # of the table; {} where none fits
    reading: Reading  # of its chat template
    roles: Mapping[
        str, Sequence[str]
    ]  # text -> roles, by the table and by what the template ends a turn with
    named: Mapping[str, str]  # role -> text, by the ids that the file names

    def roles_of(self, text: str) -> list[str]:
        """The roles of a special token, by the table first."""
        return [*self.roles.get(text, ()), *(role for role, name in self.named.items() if name == text)]

    def text(self, role: str) -> str | None:
        """How a donor writes a role: a special token, or a text of its family."""
        by_table = next((text for text, roles in self.roles.items() if role in roles), None)
        written: str | None = self.family.get("writes", {}).get(role, by_table)
        return self.named.get(role) if written is None else written

    def source(self, text: str, role: str) -> str:
        """Where the role of a token is known from, for people to read."""
        if role in _listed(self.family.get("tokens", {}).get(text, [])):
            return f"table {self.family['name']}: {role}"
        return "template: turn_end" if role == "turn_end" else f"table: {role}"


def special_map(target: Vocab, donor: Vocab, own: Mapping[str, str]) -> list[Mapped]:
    """One Mapped for each special token of the target that has a counterpart, by id.

    own: what the caller says, target token -> donor text; the names of special tokens in it are parsed.
    Raises InputError for a target token that is not there or a donor text that cannot be spelled; Unsupported
    for a vocabulary whose bytes are not known. No two draftable ones begin with the same donor token, and all
    begin with a special one, unless the target's token is an ordinary one: text that the donor wants never
    becomes a control token.
    """
    table, spelling = recipes.load("special-tokens"), speller(donor)
    ours, theirs = _side(target, table), _side(donor, table)
    found = {mapped.target: mapped for mapped in _own(ours, spelling, own)}
    beside = side_by_side(ours.reading, theirs.reading)
    for text, i in ours.specials.items():
        for wish, how, role in () if i in found else _wishes(text, ours, theirs, table, beside):
            ids = spelling.encode(wish)
            if ids:
                drafted = role in table["drafted"] or (not role and _both_written(text, ours, theirs))
                found[i] = Mapped(i, text, tuple(ids), wish, how, drafted)
                break
    return sorted(_settled(found.values(), ours, theirs, table), key=lambda mapped: mapped.target)


def _wishes(
    text: str, ours: _Side, theirs: _Side, table: Mapping[str, Any], beside: Mapping[str, str]
) -> Iterator[tuple[str, str, str]]:
    """(donor text, how, role) by each way in its order; role "" where it is not known."""
    roles = ours.roles.get(text, ())
    for role in roles:
        if wish := _by_role(role, ours, theirs, table):
            yield wish + _begun(role, roles, ours, theirs, table), ours.source(text, role), role
    if text in theirs.specials and not looks_reserved(text):
        yield text, "name", next(iter(ours.roles_of(text)), "")
    for role in ours.roles_of(text):
        if wish := _by_role(role, ours, theirs, table):
            yield wish, f"role: {role}", role
    if text in beside:
        yield beside[text], "template", "turn_start"


def _begun(role: str, roles: Sequence[str], ours: _Side, theirs: _Side, table: Mapping[str, Any]) -> str:
    """What the donor writes after its end of a turn where the target's token begins the next turn as well."""
    start = next((each for each in roles if each.startswith("turn_start")), None)
    wish = _by_role(start, ours, theirs, table) if start is not None and role == "turn_end" else None
    return "" if wish is None or wish == theirs.text("turn_end") else wish


def _by_role(role: str, ours: _Side, theirs: _Side, table: Mapping[str, Any]) -> str | None:
    """The donor's text for a role; with the role's word where only the donor writes it."""
    start = next((t for r in (role, *table["instead"].get(role, ())) if (t := theirs.text(r))), None)
    if start is None or not role.startswith("turn_start:") or ours.family.get("says"):
        return start
    word = theirs.family.get("says", {}).get(role.partition(":")[2])
    return start if word is None else start + word + (theirs.text("role_end") or "")


def _both_written(text: str, ours: _Side, theirs: _Side) -> bool:
    """Whether a token without a role is one that models write: both files say that it is not special."""
    kinds = [side.vocab.types[side.specials[text]] for side in (ours, theirs) if text in side.specials]
    return kinds == [TokenType.USER_DEFINED] * 2


def _side(vocab: Vocab, table: Mapping[str, Any]) -> _Side:
    ids = {name: i for name, i in vocab_special.resolved(vocab).items() if name in _NAMED}
    if not vocab_special.adds(vocab)[0]:
        ids.pop("bos", None)  # named, but no text begins with it
    specials = _specials(vocab, [i for name, i in ids.items() if name in vocab.special])
    named = {_NAMED[name]: _text(vocab, i) for name, i in ids.items()}
    named = {"turn_end": named.get("text_end", ""), **named}  # first: of both roles it is the one that counts
    families: list[dict[str, Any]] = table["family"]
    family = next((f for f in families if all(text in specials for text in f["known_by"])), {})
    reading = read_template(vocab)
    roles = _roles({**table["anywhere"], **family.get("tokens", {})}, reading.ends)
    roles = {text: given for text, given in roles.items() if text in specials}
    named = {role: text for role, text in named.items() if text in specials}
    return _Side(vocab, specials, family, reading, roles, named)


def _specials(vocab: Vocab, named: Iterable[int]) -> dict[str, int]:
    """text -> the first id of the special tokens; a named NORMAL id that looks like a tag is one too."""
    kinds = (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED)
    by_type = np.flatnonzero(~ordinary(vocab) & np.isin(vocab.types, kinds)).tolist()
    specials: dict[str, int] = {}
    odd = [i for i in named if vocab.types[i] == TokenType.NORMAL and not is_text(vocab.texts[i])]
    for i in sorted({*by_type, *odd}):
        specials.setdefault(_text(vocab, i), i)
    specials.pop("", None)
    return specials


def _text(vocab: Vocab, i: int) -> str:
    return vocab.texts[i].decode("utf-8", "replace")


def _listed(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


def _roles(known: Mapping[str, str | Sequence[str]], ends: str | None) -> dict[str, list[str]]:
    """text -> roles by the table; but the token that a template writes after an answer ends the turn."""
    roles = {text: _listed(given) for text, given in known.items()}
    if ends is not None and "turn_end" not in roles.get(ends, ()):
        for given in roles.values():
            given[:] = ["other_end" if role == "turn_end" else role for role in given]
        roles[ends] = ["turn_end", *(role for role in roles.get(ends, ()) if role != "other_end")]
    return roles


def _own(ours: _Side, spelling: Speller, own: Mapping[str, str]) -> Iterator[Mapped]:
    for text, wish in own.items():
        i = _find(ours, text)
        ids = spelling.encode(wish)
        if not ids:
            what = f"{text!r} cannot be mapped to {wish!r}"
            why = "the donor has no tokens for it" if wish else "it is empty"
            raise InputError(what, why, "give a text that the donor can write")
        if text not in ours.specials:
            log.warning("%r is no special token of the target: mapped, it is hardly ever drafted", text)
        if not is_text(wish.encode("utf-8", "replace")) and wish not in spelling.specials:
            log.warning("the donor has no special token %r: it is read as text, and never drafted", wish)
        yield Mapped(i, text, tuple(ids), wish, "--map", True)


def _find(ours: _Side, text: str) -> int:
    """The id of a special token, else of any token with these bytes or this text as stored."""
    data = text.encode("utf-8", "replace")
    stored = byte_letters.to_letters(data) if ours.vocab.model == "gpt2" else data.replace(b" ", "▁".encode())
    for i in (ours.specials.get(text), ours.vocab.id_of(stored), ours.vocab.id_of(data)) if text else ():
        if i is not None:
            return i
    close = difflib.get_close_matches(text, ours.specials, 3, 0.5)
    hint = f"similar ones: {', '.join(close)}" if close else "give a token's text as the vocabulary has it"
    raise InputError(f"the target has no token {text!r}", "it is none of its tokens' texts", hint)


def _settled(
    found: Iterable[Mapped], ours: _Side, theirs: _Side, table: Mapping[str, Any]
) -> Iterator[Mapped]:
    """Of draftable ones that begin with the same donor token one keeps it; text becomes no control token."""
    order = ["--map", *table["drafted"]]
    is_ordinary, special = ordinary(ours.vocab), set(theirs.specials.values())

    def place(mapped: Mapped) -> tuple[int, int]:
        roles = ["--map"] if mapped.how == "--map" else ours.roles_of(mapped.target_text)
        return min((order.index(role) for role in roles if role in order), default=len(order)), mapped.target

    taken: set[int] = set()
    for mapped in sorted(found, key=place):
        first = mapped.donor[0]
        fits = first in special or bool(is_ordinary[mapped.target])
        drafted = mapped.draftable and fits and first not in taken
        if drafted:
            taken.add(first)
        yield replace(mapped, draftable=drafted)
