"""Wrong metadata in a file that loads: what it does to the answers, and how to mend it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from ... import recipes
from ...header import Header
from ...vocab import TokenType, special
from .pair import effective, llama_cpp, shown
from .report import Level, Rule
from .side import Side
from .templates import failure, markers, prompt_inside_loop

_PREFIX = "tokenizer.ggml."
# Texts that libllama takes as eot where no key names it; which of several depends on its hash table.
_EOT_TEXTS = (
    *("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<EOT>"),
    *("_<EOT>", "[EOT]", "<｜end▁of▁sentence｜>", "<end_of_utterance>"),
)

_SOFTMAX_UNSAID = ("deepseek2", "deepseek2-ocr")  # architectures where no key means softmax


def metadata_rules(side: Side) -> Iterator[Rule]:
    """A Rule for each item that applies to the file."""
    for look in _LOOKS:
        yield from look(side)


def _rule(name: str, passed: bool, value: str, effect: str, mend: str, level: Level = "wrong") -> Rule:
    effect, mend = ("", "") if passed else (effect, mend)
    return Rule(name, "gguftools", passed, value, None, level, effect, mend)


@cache
def _kimi() -> dict[str, Any]:
    return recipes.load("kimi-k2")


@cache
def _families() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = recipes.load("tokenizers")["vocabulary"]
    return found


def _family(side: Side) -> dict[str, Any] | None:
    """The entry of models/tokenizers.toml whose tokens the vocabulary has."""
    vocab = side.vocab

    def fits(entry: dict[str, Any]) -> bool:
        ids = {int(i): text.encode() for i, text in entry["tokens"].items()}
        return max(ids) < vocab.n_tokens and all(vocab.texts[i] == text for i, text in ids.items())

    return next((entry for entry in _families() if vocab.model == "gpt2" and fits(entry)), None)


def _is_kimi(side: Side) -> bool:
    family = _family(side)
    return side.vocab.is_kimi or (family is not None and family["name"] == "Kimi")


def _eos(side: Side) -> Iterator[Rule]:
    """Kimi's config.json names [EOS], but turns end at the token after it."""
    vocab, facts = side.vocab, _kimi()
    wrong, right = facts["eos_token_id"], facts["generation_eos_token_id"]
    if not _is_kimi(side) or vocab.n_tokens <= right:
        return
    eos = special.resolved(vocab).get("eos", -1)
    effect = ""
    if eos != right and right in vocab.eog():
        effect = "programs that stop at eos alone run on; llama.cpp knows the end of a turn by its name"
    elif eos != right:
        effect = "answers do not stop at the end of a turn"
    mend = f"{_PREFIX}eos_token_id = {right}"
    base = side.header is not None and "base" in str(side.header.get_plain("general.name")).lower()
    level: Level = "wrong" if eos == wrong and not base else "note"  # a base model has no turns
    yield _rule("eos ends a turn", eos == right, shown(vocab, eos), effect, mend, level)


def _bos(side: Side) -> Iterator[Rule]:
    vocab, real = side.vocab, effective(side.vocab)
    if real.type != "BPE" or (real.bos < 0 and "bos" not in vocab.special):
        return
    named = 0 <= vocab.special.get("bos", -1) < vocab.n_tokens
    matters = real.add_bos or "bos_token" in side.template or _is_kimi(side)
    effect = f"llama.cpp takes {shown(vocab, real.bos)} for it"
    effect += " and puts it before each prompt" if real.add_bos else ""
    known = _kimi()["special"]["[BOS]"] if _is_kimi(side) else "the id of the beginning token"
    mend = f"{_PREFIX}bos_token_id = {known}"
    yield _rule("bos id named", named, shown(vocab, real.bos), effect, mend, "wrong" if matters else "note")


def _eot(side: Side) -> Iterator[Rule]:
    vocab = side.vocab
    there = special.find(vocab, _EOT_TEXTS)
    found = {text: there[text] for text in _EOT_TEXTS if text in there}
    named = 0 <= vocab.special.get("eot", -1) < vocab.n_tokens
    if len(found) < 2 and not named:
        return
    values = (
        shown(vocab, vocab.special["eot"]) if named else ", ".join(f"{i} ({t})" for t, i in found.items())
    )
    effect = "llama.cpp takes one of these by the order of a hash table, which may change between builds"
    turn = vocab.id_of(b"<|im_end|>")
    mend = f"{_PREFIX}eot_token_id = {turn if turn is not None else next(iter(found.values()), 0)}"
    yield _rule("eot id named", named, values, effect, mend, "note")


def _double_bos(side: Side) -> Iterator[Rule]:
    vocab, real = side.vocab, effective(side.vocab)
    if not side.template or not real.add_bos or real.bos < 0:
        return
    text = vocab.texts[real.bos].decode("utf-8", "replace")
    writes = "bos_token" in side.template or side.template.lstrip().startswith(text)
    effect = "a program that renders the template and then lets llama.cpp add bos begins with two of them"
    level: Level = "wrong" if vocab.add_bos else "note"
    value = "added, and written by the template" if writes else "added"
    yield _rule("one bos", not writes, value, effect, f"{_PREFIX}add_bos_token = false", level)


def _pre(side: Side) -> Iterator[Rule]:
    if effective(side.vocab).type != "BPE" or side.vocab.model == "gemma4":
        return
    pre, family = side.vocab.pre, _family(side)
    unnamed = pre in ("", "default")
    if family is None and not unnamed:
        return
    passed = not unnamed and (family is None or pre in family["pre"])
    effect = "text is cut into other words than in training: other ids, worse answers, fewer accepted tokens"
    right = f"{family['pre'][0]} (the tokens are {family['name']}'s)" if family else "the model's own"
    yield _rule("pre-tokenizer", passed, pre or "none", effect, f"{_PREFIX}pre = {right}")


