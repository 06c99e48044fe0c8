"""What libllama makes of a vocabulary's special tokens: which ids it uses, which end generation.

The rules are those of llama_vocab::impl::load in llama.cpp (src/llama-vocab.cpp), as llama-cpp-python 0.3.36
has it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from . import Vocab

# Our name -> the key under tokenizer.ggml. ("seperator" is spelled so.)
KEYS = {
    "bos": "bos_token_id",
    "eos": "eos_token_id",
    "eot": "eot_token_id",
    "eom": "eom_token_id",
    "unk": "unknown_token_id",
    "sep": "seperator_token_id",
    "pad": "padding_token_id",
    "cls": "cls_token_id",
    "mask": "mask_token_id",
    "fim_pre": "fim_pre_token_id",
    "fim_suf": "fim_suf_token_id",
    "fim_mid": "fim_mid_token_id",
    "fim_pad": "fim_pad_token_id",
    "fim_rep": "fim_rep_token_id",
    "fim_sep": "fim_sep_token_id",
}

# The ids that are used where a file names none, by tokenizer.ggml.model.
DEFAULTS: dict[str, dict[str, int]] = {
    "llama": {"bos": 1, "eos": 2, "unk": 0},
    "bert": {"bos": 101, "unk": 100, "sep": 102, "pad": 0, "mask": 103},
    "gpt2": {"bos": 11, "eos": 11},
    "hybriddna": {"bos": 11, "eos": 11},
    "whitespace": {"bos": 11, "eos": 11},
    "t5": {"eos": 1, "unk": 2, "pad": 0},
    "plamo2": {"bos": 1, "eos": 2, "unk": 0, "pad": 3},
}
_BPE = ("gpt2", "hybriddna", "whitespace", "gemma4")  # the models whose pre-tokenizer libllama looks at
_NO_BOS = ("chatglm-bpe", "glm4", "glm5")  # pre-tokenizers that take the default bos away
_ADD_BOS = (
    *(
        "llama3",
        "llama-v3",
        "llama-bpe",
        "falcon3",
        "falcon-h1",
        "pixtral",
        "midm-2.0",
        "lfm2",
        "jina-v5-nano",
    ),
    *("tekken", "chameleon"),
)

# Texts that end generation wherever they are in a vocabulary.
EOG_TEXTS = (
    *("<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>"),
    *("<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]"),
    *("<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>"),
    *("<｜end▁of▁sentence｜>", "[e~["),
)
# Texts that are taken where no key names the id; these three kinds end generation too.
FIM_TEXTS = {
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}


def resolved(vocab: Vocab) -> dict[str, int]:
    """The ids that libllama would use: those named in the file and inside the vocabulary, else its defaults.

    What it finds by text (eot, eom, fim_*) is not among them.
    """
    ids = dict(DEFAULTS.get(vocab.model, {}))
    if _pre(vocab) in _NO_BOS:
        ids.pop("bos", None)
    ids |= {name: i for name, i in vocab.special.items() if 0 <= i < vocab.n_tokens}
    return {name: i for name, i in ids.items() if i < vocab.n_tokens}


def _pre(vocab: Vocab) -> str:
    return vocab.pre if vocab.model in _BPE else ""


def adds(vocab: Vocab) -> tuple[bool, bool]:
    """(bos, eos): whether libllama adds them around a prompt."""
    bos = vocab.model in ("llama", "bert") or _pre(vocab) in _ADD_BOS
    eos = vocab.model == "t5"
    bos = bos if vocab.add_bos is None else vocab.add_bos
    gemma4 = vocab.model == "gemma4" or _pre(vocab) in ("gemma4", "granite-embed-multi-311m")
    return bos or gemma4, eos if vocab.add_eos is None else vocab.add_eos


def eog(vocab: Vocab) -> frozenset[int]:
    """The ids that end generation."""
    named = resolved(vocab)
    texts = {*EOG_TEXTS, *(text for group in FIM_TEXTS.values() for text in group)}
    found = find(vocab, texts)
    ids = {found[text] for text in EOG_TEXTS if text in found}
    for name, group in FIM_TEXTS.items():
        by_text = [found[text] for text in group if text in found]
        if name in named or by_text:
            ids.add(named[name] if name in named else min(by_text))
    ids |= {named[name] for name in ("eos", "eot", "eom") if name in named}
    return frozenset(_without_normal(vocab, ids))


def _without_normal(vocab: Vocab, ids: set[int]) -> set[int]:
    """Takes away <|end|> beside harmony's texts, and </s> beside gemma4's and plamo's."""
    texts = {vocab.texts[i].decode("utf-8", "replace"): i for i in sorted(ids)}
    call = "<|call|>" in texts or "<|calls|>" in texts
    if "<|end|>" in texts and call and ("<|return|>" in texts or "<|flush|>" in texts):
        ids.discard(texts["<|end|>"])
    if "</s>" in texts and ("<|tool_response>" in texts or "<|plamo:eos|>" in texts):
        ids.discard(texts["</s>"])
    return ids


def find(vocab: Vocab, texts: Iterable[str]) -> dict[str, int]:
    """text -> id for those in the vocabulary; only tokens that share a length and a first byte are sliced."""
    wanted = {text.encode(): text for text in texts}
    array = vocab.texts
    if not len(array):
        return {}
    lengths = array.lengths
    data = np.frombuffer(array.raw, np.uint8)
    hits = np.flatnonzero(np.isin(lengths, np.array(sorted({len(text) for text in wanted}))))
    first = data[array.starts[:-1][hits]]
    hits = hits[np.isin(first, np.array(sorted({text[0] for text in wanted}), np.uint8))]
    return {wanted[text]: i for i in hits.tolist() if (text := array[i]) in wanted}
