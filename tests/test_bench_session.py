"""bench on tiny models: a stream's rounds, what the report holds, contexts that know nothing of others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny_session

from gguftools import Model, Session, bench, errors
from gguftools.verbs.bench import runs, same
from gguftools.verbs.bench.prompts import Prompt
from gguftools.verbs.bench.runs import Local, Run

PROMPTS = [
    Prompt(({"role": "user", "content": text},), kind) for text, kind in (("a b", "code"), ("c", "prose"))
]


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """A target that is its own draft."""
    path = tiny_session.write(tmp_path_factory.mktemp("twin") / "target.gguf")
    with Model.load(path, path, threads=1) as model:
        yield model


def measure(model: Model, **options: Any) -> Any:
    return bench(model, prompts=PROMPTS, max_tokens=24, draft_p_min=0.0, **options)


def test_the_rounds_of_a_stream_add_up_to_its_statistics(session: Session) -> None:
    stream = session.generate("the thing in", max_tokens=40, temperature=0, draft_tokens=3, draft_p_min=0.0)
    stats = stream.result().stats
    assert len(stream.rounds) == stats.verify_steps
    assert sum(one.n_draft for one in stream.rounds) == stats.draft_n > 0
    assert sum(one.n_accepted for one in stream.rounds) == stats.draft_n_accepted
    assert sum(one.n_accepted + 1 for one in stream.rounds) == stats.predicted_n
    assert all(one.source == ("model" if one.n_draft else "") for one in stream.rounds)
    spent = sum(one.target_us + one.draft_us + one.select_us for one in stream.rounds)
    assert 0 < spent / 1000 <= stats.predicted_ms


def test_rounds_without_a_draft_have_no_source(session: Session) -> None:
    stream = session.generate("the", max_tokens=5, temperature=0, draft_tokens=0)
    stream.result()
    assert [(one.n_draft, one.n_accepted, one.source) for one in stream.rounds] == [(0, 0, "")] * 5
    assert all(one.draft_us == 0 < one.target_us for one in stream.rounds)


def test_a_draft_like_the_target_is_accepted_and_writes_the_same(twin: Model) -> None:
    found = measure(twin, draft_tokens=3).to_json()
    assert found["target"] == "target.gguf"
    assert found["draft"]["draft_tokens"] == 3
    assert found["plain"]["tokens"] == found["draft"]["tokens"] > 0
    assert found["acceptance_rate"] > 0.95
    assert found["mean_acceptance_length"] > 3
    assert len(found["acceptance_by_position"]) == 3
    assert found["same_text"] is True
    assert {1, 4} <= {cost["width"] for cost in found["cost_by_width"]}
    assert sum(found["time_share"].values()) == pytest.approx(1, abs=0.001)
    assert len(found["draft_length_over_time"]) == 10
    assert found["sources"]["model"]["rounds"] > 0
    assert found["sweep"] == []
    assert [one["kind"] for one in found["prompts"]] == ["code", "prose"]
    assert all(one["speedup"] > 0 for one in found["prompts"])


def test_a_stranger_as_the_draft_changes_no_text(model: Model) -> None:
    found = measure(model, repeats=2)
    assert found.draft.draft_tokens == "auto"
    assert found.same_text is True
    assert [len(repeats) for repeats in found.plain.runs] == [2, 2]


def test_a_draft_that_fails_is_noted(twin: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = Local.way

    def failing(self: Local, length: Any) -> runs.Ask:
        way = ask(self, length)
        return lambda prompt, most: replace(way(prompt, most), draft_failed="no room" if length else "")

    monkeypatch.setattr(Local, "way", failing)
    assert measure(twin).notes == ["the draft was switched off in 2 answers: no room"]


def test_a_sweep_measures_each_length_beside_the_chosen_one(twin: Model) -> None:
    found = measure(twin, draft_tokens=2, sweep=[0, 4, 2, 1])
    assert [side.draft_tokens for side in found.sweep] == [0, 1, 2, 4]
    lengths = {side.draft_tokens: side.acceptance.mean_length for side in found.sweep}
    assert lengths[0] == 1 < lengths[1] < lengths[2] < lengths[4]
    swept = found.to_json()["sweep"]
    assert swept[0]["speedup"] == 1
    assert swept[2]["tokens_per_second"] == found.to_json()["draft"]["tokens_per_second"]


def test_without_a_draft_the_target_alone_is_measured(tmp_path: Path) -> None:
    with Model.load(tiny_session.write(tmp_path / "t.gguf"), threads=1) as model:
        found = measure(model).to_json()
    assert found["plain"]["tokens_per_second"] > 0
    assert found["draft"] is found["speedup"] is found["same_text"] is found["time_share"] is None
    assert found["advice"] == []


def test_a_model_without_a_template_gets_the_bare_text(tmp_path: Path) -> None:
    plain = tiny_session.CONTROL[:1]
    with Model.load(
        tiny_session.write(tmp_path / "t.gguf", template=None, specials=plain), threads=1
    ) as model:
        local = Local(model, [Prompt(({"role": "user", "content": "in"},))], 4, None)
        assert local.ids == [model.encoder.encode("in")]


def test_contexts_are_as_large_as_the_longest_prompt_needs_and_new_each_time(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    session = model.session
    monkeypatch.setattr(model, "session", lambda n_ctx: made.append(n_ctx) or session(n_ctx=n_ctx))
    measure(model)
    assert set(made) == {256}
    assert len(made) == 1 + 2 + 4  # one to ask for a draft, each way's warm-up, two prompts in two ways
    cached = {run.rounds[0].n_draft for run in [measure(model).plain.runs[0][0]]}
    assert cached == {0}
    assert bench(model, prompts=["in"], max_tokens=4, n_ctx=300).settings["n_ctx"] == 300


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"repeats": 0}, "repeats is 0"),
        ({"draft_tokens": 17}, "draft_tokens is 17"),
        ({"sweep": [1, -1]}, "draft_tokens is -1"),
        ({"sweep": ["all"]}, "draft_tokens is 'all'"),
        ({"temperature": -1}, "temperature is -1"),
    ],
)
def test_senseless_values_are_refused_before_anything_is_measured(
    model: Model, options: dict[str, Any], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "session", None)
    with pytest.raises(errors.InputError, match=why):
        measure(model, **options)
    for more, reason in (({"max_tokens": 1}, "at least 2 tokens"), ({"prompts": []}, "no prompt")):
        with pytest.raises(errors.InputError, match=reason):
            bench(model, **more)


def test_a_sampled_text_that_parts_is_unknown_not_wrong(model: Model) -> None:
    one, other = Run("ab", 2, 1, 1, tokens=(97, 98)), Run("ac", 2, 1, 1, tokens=(97, 99))
    ids = model.encoder.encode("the")
    assert same.compare_tokens(model, 64, ids, one, other, scored=False).verdict == "unknown"
    assert same.compare_tokens(model, 64, ids, one, one, scored=False).verdict == "equal"


def test_greedy_texts_that_part_are_judged_by_the_target_s_own_scores(model: Model) -> None:
    ids = model.encoder.encode("the thing")
    with model.session(n_ctx=64) as session:
        tokens = session.generate(ids, max_tokens=3, temperature=0, draft_tokens=0).result().tokens
    row = same.scores(model, 64, ids, tokens[:2])
    assert int(row.argmax()) == tokens[2]
    worst = int(row.argmin())
    wrong = Run("", 3, 1, 1, tokens=(*tokens[:2], worst))
    match = same.compare_tokens(model, 64, ids, Run("", 3, 1, 1, tokens=tokens), wrong, scored=True)
    assert (match.verdict, match.n_same) == ("different", 2)
    assert match.gap == pytest.approx(float(row.max() - row.min()))


def test_weights_are_locked_only_where_they_fit(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    nbytes = model.header.path.stat().st_size
    for free, mode in ((0, "auto"), (nbytes, "auto"), (2 * nbytes, "mlock")):
        monkeypatch.setattr(runs.hardware, "free_memory", lambda free=free: free)
        assert runs.load_mode(model.header.path) == mode
