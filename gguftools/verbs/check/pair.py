"""What holds between a target and a draft: llama.cpp's own rules, and what they do not look at.

llama.cpp's rules are those of common_speculative_are_compatible (common/speculative.cpp), on the values that
llama_vocab_type, _get_add_bos, _bos, _get_add_eos, _eos, _n_tokens and _get_text would give.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ... import recipes
from ...vocab import Vocab, special
from .report import Rule
from .side import Side
from .templates import markers

LISTED = 512  # keys that a report lists at most; Kimi has 256 special tokens


@cache
def llama_cpp() -> dict[str, Any]:
    """models/llama-cpp.toml."""
    return recipes.load("llama-cpp")


@dataclass(frozen=True, slots=True)
class Effective:
    """The values that libllama works with: a file's own or, where it has none, defaults. -1 is no token."""

    type: str
    add_bos: bool
    bos: int
    add_eos: bool
    eos: int
    n_tokens: int


def effective(vocab: Vocab) -> Effective:
    kind = llama_cpp()["vocabulary_types"].get(vocab.model, "")
    ids = special.resolved(vocab)
    add_bos, add_eos = special.adds(vocab)
    return Effective(kind, add_bos, ids.get("bos", -1), add_eos, ids.get("eos", -1), vocab.n_tokens)


def as_c_string(text: bytes, i: int) -> bytes:
    """What llama_vocab_get_text gives for token i: C strings end at a NUL, and an empty token gets a name."""
    return text.partition(b"\0")[0] or b"[EMPTY_%d]" % i


def shown(vocab: Vocab, i: int) -> str:
    """Token i as a person reads it: `id (text)`."""
    if not 0 <= i < vocab.n_tokens:
        return "none"
    return f"{i} ({readable(vocab.tokens[i])})"


def readable(token: bytes) -> str:
    text = token.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


@dataclass(frozen=True, slots=True)
class Pair:
    """Both sides, and what differs between their stored texts."""

    target: Side
    draft: Side
    differing: list[int]  # ids in both vocabularies, ascending
    changed: list[int]  # those of them that libllama too reads as different
    texts: tuple[list[bytes], list[bytes]]  # of both sides; the same list where they are the same

    @classmethod
    def of(cls, target: Side, draft: Side) -> Pair:
        a = target.vocab.texts.tolist()
        if target.vocab.texts == draft.vocab.texts:
            return cls(target, draft, [], [], (a, a))
        b = draft.vocab.texts.tolist()
        differing = [i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y]
        changed = [i for i in differing if as_c_string(a[i], i) != as_c_string(b[i], i)]
        return cls(target, draft, differing, changed, (a, b))

    @property
    def same_texts(self) -> bool:
        return self.texts[0] is self.texts[1]

    @property
    def vocabs(self) -> tuple[Vocab, Vocab]:
        return self.target.vocab, self.draft.vocab


def llama_rules(pair: Pair) -> Iterator[Rule]:
    """The five rules, each with the values of both."""
    a, b = effective(pair.target.vocab), effective(pair.draft.vocab)

    def rule(name: str, passed: bool, target: str, draft: str, mend: str = "", why: str = "") -> Rule:
        effect = "" if passed else "llama.cpp refuses the pair" + why
        return Rule(name, "llama.cpp", passed, target, draft, "refused", effect, mend)

    yield rule("vocabulary type", a.type == b.type, a.type, b.type)
    for name in ("bos", "eos"):
        adds = [getattr(side, f"add_{name}") for side in (a, b)]
        ids = [getattr(side, name) for side in (a, b)]
        passed = adds[0] == adds[1] and (not adds[0] or ids[0] == ids[1])
        values = [
            f"added: {shown(vocab, i)}" if add else "not added"
            for vocab, add, i in zip(pair.vocabs, adds, ids, strict=True)
        ]
        mend = "" if passed else _flag_keys(name, adds[0], ids[0])
        yield rule(name, passed, values[0], values[1], mend)
    limit = llama_cpp()["size_difference"]
    near = abs(a.n_tokens - b.n_tokens) <= limit
    sizes = [f"{side.n_tokens:,} tokens" for side in (a, b)]
    why = f": more than {limit} apart"
    yield rule("size", near, sizes[0], sizes[1], "" if near else _size_keys(a, b), why)
    yield _texts(pair)


