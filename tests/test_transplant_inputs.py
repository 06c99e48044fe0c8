"""transplant: what it takes as a target and as options, and what it refuses, with nothing left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf_files
import pytest
import tiny
import tiny_gguf
import transplants as tp
from hub_server import Hub
from transplants import keys

from gguftools import transplant
from gguftools.errors import FormatError, GGUFToolsError, IncompatibleDraft, InputError, NotFound
from gguftools.header import read_header
from gguftools.verbs.transplant.target import target_side
from gguftools.vocab import Vocab


@pytest.mark.parametrize("what", ["folder", "tokenizer.json", "gguf", "vocabulary alone"])
def test_a_target_is_anything_that_has_the_vocabulary(
    donor: Path, target: Path, out: Path, what: str
) -> None:
    given = {"folder": target, "tokenizer.json": target / "tokenizer.json"}.get(what)
    if given is None:
        given = out.with_name("target.gguf")
        transplant(donor, target, given)
    if what == "vocabulary alone":
        found = {key: v for key, v in keys(given).items() if key.startswith(("general.", "tokenizer."))}
        gguf_files.write_gguf(given, found)
    assert transplant(donor, given, out).verdict == "identical"
    assert Vocab.from_gguf(out) == Vocab.from_checkpoint(target)


def test_what_a_target_gguf_says_of_its_tokenizer_beyond_a_vocabulary_is_kept(
    donor: Path, target: Path, out: Path
) -> None:
    given = out.with_name("target.gguf")
    transplant(donor, target, given)
    gguf_files.write_gguf(given, {**keys(given), "tokenizer.ggml.remove_extra_whitespaces": True})
    transplant(donor, given, out)
    assert read_header(out).keys["tokenizer.ggml.remove_extra_whitespaces"] is True


def test_a_tiktoken_model_alone_is_kimi_k2s(kimi_folder: Path, tmp_path: Path) -> None:
    alone = tmp_path / "kimi.model"
    alone.write_bytes((kimi_folder / "tiktoken.model").read_bytes())
    wanted = Vocab.from_checkpoint(kimi_folder)
    assert target_side(alone).vocab == wanted
    assert target_side(kimi_folder / "tiktoken.model").vocab == wanted


def test_both_may_be_names_on_the_hub_and_the_target_sends_its_tokenizer_alone(
    hub: Hub, target: Path, tmp_path: Path, out: Path
) -> None:
    source, _ = tp.write_donor(tmp_path, tiny.QWEN2)
    files = {path.name: path.read_bytes() for path in source.iterdir()}
    weights = bytes(3 << 20)
    hub.repos["org/donor"] = files
    hub.repos["org/target"] = {
        **{path.name: path.read_bytes() for path in target.iterdir()},
        "model.safetensors": weights,
    }
    report = transplant("org/donor", "org/target", out)
    assert report.verdict == "identical"
    assert hub.sent < 2 * sum(map(len, files.values())) < len(weights)
    assert read_header(out).get_str("general.name") == "target vocabulary on donor"
    asked = len(hub.requests)
    transplant("org/donor", target, out, force=True, offline=True)
    assert len(hub.requests) == asked


OPTIONS: dict[str, tuple[dict[str, Any], type[GGUFToolsError], str]] = {
    "a layer that is not there": ({"layers": "0-2"}, InputError, "layers are 0 to 1"),
    "no layer": ({"layers": ""}, InputError, "a number is missing"),
    "a layer left out": ({"layers": "0,,1"}, InputError, "a number is missing"),
    "a range that runs back": ({"layers": "1-0"}, InputError, "1-0 ends before it begins"),
    "far too many layers": ({"layers": f"0-{10**20 - 1}"}, InputError, "layers are 0 to 1"),
    "a number that int() refuses": ({"layers": "9" * 5000}, InputError, "layers are 0 to 1"),
    "a long word": ({"layers": "a" * 5000}, InputError, "neither a number nor"),
    "a layer twice": ({"layers": "0,1,0"}, InputError, "layer 0 is there twice"),
    "words": ({"layers": "all"}, InputError, "neither a number nor"),
    "a context of nothing": ({"context": 0}, InputError, "from 1"),
    "a context beyond all numbers": ({"context": 1 << 31}, InputError, "from 1"),
    "a type for bodies": ({"outtype": "q4_k"}, InputError, "q8_0"),
}


@pytest.mark.parametrize("fault", OPTIONS)
def test_an_option_that_makes_no_sense_is_refused(donor: Path, target: Path, out: Path, fault: str) -> None:
    options, error, why = OPTIONS[fault]
    with pytest.raises(error, match=why) as caught:
        transplant(donor, target, out, **options)
    assert len(str(caught.value)) < 200
    assert not list(out.parent.iterdir())


def test_a_target_without_a_vocabulary_or_name_is_refused(donor: Path, out: Path) -> None:
    for given, error in ((out.parent, InputError), (out.parent / "none.gguf", NotFound)):
        with pytest.raises(error):
            transplant(donor, given, out)
    image = out.parent / "image.gguf"
    image.write_bytes(b"\x89PNG and so on")
    with pytest.raises(FormatError, match="letters GGUF"):
        transplant(donor, image, out)
    image.unlink()
    assert not list(out.parent.iterdir())


def test_a_target_that_llama_cpp_cannot_load_gets_no_draft(donor: Path, out: Path, tmp_path: Path) -> None:
    tokens = [*tiny.byte_letters(), "th", "th"]
    twice = tiny_gguf.write(tmp_path / "twice.gguf", tokens, types=[1] * 258, merges=["t h"])
    with pytest.raises(IncompatibleDraft, match="no token twice") as caught:
        transplant(donor, twice, out)
    assert caught.value.report.verdict == "incompatible"
    assert not list(out.parent.iterdir())
