"""transplant between kinds of vocabularies, and with random ones: libllama loads what it writes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import gguf_files
import lowlevel
import numpy as np
import pytest
import tiny
import transplants as tp
from gguf_files import F32, I32, STR, Typed
from tokenizer_files import spm_model

from gguftools import transplant
from gguftools.errors import IncompatibleDraft
from gguftools.verbs.convert import convert
from gguftools.vocab import Vocab


@pytest.fixture(scope="module")
def donor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tp.donor_gguf(tmp_path_factory.mktemp("donor"))


@pytest.fixture(scope="module")
def sentencepiece(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama with Llama-2's kind of vocabulary."""
    folder = tmp_path_factory.mktemp("sentencepiece")
    (folder / "tokenizer").mkdir()
    (folder / "tokenizer" / "tokenizer.model").write_bytes(spm_model())
    weights = tiny.weights(tiny.LLAMA)
    checkpoint = tiny.write_checkpoint(folder / "hf", tiny.LLAMA, weights, tokenizer=folder / "tokenizer")
    return convert(checkpoint, folder / "spm.gguf").path


@pytest.mark.parametrize("way", ["there", "back"])
def test_sentencepiece_and_bytes_go_both_ways_with_the_leading_space(
    donor: Path, sentencepiece: Path, tmp_path: Path, way: str
) -> None:
    """ " the" is one token in both, spelled ▁the in one and Ġthe in the other."""
    source, target = (donor, sentencepiece) if way == "there" else (sentencepiece, donor)
    report = transplant(source, target, tmp_path / "draft.gguf", outtype="f32")
    assert report.verdict == "identical"
    ours, theirs = Vocab.from_gguf(tmp_path / "draft.gguf"), Vocab.from_gguf(source)
    a, b = (
        vocab.id_of("▁the".encode() if vocab.model == "llama" else "Ġthe".encode())
        for vocab in (ours, theirs)
    )
    assert a is not None
    assert b is not None
    rows = tp.matrix(tmp_path / "draft.gguf", "output.weight")
    assert (rows[a] == tp.matrix(source, "output.weight")[b]).all()
    assert np.isfinite(lowlevel.logits(tmp_path / "draft.gguf", [a, 5, 6])).all()


def token(source: random.Random) -> bytes:
    """Letters, any bytes, nothing at all, a byte token, a word of SentencePiece, a name."""
    kind = source.random()
    if kind < 0.6:
        return "".join(source.choices(tiny.byte_letters(), k=source.randint(1, 5))).encode()
    if kind < 0.8:
        return source.randbytes(source.randint(0, 4))
    others = [b"<0x%02X>" % source.randrange(256), "▁the".encode(), b"<|im_end|>", b"[PAD7]", b""]
    return source.choice(others)


def random_keys(seed: int) -> dict[str, Any]:
    """The keys of a vocabulary with holes, wrong bytes and ids beyond its end; of every third, with twins."""
    source = random.Random(seed)
    texts = [token(source) for _ in range(source.randint(1, 400))]
    if seed % 3:
        texts = list(dict.fromkeys(texts))
    types = [6 if t.startswith(b"<0x") else source.choice([1, 1, 1, 1, 2, 3, 4, 5, 0, 77, -1]) for t in texts]
    found: dict[str, Any] = {
        "general.architecture": source.choice(["llama", "deepseek2"]),
        "tokenizer.ggml.model": "llama" if seed % 4 == 0 else "gpt2",
        "tokenizer.ggml.tokens": Typed(STR, texts),
        "tokenizer.ggml.token_type": Typed(I32, types),
    }
    if seed % 4:
        found["tokenizer.ggml.pre"] = source.choice(["qwen2", "kimi-k2", "gpt-2"])
        found["tokenizer.ggml.merges"] = ["t h"]
    else:
        numbers = [source.choice([0.0, -1.0, float("nan"), float("inf")]) for _ in texts]
        found["tokenizer.ggml.scores"] = Typed(F32, numbers)
    for name in ("bos", "eos", "eot", "padding", "unknown"):
        if source.random() < 0.5:
            found[f"tokenizer.ggml.{name}_token_id"] = source.randrange(
                len(texts) + source.choice([0, 0, 99])
            )
    if source.random() < 0.5:
        found["tokenizer.chat_template"] = source.choice([tp.TEMPLATE, "{% for", "{{ 1 / 0 }}", "é"])
    return found


@pytest.mark.parametrize("seed", range(60))
def test_a_random_vocabulary_gets_a_draft_that_libllama_loads_or_one_error(
    donor: Path, tmp_path: Path, seed: int
) -> None:
    keys = random_keys(seed)
    target = gguf_files.write_gguf(tmp_path / "target.gguf", keys)
    try:
        report = transplant(donor, target, tmp_path / "draft.gguf")
    except IncompatibleDraft:  # twins, which libllama refuses in the target too
        assert seed % 3 == 0
        assert sorted(path.name for path in tmp_path.iterdir()) == ["target.gguf"]
        return
    assert report.verdict in ("identical", "compatible")
    assert sum(report.classes.values()) == len(keys["tokenizer.ggml.tokens"].value)
    with lowlevel.model(tmp_path / "draft.gguf") as loaded:
        assert lowlevel.n_tokens(loaded) == report.n_tokens


def test_a_folder_with_kimis_vocabulary_becomes_a_gguf_again(
    donor: Path, kimi_folder: Path, tmp_path: Path
) -> None:
    report = transplant(donor, kimi_folder, hf_out=tmp_path / "hf")
    assert (report.verdict, report.ties) == ("identical", 0)
    again = convert(tmp_path / "hf", tmp_path / "again.gguf").path
    assert Vocab.from_gguf(again) == Vocab.from_checkpoint(kimi_folder)


def test_a_target_of_which_nothing_may_be_drafted_gets_a_draft_too(donor: Path, tmp_path: Path) -> None:
    keys = {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": Typed(STR, [b"<|a|>", b"<|b|>"]),
        "tokenizer.ggml.token_type": Typed(I32, [3, 3]),
        "tokenizer.ggml.merges": Typed(STR, [b"a b"]),
    }
    target = gguf_files.write_gguf(tmp_path / "target.gguf", keys)
    report = transplant(donor, target, tmp_path / "draft.gguf")
    assert (report.draftable, report.ties) == (0, 0)
