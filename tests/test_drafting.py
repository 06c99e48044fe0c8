"""What a request may say about drafting: sources, lengths, rules; what is learned; log probabilities."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lowlevel
import numpy as np
import pytest
import tiny_session

from gguftools import Model, Session, _native
from gguftools.errors import InputError
from gguftools.session import learned
from gguftools.session.drafting import BETTER, ENOUGH, drafting

pytestmark = pytest.mark.usefixtures("real_api")

SCORES = (0, dict.fromkeys(_native.RULES, 0.0))
HAS: Any = {"model": True, "ngram": True, "draws": True, "scores": SCORES}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_session.write(tmp_path_factory.mktemp("drafting") / "target.gguf")


@pytest.fixture(scope="module")
def twin(target: Path) -> Iterator[Model]:
    """A target that is its own draft."""
    with Model.load(target, target, threads=1) as model:
        yield model


def test_without_a_word_as_many_tokens_are_drafted_as_pay_by_the_coupled_rule() -> None:
    found = drafting(None, None, None, **HAS)
    assert (found.length, found.p_min, found.rule) == (_native.AUTO, 0.0, "coupled")
    assert found.is_auto
    assert found == drafting("auto", None, None, **HAS)


def test_a_fixed_length_is_the_models_and_stops_at_a_probability() -> None:
    found = drafting(3, None, None, **HAS)
    assert (found.length, found.p_min, found.model, found.ngram) == (3, 0.5, True, False)
    assert drafting(3, None, None, **{**HAS, "model": False}).ngram
    off = drafting(0, None, None, **HAS)
    assert not (off.model)
    assert not (off.ngram)
    assert not (off.is_auto)


@pytest.mark.parametrize(("places", "reject", "rule"), [
    (ENOUGH, 0.6 + 2 * BETTER, "reject"), (ENOUGH - 1, 0.9, "coupled"), (ENOUGH, 0.6 + BETTER / 2, "coupled"),
])  # fmt: skip
def test_auto_leaves_coupled_only_for_a_rule_that_was_clearly_better(
    places: int, reject: float, rule: str
) -> None:
    scores = (places, {"match": 0.5, "coupled": 0.6, "reject": reject})
    found = drafting("auto", None, "auto", **{**HAS, "scores": scores})
    assert (found.rule, found.compares) == (rule, True)


def test_where_the_engine_does_not_draw_the_rule_is_match() -> None:
    assert drafting(None, None, "reject", **{**HAS, "draws": False}).rule == "match"


@pytest.mark.parametrize("options", [
    {"accept": "always"}, {"draft_tokens": "all"}, {"draft_tokens": True}, {"logprobs": 21}, {"logprobs": -1},
])  # fmt: skip
def test_a_senseless_wish_is_refused_and_frees_the_session(session: Session, options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        session.generate("a", **options)
    session.generate("a", max_tokens=1).result()


def test_the_statistics_name_the_rule_where_there_is_a_choice(twin: Model) -> None:
    with twin.session(n_ctx=256) as session:
        for rule in _native.RULES:
            stats = session.generate("the", max_tokens=9, temperature=1, accept=rule).result().stats
            assert stats.accept == rule
        assert session.generate("the", max_tokens=3, temperature=0).result().stats.accept == ""
        grammar = 'root ::= "ab"'
        assert session.generate("the", max_tokens=3, grammar=grammar).result().stats.accept == ""


def test_auto_compares_the_rules_and_says_which_it_took(twin: Model) -> None:
    with twin.session(n_ctx=256) as session:
        for seed in range(3):
            options: Any = {"temperature": 1.2, "accept": "auto", "draft_tokens": 4, "draft_p_min": 0}
            stats = session.generate("the", max_tokens=80, seed=seed, **options).result().stats
            assert stats.accept in _native.RULES
        places, shares = session.engine.scores
    assert places >= ENOUGH
    assert shares["coupled"] == pytest.approx(1)  # draft and target are the same
    assert shares["reject"] == pytest.approx(1, abs=1e-3)
    assert shares["match"] < 1


def test_ngrams_alone_draft_and_change_no_text(target: Path) -> None:
    prompt = list(b"abcabcabcabcabc")
    with Model.load(target, threads=1, ngram=True) as model, model.session(n_ctx=512) as session:
        plain = session.generate(prompt, max_tokens=200, temperature=0, draft_tokens=0).result()
        drafted = session.generate(prompt, max_tokens=200, temperature=0, draft_tokens=4, draft_p_min=0)
        assert drafted.result().tokens == plain.tokens
        stats = drafted.stats
        assert stats.ngram_n == stats.draft_n > 0
        assert stats.ngram_n_accepted == stats.draft_n_accepted
        assert {one.source for one in drafted.rounds} <= {"", "ngram"}


def test_a_session_without_a_source_drafts_nothing(target: Path) -> None:
    with Model.load(target, threads=1) as model, model.session(n_ctx=256) as session:
        assert not session.has_draft
        assert session.generate("abab" * 9, max_tokens=40, temperature=0).result().stats.draft_n == 0
    with Model.load(target, threads=1) as model, model.session(n_ctx=256, ngram=True) as session:
        assert session.has_draft


def test_log_probabilities_are_the_targets_own_for_accepted_and_other_tokens(
    model: Model, target: Path
) -> None:
    options: Any = {"temperature": 1.5, "seed": 3, "top_k": 20, "repeat_penalty": 1.2, "draft_tokens": 4}
    with model.session(n_ctx=256) as session:
        stream = session.generate("the", max_tokens=30, draft_p_min=0, logprobs=5, **options)
        tokens = [token for token in stream if token.id >= 0]
        prompt = list(stream.prompt_tokens)
        path = model.header.path
    ids = [token.id for token in tokens]
    rows = lowlevel.logits(path, [*prompt, *ids])[len(prompt) - 1 : -1].astype(float)
    rows -= rows.max(1, keepdims=True)
    rows -= np.log(np.exp(rows).sum(1, keepdims=True))
    assert len(tokens) == 30
    for token, row in zip(tokens, rows, strict=True):
        assert token.logprob == pytest.approx(row[token.id], abs=0.02)  # the session's cache is in F16
        assert [p for _, p in token.top_logprobs] == sorted((p for _, p in token.top_logprobs), reverse=True)
        for other, p in token.top_logprobs:
            assert p == pytest.approx(row[other], abs=0.02)
        assert token.top_logprobs[0][1] == pytest.approx(row.max(), abs=0.02)


def test_nobody_gets_log_probabilities_unasked(session: Session) -> None:
    token = next(iter(session.generate("the", max_tokens=2)))
    assert (token.logprob, token.top_logprobs) == (None, ())


# What is learned.


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(learned, "user_cache_path", lambda name: tmp_path / name)
    return tmp_path / "gguftools" / "learned"


def ask(target: Path, **options: Any) -> list[float]:
    with Model.load(target, target, threads=1, **options) as model, model.session(n_ctx=256) as session:
        session.generate("the", max_tokens=40, temperature=0).result()
        return session.engine.learned


def test_costs_are_kept_for_the_next_process(target: Path, cache: Path) -> None:
    first = ask(target)
    (file,) = cache.iterdir()
    kept = json.loads(file.read_text("utf-8"))
    assert kept == {"schema": learned.SCHEMA, "learned": first}
    with Model.load(target, target, threads=1) as model, model.session(n_ctx=256) as session:
        session.learned.prepare()
        assert session.engine.learned == pytest.approx(first)


def test_with_remember_off_no_file_is_made(target: Path, cache: Path) -> None:
    ask(target, remember=False)
    assert not cache.exists()


DAMAGED = (
    "", "{", "[]", '{"schema": 9, "learned": [1]}', '{"schema": 1, "learned": [1, 2]}',
    '{"schema": 1, "learned": ["x"]}', '{"schema": 1}',
)  # fmt: skip


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_file_is_as_good_as_none(target: Path, cache: Path, text: str) -> None:
    ask(target)
    (file,) = cache.iterdir()
    file.write_text(text)
    found = ask(target)
    assert json.loads(file.read_text("utf-8"))["learned"] == found


def test_a_second_session_of_a_model_begins_with_what_the_first_has_learned(
    target: Path, cache: Path
) -> None:
    with Model.load(target, target, threads=1, remember=False) as model:
        with model.session(n_ctx=256) as session:
            session.generate("the", max_tokens=40, temperature=0).result()
            first = session.engine.learned
        with model.session(n_ctx=256) as session:
            session.learned.prepare()
            assert session.engine.learned == pytest.approx(first)


def test_fixed_lengths_measure_nothing_beforehand(target: Path, cache: Path) -> None:
    with Model.load(target, target, threads=1) as model, model.session(n_ctx=256) as session:
        session.generate("the", max_tokens=9, temperature=0, draft_tokens=3).result()
        decodes = session.engine.counters["target_decodes"]
    assert decodes < 12
    assert not cache.exists()
