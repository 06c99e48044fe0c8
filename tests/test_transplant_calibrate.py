"""transplant --calibrate and --evaluate: what texts teach."""

from __future__ import annotations

import json
import logging
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tiny
import transplants as tp
from command_line import in_process

from gguftools import Model, transplant
from gguftools.cli import ui
from gguftools.verbs import transplant as verb
from gguftools.verbs.transplant import text as texts
from gguftools.verbs.transplant.align import Kind
from gguftools.verbs.transplant.donor import Donor
from gguftools.verbs.transplant.evaluate import Size
from gguftools.verbs.transplant.evaluate.baseline import BaselineRows
from gguftools.verbs.transplant.evaluate.losses import judge, nats_per_byte
from gguftools.verbs.transplant.evaluate.scoring import Head
from gguftools.verbs.transplant.evaluate.setup import Setup
from gguftools.verbs.transplant.evaluate.texts import held_out
from gguftools.vocab import Vocab

OWN = "one of the ones on one hone\n" * 200


@pytest.fixture
def donor(tmp_path: Path) -> Path:
    return tp.donor_gguf(tmp_path, tiny.QWEN2)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.txt"
    path.write_text(OWN)
    return path


def shares(path: Path) -> dict[bytes, float]:
    vocab = Vocab.from_gguf(path)
    bias = tp.matrix(path, "output.bias")
    return {vocab.tokens[i]: float(bias[i]) for i in np.flatnonzero(bias > -1000)}


def named(text: Path) -> str:
    """What a draft and its report call a text: its name and a digest of what it says."""
    return f"{text.name} sha256:{sha256(text.read_bytes().strip()).hexdigest()}"


# Counts.


def test_what_a_text_of_ones_own_repeats_gets_a_larger_share(
    donor: Path, target: Path, out: Path, own: Path
) -> None:
    plain = transplant(donor, target, out)
    before = shares(out)
    report = transplant(donor, target, out, calibrate=own, calibrate_tokens=1000, force=True)
    after = shares(out)
    assert after[b"one"] > before[b"one"] + 1
    assert after[b"o"] < before[b"o"]
    for coverage in (plain.coverage, report.coverage):
        assert coverage is not None
        assert list(coverage) == ["same", "several", "prefix", "inside"]
        assert sum(coverage.values()) == pytest.approx(1, abs=1e-4)
    assert report.coverage != plain.coverage
    assert (report.options["calibrate"], report.options["calibrate_tokens"]) == (named(own), 1000)
    assert str(own.parent).encode() not in out.read_bytes()  # a draft tells nothing of its maker's disk
    assert report.ties == 0


def test_all_the_text_there_is_gives_other_shares_than_a_part_of_it(
    donor: Path, target: Path, tmp_path: Path, full_texts: None
) -> None:
    assert texts.MAX_COUNTED == 2_000_000
    transplant(donor, target, tmp_path / "a.gguf")
    the = shares(tmp_path / "a.gguf")
    assert the[b"the"] > the[b"h"] - 10
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(texts, "MAX_COUNTED", 20_000)
        transplant(donor, target, tmp_path / "b.gguf")
    assert the != shares(tmp_path / "b.gguf")


# The donor's pass.


