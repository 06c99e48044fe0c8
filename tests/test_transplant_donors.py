"""transplant: what it takes as a donor, and what it refuses: in one message, with nothing left behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf_files
import numpy as np
import pytest
import tiny
import tiny_models
import transplants as tp
from hub_server import Hub
from transplants import keys, tensors

from gguftools import transplant
from gguftools.errors import FormatError, GGUFToolsError, InputError, NotFound, Unsupported


def test_a_split_donor_is_one_donor(donor: Path, target: Path, out: Path) -> None:
    transplant(donor, target, out)
    whole = out.read_bytes()
    rows = tensors(donor)
    shards = gguf_files.write_split(out.parent, "split", keys(donor), [rows[:4], rows[4:9], rows[9:]])
    transplant(shards[0], target, out, force=True)
    assert tp.body(out) == tp.body(donor)
    assert len(out.read_bytes()) == len(whole)


def test_a_gguf_on_the_hub_is_a_donor(hub: Hub, donor: Path, target: Path, out: Path) -> None:
    hub.repos["org/donor"] = {"small-Q8_0.gguf": donor.read_bytes()}
    assert transplant("org/donor:Q8_0", target, out).verdict == "identical"
    assert tp.body(out) == tp.body(donor)


def no_rows(donor: Path) -> None:
    gguf_files.write_gguf(donor, keys(donor), [t for t in tensors(donor) if t.name != "token_embd.weight"])


def too_few_rows(donor: Path) -> None:
    rows = [t for t in tensors(donor) if t.name != "output.weight"]
    rows.append(gguf_files.Tensor("output.weight", (64, 280), 0))
    gguf_files.write_gguf(donor, keys(donor), rows)


def odd_type(donor: Path) -> None:
    rows = [t for t in tensors(donor) if t.name != "output.weight"]
    gguf_files.write_gguf(donor, keys(donor), [*rows, gguf_files.Tensor("output.weight", (64, 288), 24)])


def poisoned(donor: Path) -> None:
    rows = {str(t.name): t for t in tensors(donor)}
    data = np.frombuffer(rows["output.weight"].data or b"", "<f4").copy()
    data[65:] = np.nan
    rows["output.weight"] = gguf_files.Tensor("output.weight", (64, 288), 0, data.tobytes())
    gguf_files.write_gguf(donor, keys(donor), list(rows.values()))


def no_layers(donor: Path) -> None:
    gguf_files.write_gguf(donor, keys(donor, llama__block_count=None), tensors(donor))


def vocabulary_alone(donor: Path) -> None:
    gguf_files.write_gguf(donor, keys(donor))


def cut_short(donor: Path) -> None:
    donor.write_bytes(donor.read_bytes()[:-4096])


def another_architecture(donor: Path) -> None:
    tiny_models.mamba(donor)


def no_vocabulary(donor: Path) -> None:
    tiny_models.llama(donor, 64)


FAULTS: dict[str, tuple[Callable[[Path], None], type[GGUFToolsError], str]] = {
    "no embedding": (no_rows, InputError, "no token_embd.weight"),
    "fewer rows than tokens": (too_few_rows, FormatError, r"\[64, 280\]"),
    "a type that nobody can widen": (odd_type, Unsupported, "output.weight: I8 cannot be widened"),
    "rows that are no numbers": (poisoned, InputError, "output.weight holds a NaN"),
    "no number of layers": (no_layers, FormatError, "block_count is missing"),
    "a vocabulary alone": (vocabulary_alone, InputError, "vocabulary alone"),
    "a file that ends early": (cut_short, FormatError, "the download may be incomplete"),
    "an architecture that cannot be one": (another_architecture, Unsupported, "possible are llama, qwen2"),
    "a model without tokens": (no_vocabulary, FormatError, "holds no vocabulary"),
    "no file": (Path.unlink, NotFound, "no such file"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_donor_that_cannot_be_one_is_refused_in_one_message(
    donor: Path, target: Path, out: Path, fault: str
) -> None:
    change, error, why = FAULTS[fault]
    change(donor)
    with pytest.raises(error, match=why) as caught:
        transplant(donor, target, out)
    assert caught.value.what
    assert caught.value.why or fault == "no file"
    assert not list(out.parent.iterdir())


def test_a_donor_and_a_target_in_the_wrong_order_are_explained(donor: Path, target: Path, out: Path) -> None:
    (target / "config.json").write_text('{"model_type": "llama"}')
    try:
        with pytest.raises(InputError, match="has no weights") as caught:
            transplant(target, donor, out)
        assert "DONOR TARGET" in caught.value.hint
    finally:
        (target / "config.json").unlink()


@pytest.mark.parametrize(
    "names", [[], ["notes.txt"], ["tiktoken.model"], ["model.safetensors"], ["config.json"]]
)
def test_a_folder_that_is_no_donor_is_told_what_one_needs(
    tmp_path: Path, target: Path, out: Path, names: list[str]
) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    for name in names:
        (folder / name).write_bytes(b"")
    with pytest.raises(InputError, match="cannot be a donor: it has no") as caught:
        transplant(folder, target, out)
    assert caught.value.why == "a donor's folder holds config.json and *.safetensors, or one GGUF"
    assert ("no config.json" in caught.value.what) == (names == ["model.safetensors"])


@pytest.mark.parametrize(
    ("scaling", "why"),
    [
        (tiny.LLAMA3, "rope_freqs.weight"),
        ({"rope_type": "linear", "factor": 4.0}, "scales its positions by 4"),
        ({**tiny.YARN, "attention_factor": 1.3}, "attn_factor"),
    ],
)
def test_a_donor_that_stretches_in_another_way_cannot_be_stretched_further(
    tmp_path: Path, target: Path, out: Path, scaling: dict[str, Any], why: str
) -> None:
    donor = tp.donor_gguf(tmp_path, {**tiny.LLAMA, "rope_scaling": scaling})
    with pytest.raises(Unsupported, match=why):
        transplant(donor, target, out, context=1024)
    assert not list(out.parent.iterdir())
    transplant(donor, target, out, context=200)
