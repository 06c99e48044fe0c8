"""transplant: what it takes, and what it refuses: in one message, with nothing left behind."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf_files
import numpy as np
import pytest
import tiny
import tiny_gguf
import tiny_models
import transplants as tp
from hub_server import Hub

from gguftools import goal, transplant
from gguftools.errors import (
    DiskFull,
    FormatError,
    GGUFToolsError,
    IncompatibleDraft,
    InputError,
    LoadAborted,
    NotFound,
    OutputExists,
    Unsupported,
)
from gguftools.header import read_header, read_tensor
from gguftools.verbs.transplant.target import target_side
from gguftools.vocab import Vocab


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tp.write_target(tmp_path_factory.mktemp("target"))


@pytest.fixture
def donor(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tp.donor_gguf(tmp_path / "in")


@pytest.fixture
def out(tmp_path: Path) -> Iterator[Path]:
    """The draft's place. What is beside it at the end are the files of this test and no others."""
    (tmp_path / "out").mkdir()
    yield tmp_path / "out" / "draft.gguf"
    assert not [path for path in (tmp_path / "out").iterdir() if path.name.startswith(".")]


def tensors(path: Path) -> list[gguf_files.Tensor]:
    header = read_header(path)
    return [gguf_files.Tensor(t.name, t.shape, t.type, bytes(read_tensor(header, t))) for t in header.tensors]


def keys(path: Path, **changes: Any) -> dict[str, Any]:
    """All keys of a GGUF for gguf_files, some of them changed (`llama__block_count`), or left out: None."""
    header = read_header(path)
    found: dict[str, Any] = {}
    for key, value in header.keys.items():
        plain = isinstance(value, str | int | float)
        found[key] = gguf_files.Typed(header.types[key], value if plain else list(value))
    for name, value in changes.items():
        found.pop(name.replace("__", "."))
        if value is not None:
            found[name.replace("__", ".")] = value
    return found


def test_a_split_donor_is_one_donor(donor: Path, target: Path, out: Path) -> None:
    transplant(donor, target, out)
    whole = out.read_bytes()
    rows = tensors(donor)
    shards = gguf_files.write_split(out.parent, "split", keys(donor), [rows[:4], rows[4:9], rows[9:]])
    transplant(shards[0], target, out, force=True)
    assert tp.body(out) == tp.body(donor)
    assert len(out.read_bytes()) == len(whole)


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


def test_what_is_read_is_never_replaced(tmp_path: Path, target: Path) -> None:
    donor = tp.donor_gguf(tmp_path)
    other = tmp_path / "target.gguf"
    transplant(donor, target, other)
    before = donor.read_bytes(), other.read_bytes()
    for kept in (donor, other):
        with pytest.raises(InputError, match="holds what is read"):
            transplant(donor, other, kept, force=True)
    transplant(donor, target, hf_out=tmp_path / "hf")
    with pytest.raises(InputError, match="holds what is read"):
        transplant(tmp_path / "hf", other, hf_out=tmp_path / "hf", force=True)
    with pytest.raises(InputError, match="holds what is read"):
        transplant(tmp_path / "hf", other, tmp_path / "hf" / "model.safetensors", force=True)
    assert (donor.read_bytes(), other.read_bytes()) == before
    transplant(tmp_path / "hf", other, tmp_path / "hf" / "draft.gguf")


def test_outputs_are_kept_without_force_and_one_is_needed(donor: Path, target: Path, out: Path) -> None:
    out.write_bytes(b"mine")
    with pytest.raises(OutputExists):
        transplant(donor, target, out)
    assert out.read_bytes() == b"mine"
    transplant(donor, target, out, force=True)
    with pytest.raises(OutputExists, match="not replaced"):
        transplant(donor, target, hf_out=donor.parent, force=True)
    with pytest.raises(InputError, match="no output"):
        transplant(donor, target)
    with pytest.raises(InputError, match="cannot be both"):
        transplant(donor, target, out.with_name("a"), hf_out=out.with_name("a"))