def _flag_keys(name: str, add: bool, i: int) -> str:
    key = f"tokenizer.ggml.add_{name}_token = {str(add).lower()}"
    return f"{key}\ntokenizer.ggml.{name}_token_id = {i}" if add and i >= 0 else key


def _size_keys(target: Effective, draft: Effective) -> str:
    few = draft.n_tokens < target.n_tokens
    how = "pad with [PADn] of type 5 (UNUSED)" if few else "cut"
    rows = "token_embd.weight and output.weight with as many rows"
    return f"tokenizer.ggml.tokens: {how} to {target.n_tokens:,} tokens\n{rows}"


def _texts(pair: Pair) -> Rule:
    first = llama_cpp()["first_compared_id"]
    target, draft = pair.vocabs
    wrong = [i for i in pair.changed if i >= first]
    count = max(min(target.n_tokens, draft.n_tokens) - first, 0)
    if not wrong:
        same = f"{count:,} alike from id {first} on"
        return Rule("texts", "llama.cpp", True, same, same, "refused")
    keys = [f"tokenizer.ggml.tokens[{i}] = {json.dumps(_stored(target, i))}" for i in wrong[:LISTED]]
    mend = "\n".join(keys) + (f"\nand {len(wrong) - LISTED:,} more" if len(wrong) > LISTED else "")
    effect = f"llama.cpp refuses the pair: {len(wrong):,} of {count:,} texts from id {first} on differ"
    values = [f"first {shown(vocab, wrong[0])}" for vocab in pair.vocabs]
    return Rule("texts", "llama.cpp", False, values[0], values[1], "refused", effect, mend)


def _stored(vocab: Vocab, i: int) -> str:
    return vocab.texts[i].decode("utf-8", "backslashreplace")


def missed_rules(pair: Pair, *, quick: bool = False) -> Iterator[Rule]:
    """What llama.cpp's rules do not look at."""
    for rule in (_first_ids, _tail, _types, _merges, _scores, _pre, _special_ids, _eog):
        yield rule(pair)
    if not quick:
        yield _template(pair)
    yield _context(pair)


def _note(name: str, passed: bool, target: str, draft: str, effect: str, mend: str = "") -> Rule:
    effect, mend = ("", "") if passed else (effect, mend)
    return Rule(name, "gguftools", passed, target, draft, "note", effect, mend)


def _first_ids(pair: Pair) -> Rule:
    few = [i for i in pair.differing if i < llama_cpp()["first_compared_id"]]
    values = [", ".join(shown(vocab, i) for i in few) or "alike" for vocab in pair.vocabs]
    effect = "llama.cpp does not compare these and would take one for the other; gguftools drafts none"
    return _note("ids 0–4", not few, values[0], values[1], effect)


def _tail(pair: Pair) -> Rule:
    target, draft = pair.vocabs
    low, high = sorted((target.n_tokens, draft.n_tokens))
    if low == high:
        return _note("tail", True, "alike", "alike", "")
    longer = target if target.n_tokens == high else draft
    kinds = longer.types[low:]
    unused = int(np.count_nonzero(kinds == 5))
    values = [
        f"{high - low:,} more ids, {unused:,} of them unused" if v is longer else "" for v in pair.vocabs
    ]
    effect = "ids that one side lacks are never drafted"
    return _note("tail", False, values[0] or "ends there", values[1] or "ends there", effect)


def _types(pair: Pair) -> Rule:
    a, b = (vocab.types for vocab in pair.vocabs)
    n = min(len(a), len(b))
    other = np.flatnonzero(a[:n] != b[:n])
    values = ["alike", "alike"]
    if len(other):
        i = int(other[0])
        values = [f"{len(other):,} differ, first id {i}: {_type_name(int(types[i]))}" for types in (a, b)]
    effect = "the draft splits or hides these tokens in another way; drafting itself is not affected"
    return _note("token types", not len(other), values[0], values[1], effect)


def _type_name(kind: int) -> str:
    from ...vocab import TokenType

    return TokenType(kind).name if 0 <= kind <= max(TokenType) else str(kind)


