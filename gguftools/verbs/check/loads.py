"""Whether libllama can load a file at all: what it refuses, and what ends the process."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ...header.ggml_types import ValueType
from ...vocab import TokenType, special
from .pair import as_c_string, effective, llama_cpp, readable, shown
from .report import Rule
from .side import Side, second_gguf

_PREFIX = "tokenizer.ggml."
_NO_FLAG = "the process ends at the first prompt"
_SIZES = ("context_length", "embedding_length", "block_count")
_HEADS = ("attention.head_count", "attention.head_count_kv")
_BYTE = re.compile(rb"<0x[0-9A-F]{2}>")
_REFUSED = "llama.cpp refuses the file"


def load_rules(side: Side, texts: Sequence[bytes]) -> Iterator[Rule]:
    """A Rule for each thing that decides whether the file loads; a failed one is fatal.

    `texts`: the vocabulary's; empty where it is known already that none is there twice.
    """
    for look in _LOOKS:
        yield from look(side)
    yield _duplicates(texts)


def _rule(name: str, passed: bool, value: str, effect: str, mend: str = "") -> Rule:
    effect, mend = ("", "") if passed else (effect, mend)
    return Rule(name, "gguftools", passed, value, None, "fatal", effect, mend)


def _architecture(side: Side) -> Iterator[Rule]:
    arch, known = side.architecture, llama_cpp()["architectures"]
    if not arch:
        return
    import difflib

    near = [a for a in known if arch.startswith(a + "-")] or difflib.get_close_matches(arch, known, 1, 0.8)
    mend = ""
    if near:
        mend = f"general.architecture = {near[0]}\nthe keys {arch}.* renamed to {near[0]}.*"
    effect = f"{_REFUSED}: llama-cpp-python {llama_cpp()['version']} does not know this architecture"
    if side.header is None:
        return  # a checkpoint's name for it is not llama.cpp's
    yield _rule("architecture", arch in known, arch, effect, mend or "a newer llama-cpp-python may know it")


def _model(side: Side) -> Iterator[Rule]:
    model = side.vocab.model
    known = model in llama_cpp()["vocabulary_types"]
    mend = f"{_PREFIX}model = gpt2 (byte-level BPE) or llama (SentencePiece)"
    yield _rule("tokenizer", known, model or "not named", f"{_REFUSED}: unknown tokenizer", mend)
    if effective(side.vocab).type != "BPE" or model == "gemma4":
        return
    pre = side.vocab.pre
    known = not pre or pre in llama_cpp()["pre_tokenizers"]
    yield _rule("pre-tokenizer known", known, pre or "none", f"{_REFUSED}: unknown pre-tokenizer type")
    has_merges = bool(len(side.vocab.merges)) or pre == "kimi-k2"
    if side.header is not None and f"{_PREFIX}merges" in side.header.keys:
        has_merges = True
    effect = f"{_REFUSED}: it finds no merges"
    yield _rule(
        "merges there", has_merges, f"{len(side.vocab.merges):,}", effect, f"{_PREFIX}merges is needed"
    )


def _duplicates(texts: Sequence[bytes]) -> Rule:
    if b"" in texts or b"\0" in b"".join(texts):  # libllama reads these in another way than they are stored
        texts = [as_c_string(text, i) for i, text in enumerate(texts)]
    value = f"{len(texts):,} tokens"
    twice: list[bytes] = []
    if len(set(texts)) < len(texts):
        twice = [text for text, n in Counter(texts).items() if n > 1]
        ids = [str(i) for i, text in enumerate(texts) if text == twice[0]]
        value = f"{len(twice):,} texts more than once, first {readable(twice[0])} at {', '.join(ids[:4])}"
    effect = "the process ends at load (libllama asserts that all token texts differ)"
    return _rule("no token twice", not twice, value, effect, f"{_PREFIX}tokens: give each id its own text")


def _byte_tokens(side: Side) -> Iterator[Rule]:
    """libllama takes two digits after "<0x" from the text of each BYTE token, whatever stands there."""
    vocab = side.vocab
    if effective(vocab).type not in ("SPM", "BPE", "UGM"):
        return
    ids = np.flatnonzero(vocab.types == TokenType.BYTE).tolist()
    wrong = [i for i in ids if not _BYTE.fullmatch(as_c_string(vocab.texts[i], i))]
    if not ids:
        return
    short = next((i for i in wrong if len(as_c_string(vocab.texts[i], i)) < len("<0x")), None)
    value, mend = f"{len(ids):,} written <0xNN>", ""
    if wrong:
        i = wrong[0] if short is None else short
        value = f"{len(wrong):,} not written <0xNN>, first {i} ({readable(vocab.texts[i])})"
        mend = f"{_PREFIX}tokens[{i}] = <0xNN>, or {_PREFIX}token_type[{i}] = 1 (NORMAL)"
    effect = f"{_REFUSED}: it finds no byte in the text of a BYTE token"
    if short is None:
        effect = "llama.cpp writes another byte for such a token"
    rule = _rule("byte tokens", not wrong, value, effect, mend)
    level = rule.level if short is not None else "wrong"
    yield Rule(rule.name, rule.source, rule.passed, value, None, level, rule.effect, rule.mend)


def _key_types(side: Side) -> Iterator[Rule]:
    """libllama throws where a key has another type than the one it asks for."""
    if side.header is None:
        return
    types, keys = side.header.types, side.header.keys
    expected: dict[str, tuple[ValueType, ...]] = {
        _PREFIX + key: (ValueType.U32,) for key in special.KEYS.values()
    }
    expected.pop(_PREFIX + "cls_token_id")  # which libllama does not read
    expected |= {
        _PREFIX + key: (ValueType.BOOL,) for key in ("add_bos_token", "add_eos_token", "add_space_prefix")
    }
    expected |= {
        _PREFIX + "scores": (ValueType.F32, ValueType.I32),
        _PREFIX + "token_type": (ValueType.I32,),
    }
    wrong = [key for key, fits in expected.items() if key in keys and types[key] not in fits]
    value = ", ".join(f"{key} is {ValueType(types[key]).name.lower()}" for key in wrong) or "as expected"
    mend = "\n".join(f"{key} as {expected[key][0].name.lower()}" for key in wrong)
    yield _rule("types of keys", not wrong, value, f"{_REFUSED}: a key has the wrong type", mend)


def _sizes(side: Side) -> Iterator[Rule]:
    """The numbers without which libllama makes no layer; a vocabulary alone needs none."""
    header, arch = side.header, side.architecture
    if header is None or not any(t.name.startswith("blk.") for t in header.tensors):
        return
    keys, types = header.keys, header.types
    wrong = {}
    for name in _SIZES:
        key, value = f"{arch}.{name}", keys.get(f"{arch}.{name}")
        if value is None:
            wrong[key] = "missing"
        elif types[key] != ValueType.U32 or not isinstance(value, int) or value < 1:
            wrong[key] = f"{value} ({ValueType(types[key]).name.lower()})"
    n_embd, heads, kv = (
        keys.get(f"{arch}.{name}") for name in ("embedding_length", *_HEADS)
    )  # numbers for a whole model, arrays for its layers
    if heads is None and any(t.name.endswith((".attn_q.weight", ".attn_qkv.weight")) for t in header.tensors):
        wrong[f"{arch}.{_HEADS[0]}"] = "missing"
    elif isinstance(heads, (int, float, str)) and (type(heads) is not int or heads < 0):
        wrong[f"{arch}.{_HEADS[0]}"] = str(heads)
    elif isinstance(heads, int) and heads and not wrong:
        if isinstance(kv, int) and (kv < 0 or (kv and heads % kv)):
            wrong[f"{arch}.{_HEADS[1]}"] = f"{kv}, for {heads} heads"
        if f"{arch}.attention.key_length" not in keys and isinstance(n_embd, int) and n_embd % heads:
            wrong[f"{arch}.{_HEADS[0]}"] = f"{heads}, for an embedding of {n_embd}"
    value = ", ".join(f"{key}: {what}" for key, what in wrong.items()) or "as expected"
    yield _rule("sizes", not wrong, value, f"{_REFUSED}: {value}", "fetch or convert the model again")


def _rows(side: Side) -> Iterator[Rule]:
    tensors = side.header.tensors if side.header else ()
    embedding = next((t for t in tensors if t.name == "token_embd.weight" and len(t.shape) == 2), None)
    if embedding is None:
        return
    rows, n = embedding.shape[1], side.vocab.n_tokens
    effect = f"{_REFUSED}: the embedding must have as many rows as there are tokens"
    mend = f"{_PREFIX}tokens with {rows:,} entries: pad with [PADn] of type 5 (UNUSED), or cut"
    yield _rule("rows of the embedding", rows == n, f"{rows:,} rows for {n:,} tokens", effect, mend)


def _ids(side: Side) -> Iterator[Rule]:
    vocab, real = side.vocab, effective(side.vocab)
    beyond = {name: i for name, i in vocab.special.items() if i >= vocab.n_tokens}
    value = ", ".join(f"{name} {i}" for name, i in beyond.items()) or "inside the vocabulary"
    used = special.resolved(vocab)
    instead = ", ".join(f"{name} {shown(vocab, used.get(name, -1))}" for name in beyond)
    effect = f"llama.cpp ignores the key and takes {instead}; older versions end the process at load"
    mend = "\n".join(f"{_PREFIX}{special.KEYS[name]} below {vocab.n_tokens}" for name in beyond)
    rule = _rule("special ids", not beyond, value, effect, mend)
    yield Rule(rule.name, rule.source, rule.passed, value, None, "wrong", rule.effect, rule.mend)
    for name, adds, i in (("bos", real.add_bos, real.bos), ("eos", real.add_eos, real.eos)):
        if adds:
            mend = f"{_PREFIX}add_{name}_token = false, or a valid {_PREFIX}{name}_token_id"
            effect = f"{_NO_FLAG}: it is to be added, but there is none"
            yield _rule(f"{name} to add", i >= 0, shown(vocab, i), effect, mend)


def _joined(side: Side) -> Iterator[Rule]:
    header = side.header
    if header is None or not header.path.is_file():
        return
    with header.path.open("rb") as file:
        at = second_gguf(file, header)
    if at:
        effect = "llama.cpp reads the first part alone: files were joined with cat"
        yield _rule(
            "one GGUF in the file",
            False,
            f"a second one begins at byte {at:,}",
            effect,
            "fetch the shards again",
        )


_LOOKS: tuple[Callable[[Side], Iterator[Rule]], ...] = (
    _architecture,
    _model,
    _byte_tokens,
    _key_types,
    _sizes,
    _rows,
    _ids,
    _joined,
)