@pytest.mark.parametrize("hf", [False, True])
@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
def test_a_full_disk_or_ctrl_c_at_any_stage_leaves_nothing_behind(
    donor: Path, target: Path, out: Path, failure: BaseException, checkpoint: bool, hf: bool
) -> None:
    given = donor.parent / "donor" if checkpoint else donor
    goals: dict[str, Any] = {"hf_out": out.with_name("hf")} if hf else {"out": out}
    moments: list[str] = []
    transplant(given, target, **goals, force=True, progress=lambda stage, _: moments.append(stage.split()[0]))
    assert set(moments) >= {"read", "align", "rows", "check"} | ({"convert"} if checkpoint else set())
    for path in [path for path in out.parent.iterdir() if path.is_file()]:
        path.unlink()
    for at in range(1, len(moments) + 1, max(len(moments) // 12, 1)):
        calls = 0

        def progress(_stage: str, _part: float, at: int = at) -> None:
            nonlocal calls
            calls += 1
            if calls == at:
                raise failure

        before = sorted(path.name for path in out.parent.rglob("*"))
        with pytest.raises((DiskFull, OSError) if isinstance(failure, OSError) else KeyboardInterrupt):
            transplant(given, target, **goals, force=True, progress=progress)
        assert sorted(path.name for path in out.parent.rglob("*")) == before


def test_false_stops_it_at_every_stage_and_fractions_rise_to_one(
    donor: Path, target: Path, out: Path
) -> None:
    seen: dict[str, list[float]] = {}
    transplant(donor, target, out, progress=lambda stage, part: seen.setdefault(stage, []).append(part))
    assert list(seen) == ["read", "align", "count", "join", "donor reads", "rows", "check"]
    assert all(parts == sorted(parts) and parts[-1] == 1.0 for parts in seen.values())
    before = out.read_bytes()
    for stop in seen:
        with pytest.raises(LoadAborted, match="stopped"):
            transplant(donor, target, out, force=True, progress=lambda stage, part, stop=stop: stage != stop)
        assert out.read_bytes() == before


def test_too_little_space_is_noticed_before_the_first_byte(
    donor: Path, target: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = goal.shutil.disk_usage(out.parent)._replace(free=1_100_000)
    monkeypatch.setattr(goal.shutil, "disk_usage", lambda _path: free)
    shown: list[Any] = []
    with pytest.raises(DiskFull, match="are free"):
        transplant(donor, target, out, on_map=shown.append)
    assert not shown
    assert not list(out.parent.iterdir())


def test_the_room_for_all_that_lies_on_the_disk_at_once_is_looked_for_before_the_map_is_shown(
    donor: Path, target: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a folder too: its own files and the GGUF that it is made from, beside the draft."""
    both: dict[str, Any] = {"out": out, "hf_out": out.with_name("hf")}
    asked: list[tuple[Path, int]] = []
    most = 0

    def look(*_: object) -> None:
        nonlocal most
        most = max(most, sum(path.stat().st_size for path in out.parent.rglob("*") if path.is_file()))

    with monkeypatch.context() as patch:
        patch.setattr(goal, "check_room", lambda *one: asked.append(one))
        transplant(donor, target, **both, progress=look)
    (one, first), (other, second) = asked[:2]
    assert (one, first, other) == (out, out.stat().st_size, both["hf_out"])
    assert 0.6 * second < most <= second
    free = goal.shutil.disk_usage(out.parent)._replace(free=second + goal._SPARE - 1)
    monkeypatch.setattr(goal.shutil, "disk_usage", lambda _path: free)
    shown: list[Any] = []
    with pytest.raises(DiskFull, match="hf does not fit on its disk"):
        transplant(donor, target, **both, force=True, on_map=shown.append)
    assert not shown
    with monkeypatch.context() as patch:
        patch.setattr(goal, "same_disk", lambda *_: False)
        transplant(donor, target, **both, force=True)


def test_a_disk_that_fills_up_at_any_time_is_told_of_the_folder_that_was_asked_for(
    donor: Path, target: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither of the scratch GGUFs, of the draft and of a donor that is a checkpoint, nor of a part."""
    hf, usage, looks = out.with_name("hf"), goal.shutil.disk_usage(out.parent), 0
    source, told = donor.parent / "donor", []
    for last in range(20):
        looks = 0

        def free(_path: object, last: int = last) -> Any:
            nonlocal looks
            looks += 1
            return usage if looks <= last else usage._replace(free=0)

        with monkeypatch.context() as patch:
            patch.setattr(goal.shutil, "disk_usage", free)
            try:
                transplant(source, target, hf_out=hf, force=True)
            except DiskFull as error:
                told.append(error)
            else:
                break
    assert len(told) > 4
    assert {error.what.split(" ")[0] for error in told} <= {str(hf), f"{hf}.transplant.json"}
    assert not [error for error in told if ".part" in str(error) or "-o" in error.hint]
