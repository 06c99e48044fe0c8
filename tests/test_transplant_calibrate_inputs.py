"""transplant --calibrate: what is wrong with a text is said at once; vocabularies that cannot encode."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import gguf_files
import lowlevel
import numpy as np
import pytest
import tiny
import transplants as tp

from gguftools import transplant
from gguftools.errors import GGUFToolsError, InputError, NotFound, Unsupported
from gguftools.verbs import transplant as verb

OWN = "one of the ones on one hone\n" * 200


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.txt"
    path.write_text(OWN)
    return path


# What is wrong is said before any work is done.


def missing(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_text("")


def short(path: Path) -> None:
    path.write_text("too short")


def binary(path: Path) -> None:
    path.write_bytes(b"\0\1\2" * 2000)


def latin_1(path: Path) -> None:
    path.write_bytes("é".encode("latin-1") * 3000)


TEXTS: dict[str, tuple[Callable[[Path], None], type[GGUFToolsError], str]] = {
    "no file": (missing, NotFound, "there is no"),
    "nothing in it": (empty, InputError, "holds no text"),
    "a few words": (short, InputError, "holds 9 characters"),
    "a binary": (binary, InputError, "is no text"),
    "no UTF-8": (latin_1, InputError, "is not UTF-8"),
}


@pytest.mark.parametrize("fault", TEXTS)
def test_a_text_that_cannot_be_used_is_an_error_before_any_work(
    donor: Path, target: Path, out: Path, own: Path, fault: str
) -> None:
    change, error, why = TEXTS[fault]
    change(own)
    seen: list[str] = []
    with pytest.raises(error, match=why) as caught:
        transplant(donor, target, out, calibrate=own, progress=lambda stage, _: seen.append(stage))
    assert caught.value.hint
    assert not seen
    assert not list(out.parent.iterdir())


@pytest.mark.parametrize("n_tokens", [0, 999, 50_001])
def test_a_number_of_tokens_that_makes_no_sense_is_refused(
    donor: Path, target: Path, out: Path, n_tokens: int
) -> None:
    with pytest.raises(InputError, match="it takes 1,000 to 50,000"):
        transplant(donor, target, out, calibrate="auto", calibrate_tokens=n_tokens)
    assert not list(out.parent.iterdir())


# Vocabularies that cannot encode.


def mute(folder: Path) -> Path:
    """A vocabulary of Kimi's kind without most bytes."""
    texts = ["a", "b", "one", "<|im_end|>", "ab", "the"]
    keys = {
        "general.architecture": "deepseek2",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "kimi-k2",
        "tokenizer.ggml.tokens": gguf_files.Typed(gguf_files.STR, [text.encode() for text in texts]),
        "tokenizer.ggml.token_type": gguf_files.Typed(gguf_files.I32, [1, 1, 1, 3, 1, 1]),
        "tokenizer.ggml.merges": gguf_files.Typed(gguf_files.STR, [b"a b"]),
    }
    return gguf_files.write_gguf(folder / "mute.gguf", keys)


@pytest.mark.parametrize("kind", ["qwen2", "qwen3"])
def test_where_no_text_can_be_encoded_shares_go_by_the_order_of_ids_with_a_warning(
    tmp_path: Path, out: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    donor = tp.donor_gguf(tmp_path, tp.DONORS[kind])
    with caplog.at_level(logging.WARNING):
        report = transplant(donor, mute(tmp_path), out)
    assert "no text was counted: this vocabulary cannot encode" in caplog.text
    assert (report.coverage, report.ties) == (None, 0)
    ids = np.random.default_rng(0).integers(0, 6, 100).tolist()
    assert 3 not in lowlevel.logits(out, ids).argmax(1) or report.draftable == 6


def test_and_that_is_an_error_where_calibration_was_asked_for(donor: Path, tmp_path: Path, out: Path) -> None:
    with pytest.raises(Unsupported, match="cannot encode"):
        transplant(donor, mute(tmp_path), out, calibrate="auto")
    assert not list(out.parent.iterdir())


def test_a_donor_that_no_text_is_spelled_for_reads_any_tokens_for_its_unit(
    tmp_path: Path, target: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verb.calibrate.Tokenizer, "spell", lambda *_: None)  # type: ignore[attr-defined]
    seen = tp.watched(monkeypatch)
    transplant(tp.donor_gguf(tmp_path, tiny.QWEN3), target, out)
    assert seen.unit is not None
    assert np.isfinite(seen.unit.vector).all()


def test_too_few_tokens_for_a_donor_are_refused_before_anything_is_counted(
    donor: Path, target: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verb.calibrate, "enough", lambda _: 1001)  # type: ignore[attr-defined]
    seen: list[str] = []
    with pytest.raises(InputError, match=r"1,001.*fewer would make the draft worse"):
        transplant(
            donor,
            target,
            out,
            calibrate="auto",
            calibrate_tokens=1000,
            progress=lambda stage, _: seen.append(stage),
        )
    assert "count" not in seen
    assert not out.exists()


def test_a_donor_that_writes_nothing_of_use_is_said(
    donor: Path, target: Path, out: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(verb.calibrate, "written_by", lambda *_, **__: [])  # type: ignore[attr-defined]
    assert transplant(donor, target, out, calibrate="donor", calibrate_tokens=1000).ties == 0
    assert "wrote nothing of use" in caplog.text