def _template_tokens(side: Side) -> Iterator[Rule]:
    if not side.template:
        return
    used = [m for m in sorted(markers(side.template)) if m.startswith("<")]
    there = special.find(side.vocab, used)
    missing = [m for m in used if m not in there]
    value = ", ".join(missing[:6]) or f"{len(used)} markers, all tokens"
    effect = "the template writes what is no token here: it is cut into pieces that the model never saw"
    yield _rule(
        "template's tokens", not missing, value, effect, "a newer tokenizer.chat_template of the model"
    )


def _template_loop(side: Side) -> Iterator[Rule]:
    if "add_generation_prompt" not in side.template:
        return
    inside = prompt_inside_loop(side.template)
    effect = "the header of the answer is written after each message, so the model sees empty answers"
    mend = "tokenizer.chat_template: move the block with add_generation_prompt behind the loop"
    yield _rule(
        "template's last header", not inside, "inside the loop" if inside else "after the loop", effect, mend
    )


def _template_works(side: Side) -> Iterator[Rule]:
    if not side.template:
        return
    why = failure(side.template)
    effect = "run and chat cannot write a conversation (run --raw needs no template)"
    mend = "a newer tokenizer.chat_template of the model"
    yield _rule("template works", not why, why or "writes a conversation", effect, mend)


def _think(side: Side) -> Iterator[Rule]:
    vocab = side.vocab
    ids = [i for text in (b"<think>", b"</think>") if (i := vocab.id_of(text)) is not None]
    hidden = [i for i in ids if vocab.types[i] == TokenType.CONTROL]
    if not ids:
        return
    value = ", ".join(f"{shown(vocab, i)} {TokenType(int(vocab.types[i])).name}" for i in ids)
    mend = "\n".join(f"{_PREFIX}token_type[{i}] = 4 (USER_DEFINED)" for i in hidden)
    effect = "llama.cpp does not print control tokens: programs cannot tell thinking from answer"
    level: Level = (
        "note" if _is_kimi(side) else "wrong"
    )  # llama.cpp's converter types all of Kimi's specials so
    yield _rule("<think> visible", not hidden, value, effect, mend, level)


def _gating(side: Side) -> Iterator[Rule]:
    header, arch = side.header, side.architecture
    if header is None or arch not in _SOFTMAX_UNSAID or not header.get_plain(f"{arch}.expert_count"):
        return
    key = f"{arch}.expert_gating_func"
    value = header.get_plain(key)
    biased = any(
        t.name.endswith("exp_probs_b.bias") or t.name.endswith("exp_probs_b") for t in header.tensors
    )
    if value is not None or not (biased or _is_kimi(side) or side.vocab.pre == "deepseek-v3"):
        yield _rule("expert gating", True, str(value or "softmax by default"), "", "")
        return
    effect = "llama.cpp silently takes softmax, but the model was trained with sigmoid: wrong experts"
    yield _rule("expert gating", False, "not said", effect, f"{key} = 2 (sigmoid)")


def _mla(side: Side) -> Iterator[Rule]:
    header, arch = side.header, side.architecture
    if header is None or arch != "deepseek2" or f"{arch}.attention.head_count" not in header.keys:
        return
    old = f"{arch}.attention.key_length_mla" not in header.keys
    heads = header.keys.get(f"{arch}.attention.head_count_kv")
    value = f"{heads} KV heads, no key_length_mla" if old else "latent attention"
    effect = "made before latent attention (MLA): the cache is many times as large and attention slower"
    yield _rule(
        "latent attention", not old, value, effect, "convert the checkpoint again, or fetch a newer GGUF"
    )


def _yarn(side: Side) -> Iterator[Rule]:
    arch = side.architecture
    if side.yarn is None or arch in llama_cpp()["yarn_beta_fast_read"]:
        return
    value = side.yarn.beta_fast
    effect = f"llama-cpp-python {llama_cpp()['version']} does not read beta_fast for {arch} and uses 32"
    if value is not None:
        mend = f"gguftools passes it; elsewhere pass yarn_beta_fast = {value:g} as a context parameter"
        yield _rule("YaRN beta_fast", value == 32, f"{value:g}", effect, mend, "note")
    elif _is_kimi(side) and not side.is_transplanted:  # its positions are its donor's
        mend = "Kimi-K2 wants 1 (pass yarn_beta_fast = 1 as a context parameter), K2.5 wants 32"
        yield _rule("YaRN beta_fast", False, "not said", effect, mend, "note")


def _weights(side: Side) -> Iterator[Rule]:
    if side.header is not None and is_vocabulary_alone(side.header):
        effect = "it can be checked and turns text into tokens, but it does not run"
        yield _rule("weights", False, "none: a vocabulary alone", effect, "", "note")


def is_vocabulary_alone(header: Header) -> bool:
    """Whether the model has no tensors; the first shard of a split one may have none of its own."""
    split = header.keys.get("split.count", 0)
    return not header.tensors and not (isinstance(split, int) and split > len(header.files))


def _first_shard(side: Side) -> Iterator[Rule]:
    header = side.header
    if header is None or len(header.files) < 2:
        return
    first = header.files[0].name
    given = side.name.endswith(first) or not side.name.endswith(".gguf")
    effect = "llama.cpp loads a split model by its first shard alone; gguftools accepts any"
    yield _rule("first shard", given, side.name, effect, f"give {first}", "note")


_LOOKS: tuple[Callable[[Side], Iterator[Rule]], ...] = (
    _eos,
    _bos,
    _eot,
    _double_bos,
    _pre,
    _template_tokens,
    _template_loop,
    _template_works,
    _think,
    _gating,
    _mla,
    _yarn,
    _weights,
    _first_shard,
)