def _merges(pair: Pair) -> Rule:
    a, b = (vocab.merges for vocab in pair.vocabs)
    effect = "they join letters to tokens in different ways: the draft saw other splits in training"
    return _note("merges", a == b, f"{len(a):,}", f"{len(b):,}" + (", others" if a != b else ""), effect)


def _pre(pair: Pair) -> Rule:
    a, b = (_tokenizer(vocab) for vocab in pair.vocabs)
    effect = "they cut text in different ways before merging; one of the two may be wrong"
    mend = f"tokenizer.ggml.pre = {pair.target.vocab.pre}" if pair.target.vocab.pre else ""
    return _note("pre-tokenizer", a == b, a, b, effect, mend)


def _tokenizer(vocab: Vocab) -> str:
    """What decides how text is cut: for BPE the pre-tokenizer, else whether a space is put in front."""
    if effective(vocab).type == "BPE":
        return vocab.pre or "none"
    space = {None: "", True: ", a space in front", False: ", no space in front"}[vocab.add_space_prefix]
    return f"{vocab.model}{space}"


def _scores(pair: Pair) -> Rule:
    a, b = (vocab.scores if effective(vocab).type in ("SPM", "UGM") else None for vocab in pair.vocabs)
    same = (a is None) == (b is None) and (a is None or b is None or np.array_equal(a, b))
    values = ["not used" if scores is None else f"{len(scores):,}" for scores in (a, b)]
    effect = "they join letters to tokens in different ways: the draft saw other splits in training"
    return _note("scores", same, values[0], values[1], effect)


def _special_ids(pair: Pair) -> Rule:
    named = [special.resolved(vocab) for vocab in pair.vocabs]
    other = [k for k in special.KEYS if named[0].get(k) != named[1].get(k) and not _by_text(pair, k)]
    values = [", ".join(f"{k} {ids.get(k, 'none')}" for k in other) or "alike" for ids in named]
    missing = [f"tokenizer.ggml.{special.KEYS[k]} = {named[0][k]}" for k in other if k in named[0]]
    effect = "the two name other ids for these roles; gguftools uses the target's"
    return _note("special ids", not other, values[0], values[1], effect, "\n".join(missing))


def _by_text(pair: Pair, kind: str) -> bool:
    """Whether one side alone names the end of a turn, and the other has that token: its text is found."""
    if kind != "eot":
        return False
    ids = [vocab.special.get("eot") for vocab in pair.vocabs]
    if (ids[0] is None) == (ids[1] is None):
        return False
    i = next(i for i in ids if i is not None)
    return i < min(vocab.n_tokens for vocab in pair.vocabs) and i not in pair.differing


def _eog(pair: Pair) -> Rule:
    target, draft = pair.vocabs
    ends = target.eog()
    others = ends if pair.same_texts and target.special == draft.special else draft.eog()
    values = [_listed([shown(v, i) for i in sorted(ids)]) for v, ids in ((target, ends), (draft, others))]
    effect = "tokens that end a turn for one are ordinary for the other; gguftools stops at the target's"
    return _note("end tokens", ends == others, values[0], values[1], effect)


def _template(pair: Pair) -> Rule:
    seen = [markers(side.template) for side in (pair.target, pair.draft)]
    lacking = sorted(seen[0] - special.find(pair.draft.vocab, seen[0]).keys())
    strange = sorted(seen[0] - seen[1]) if seen[1] else []
    values = [_listed(sorted(markers_)) for markers_ in seen]
    if lacking:
        effect = f"the draft has no token {_listed(lacking)} and drafts badly around them"
    else:
        effect = "the draft was tuned on other headers: fewer accepted tokens at the start of a turn"
    return _note("template headers", not lacking and not strange, values[0], values[1], effect)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    return ", ".join(names[:6]) + more if names else "none"


def _context(pair: Pair) -> Rule:
    a, b = pair.target.n_ctx, pair.draft.n_ctx
    passed = not a or not b or b >= a
    effect = f"the draft guesses badly beyond {b:,} tokens: keep its window (draft_n_ctx) at or below"
    return _note("context length", passed, f"{a:,}" if a else "unknown", f"{b:,}" if b else "unknown", effect)
