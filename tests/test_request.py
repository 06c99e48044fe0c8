"""One request: its limits, its arguments, its seed, its statistics, its grammar."""

from __future__ import annotations

import pytest
import tiny_session

from gguftools import Model, Session
from gguftools.errors import ContextFull, InputError
from gguftools.session.settings import warn_of_excess

pytestmark = pytest.mark.usefixtures("real_api")


def test_a_full_context_ends_at_the_exact_token_with_and_without_a_draft(model: Model) -> None:
    with model.session(n_ctx=20) as session:
        for options in ({"draft_tokens": 0}, {"draft_tokens": 16, "draft_p_min": 0.0}):
            result = session.generate([97] * 7, temperature=0, **options).result()  # type: ignore[arg-type]
            assert len(result.tokens) == 13
            assert result.finish_reason == "length"
        with pytest.raises(ContextFull):
            session.generate([97] * 20)
        assert len(session.generate([97] * 19, temperature=0).result().tokens) == 1


def test_max_tokens_zero_gives_nothing(session: Session) -> None:
    result = session.generate("the", max_tokens=0).result()
    assert (result.tokens, result.finish_reason) == ((), "length")
    tiny_session.still_works(session)


@pytest.mark.parametrize(
    "options",
    [
        {"prompt": ""},
        {"prompt": []},
        {"prompt": b"the"},
        {"prompt": [-1]},
        {"prompt": [10**6]},
        {"max_tokens": -1},
        {"temperature": "hot"},
        {"stop": ""},
        {"seed": -5},
        {"draft_tokens": 17},
        {"draft_tokens": -1},
        {"draft_p_min": 2},
    ],
)
def test_a_senseless_argument_is_refused_and_frees_the_session(
    session: Session, options: dict[str, object]
) -> None:
    with pytest.raises(InputError):
        session.generate(**{"prompt": "a", **options})  # type: ignore[arg-type]
    session.generate("a", max_tokens=1).result()


def test_an_unknown_argument_of_chat_is_a_type_error(session: Session) -> None:
    with pytest.raises(TypeError, match="temprature"):
        session.chat([{"role": "user", "content": "a"}], temprature=1)
    session.generate("a", max_tokens=1).result()


def test_a_seed_gives_the_same_text_with_a_draft_without_and_again(session: Session) -> None:
    def text(seed: int | None, draft_tokens: int) -> tuple[int, ...]:
        options = {"temperature": 0.7, "top_k": 20, "max_tokens": 60, "draft_tokens": draft_tokens}
        return session.generate("the", seed=seed, draft_p_min=0, **options).result().tokens  # type: ignore[arg-type]

    assert text(11, 0) == text(11, 0) == text(11, 5) == text(11, 12)
    assert text(12, 5) != text(11, 5)
    assert text(None, 0) != text(None, 0)


def test_the_seed_and_the_source_of_sampling_are_told(session: Session) -> None:
    stats = session.generate("a", max_tokens=1, temperature=0.5).result().stats
    assert stats.seed is not None
    assert (
        stats.sampling_source
        == "temperature 0.5 (argument), top_k 40 (default), top_p 0.95 (default), min_p 0 (default)"
    )
    assert session.generate("a", max_tokens=1, seed=stats.seed).result().stats.seed == stats.seed
    assert session.generate("a", max_tokens=1, temperature=0).result().stats.seed is None


def test_stats_count_what_happened(session: Session) -> None:
    stream = session.generate("the", max_tokens=30, temperature=0, draft_tokens=5, draft_p_min=0)
    tokens = list(stream)
    stats = stream.stats
    assert stats.predicted_n == len(tokens) == 30
    assert stats.draft_n_accepted == sum(token.from_draft for token in tokens)
    assert stats.draft_n >= stats.draft_n_accepted
    assert 0 < stats.verify_steps <= 30
    assert stats.predicted_ms > 0
    assert stats.prompt_n + stats.cache_n == len(stream.prompt_tokens)
    assert stats.to_json()["acceptance_rate"] == pytest.approx(stats.acceptance_rate, abs=1e-3)


def test_a_shared_prefix_is_reused_on_both_contexts(session: Session) -> None:
    prompt = list(range(97, 117)) * 5
    first = session.generate(prompt, max_tokens=8, temperature=0).result()
    before = session.engine.counters["draft_decodes"]
    second = session.generate(
        [*prompt, *first.tokens, 97], max_tokens=1, temperature=0, draft_tokens=5, draft_p_min=0
    ).result()
    assert second.stats.cache_n >= len(prompt) + 7
    assert session.engine.counters["draft_decodes"] - before <= 3


def test_a_grammar_holds_with_and_without_a_draft(session: Session) -> None:
    grammar = 'root ::= ("ab" | "cd") [0-9] [0-9]'
    texts = {
        session.generate("q", grammar=grammar, draft_tokens=n, draft_p_min=0, **options).result().text  # type: ignore[arg-type]
        for n in (0, 5)
        for options in ({"temperature": 0}, {"temperature": 0.0, "presence_penalty": 0.5})
    }
    assert all(text[:2] in ("ab", "cd") and text[2:].isdigit() and len(text) == 4 for text in texts)
    drawn = [session.generate("q", grammar=grammar, seed=4, draft_tokens=n).result().text for n in (0, 5)]
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("prompt", [None, 5, [1.5], {"role": "user"}])
def test_a_prompt_that_is_neither_text_nor_ids_is_named(session: Session, prompt: object) -> None:
    with pytest.raises(InputError, match="it takes text or token ids"):
        session.generate(prompt)  # type: ignore[arg-type]
    tiny_session.still_works(session)


@pytest.mark.parametrize("messages", [None, "hi", {"role": "user", "content": "hi"}, [{"role": "user"}]])
def test_a_conversation_that_is_none_is_named(session: Session, messages: object) -> None:
    with pytest.raises(InputError, match="content"):
        session.chat(messages)  # type: ignore[arg-type]
    tiny_session.still_works(session)


@pytest.mark.parametrize("options", [{"n_ctx": "x"}, {"n_ctx": 0}, {"draft_n_ctx": -1}, {"n_ctx": 1.5}])
def test_a_context_s_size_is_checked_by_its_own_name(model: Model, options: dict[str, object]) -> None:
    (name,) = options
    with pytest.raises(InputError, match=f"^{name} is .*\n?it takes a whole number from 1"):
        model.session(**options)  # type: ignore[arg-type]


def test_more_context_than_the_training_and_more_threads_than_processors_are_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warn_of_excess(8192, 8192, 1)
    assert not caplog.records
    warn_of_excess(8193, 8192, 512)
    assert [record.getMessage().split()[0] for record in caplog.records] == ["n_ctx", "threads"]