def test_auto_scores_tokens_of_several_pieces_by_their_second_too(
    donor: Path, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tp.watched(monkeypatch)
    stages: list[str] = []
    head = {}
    for name, options in {"plain": {}, "auto": {"calibrate": "auto", "calibrate_tokens": 1000}}.items():
        transplant(
            donor,
            target,
            tmp_path / f"{name}.gguf",
            outtype="f32",
            progress=lambda stage, _: stages.append(stage),
            **options,  # type: ignore[arg-type]
        )
        head[name] = tp.matrix(tmp_path / f"{name}.gguf", "output.weight")
    several = tp.aligned(target, donor).kind == Kind.PIECES
    assert several.sum() > 1
    assert (head["plain"][~several] == head["auto"][~several]).all()
    assert (head["plain"][several] != head["auto"][several]).any(1).all()
    assert seen.rows._lens is not None
    assert list(dict.fromkeys(stages)) == ["read", "align", "count", "join", "rows", "check", "donor reads"]


def test_the_donor_may_write_the_text(
    donor: Path, target: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = SimpleNamespace(load=partial(Model.load, threads=1))
    monkeypatch.setattr("gguftools.verbs.transplant.written.Model", one)
    seen: list[str] = []
    options: dict[str, Any] = {"calibrate": "donor", "calibrate_tokens": 1000}
    report = transplant(donor, target, out, progress=lambda stage, _: seen.append(stage), **options)
    assert "writing" in seen
    assert report.verdict == "identical"
    assert report.coverage is not None


def test_a_text_that_is_too_short_for_a_fit_is_counted_and_that_is_said(
    target: Path, tmp_path: Path, own: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = {**tiny.QWEN2, "hidden_size": 512, "head_dim": 128}
    with caplog.at_level(logging.WARNING):
        transplant(tp.donor_gguf(tmp_path, config), target, tmp_path / "d.gguf", calibrate=own)
    assert "2,048 of the donor's tokens are needed" in caplog.text or "too short" not in caplog.text


# The command.


def test_the_command_calibrates_on_a_file_and_evaluates(
    donor: Path,
    target: Path,
    out: Path,
    own: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ui._console.cache_clear()
    size = Size(nbytes=120, places=2, floor=0.05, answers=2)
    monkeypatch.setattr(verb, "measure", partial(verb.measure, size=size, threads=1))  # type: ignore[attr-defined]
    args = ["transplant", str(donor), str(target), "-o", str(out)]
    more = ["--calibrate", str(own), "--calibrate-tokens", "1000", "--evaluate"]
    code, said, err = in_process(capsys, *args, *more, "--json")
    assert code == 0, err
    report = json.loads(said)
    assert report["options"]["calibrate"] == named(own)
    assert set(report["evaluation"]["kinds"]) == {"english", "code", "numbers", "chinese"}
    assert report["evaluation"]["control"]["draft"] == 0
    assert sum(report["coverage"].values()) == pytest.approx(1, abs=1e-4)
    code, said, _ = in_process(capsys, *args, *more, "--force")
    assert code == 0
    assert "coverage" in said
    assert "control tokens 0 proposed" in " ".join(said.split())
    assert in_process(capsys, *args, "--calibrate-tokens", "7")[0] == 2
    code, _, err = in_process(capsys, *args, "--force", "--calibrate", str(own) + "x")
    assert (code, err.splitlines()[0][:15]) == (1, "error: there is")


# A real one.


def test_calibrated_smollm2_reads_kimis_tokens_with_fewer_nats_than_by_the_known_rule(
    smollm2: Path, kimi_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tp.watched(monkeypatch)
    found: dict[str, dict[str, float]] = {}

    def measure(donor: Donor, target: Vocab, alignment: Any, mapped: Any, rows: Any, **_: Any) -> Any:
        with Setup.open(donor, target, alignment, mapped, 1) as setup:
            for side, made in (("draft", rows), ("baseline", BaselineRows(target, donor, setup.theirs))):
                head = Head(made)
                for kind in ("english", "numbers"):
                    spelled = setup.spell(setup.ours, held_out(kind, 800))
                    judged = judge(setup.read(made, spelled, lambda _: None), head)
                    found.setdefault(kind, {})[side] = nats_per_byte(judged)
        return None

    monkeypatch.setattr(verb, "_measured", lambda draft, _: measure(*facts(draft)))
    report = transplant(
        smollm2, kimi_folder, tmp_path / "d.gguf", calibrate="auto", calibrate_tokens=6000, evaluate=True
    )
    assert (report.architecture, report.ties, report.verdict) == ("qwen2", 0, "identical")
    assert seen.rows._lens is not None
    for nats in found.values():
        assert nats["draft"] < nats["baseline"] - 0.02


def facts(draft: Any) -> tuple[Any, ...]:
    return draft.donor, draft.target.vocab, draft.alignment, draft.mapped, draft.rows
