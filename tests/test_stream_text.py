"""A stream's text on a scripted engine: stop strings, end tokens, thinking, errors."""

from __future__ import annotations

import pytest
import tiny_session

from gguftools import Session, Stream, _native
from gguftools.errors import DecodeError

EOG, OPEN, CLOSE = 260, 261, 262

pytestmark = pytest.mark.usefixtures("real_api")


class Scripted:
    """An engine that gives prepared blocks; `error` is raised when they are used up."""

    def __init__(self, *blocks: list[int], error: Exception | None = None) -> None:
        self.blocks = [[(token, i > 0) for i, token in enumerate(block)] for block in blocks]
        self.error = error
        self.truncated: list[int] = []
        self.draft_failed = 0
        self.cached = (0, 0)
        names = ("n_draft", "n_accepted", "verify_steps", "target_us", "draft_us", "select_us")
        kinds = {name: {"model": 0, "ngram": 0} for name in names[:2]}
        self.counters = {**dict.fromkeys(names, 0), "by_kind": kinds}
        self.scores = (0, dict.fromkeys(_native.RULES, 0.0))
        self.learned: list[float] = []
        self.n_history = 1

    def begin(self, tokens: list[int], **_: object) -> int:
        return 0

    def prefill(self) -> tuple[int, int]:
        return 1, 1

    def step(self, _n: int, _p: float, most: int) -> list[tuple[int, bool]]:
        if not self.blocks and self.error is not None:
            raise self.error
        return self.blocks.pop(0)[:most] if self.blocks else []

    def truncate(self, n: int) -> None:
        self.truncated.append(n)

    def cancel(self) -> None: ...
    def clear_cancel(self) -> None: ...
    def set_draft(self, model: bool, ngram: bool) -> None: ...


def scripted(session: Session, *blocks: str | list[int], **options: object) -> tuple[Scripted, Stream]:
    ids = [list(block.encode()) if isinstance(block, str) else block for block in blocks]
    error = options.pop("error", None)
    engine = Scripted(*ids, error=error)  # type: ignore[arg-type]
    session.engine = engine  # type: ignore[assignment]
    prompt = options.pop("prompt", "q")
    return engine, session.generate(prompt, **options)  # type: ignore[arg-type]


def test_a_stop_string_across_blocks_ends_at_its_last_token_and_cuts_history_there(session: Session) -> None:
    engine, stream = scripted(session, "ab", "<E", "ND", ">xyz", stop="<END>")
    assert [token.text for token in stream] == ["a", "b", "", "", "", "", ""]
    result = stream.result()
    assert (result.text, result.finish_reason) == ("ab", "stop")
    assert bytes(result.tokens) == b"ab<END>"
    assert engine.truncated == [1 + 7]


def test_a_stop_string_inside_one_block_drops_what_follows(session: Session) -> None:
    engine, stream = scripted(session, "ab<END>xyz", stop=["nothing", "<END>"])
    assert stream.result().text == "ab"
    assert engine.truncated == [8]


def test_an_end_token_is_the_last_token_and_has_no_text(session: Session) -> None:
    _, stream = scripted(session, [97, EOG])
    assert [(token.id, token.text) for token in stream] == [(97, "a"), (EOG, "")]
    assert stream.finish_reason == "stop"
    assert stream.result().tokens == (97, EOG)


def test_the_end_token_carries_what_was_held_back(session: Session) -> None:
    _, stream = scripted(session, [*b"a<E", EOG], stop="<END>")
    assert [token.text for token in stream] == ["a", "", "", "<E"]
    assert stream.result().text == "a<E"


def test_the_last_token_within_max_tokens_carries_the_rest(session: Session) -> None:
    _, stream = scripted(session, "ab<", "Exyz", stop="<END>", max_tokens=4)
    assert [token.text for token in stream] == ["a", "b", "", "<E"]
    assert stream.finish_reason == "length"


def test_thinking_tokens_are_marked_and_kept_apart(session: Session) -> None:
    _, stream = scripted(session, [OPEN], "hm", "m", [CLOSE, 10, 10, 97], [EOG])
    tokens = list(stream)
    assert [(token.text, token.thinking) for token in tokens if token.text] == [
        ("h", True),
        ("m", True),
        ("m", True),
        ("a", False),
    ]
    result = stream.result()
    assert (result.text, result.reasoning) == ("a", "hmm")


def test_thinking_that_is_written_out_is_kept_apart_too(session: Session) -> None:
    _, stream = scripted(session, "<thi", "nk>hm</th", "ink>a", [EOG])
    assert (stream.result().text, stream.result().reasoning) == ("a", "hm")


@pytest.mark.parametrize("prompt", ["q<think>\n", [97, OPEN]])
def test_a_prompt_may_end_inside_thinking(session: Session, prompt: object) -> None:
    _, stream = scripted(session, "hm", [CLOSE, 97, EOG], prompt=prompt)
    assert (stream.result().text, stream.result().reasoning) == ("a", "hm")


def test_a_failed_decode_is_an_error_with_its_code_and_frees_the_session(session: Session) -> None:
    real = session.engine
    _, stream = scripted(session, "ab", error=_native.EngineError(-3))
    assert [next(stream).text, next(stream).text] == ["a", "b"]
    with pytest.raises(DecodeError, match="GT_FATAL_COMPUTE") as caught:
        next(stream)
    assert caught.value.code == -3
    with pytest.raises(DecodeError):
        stream.result()
    session.engine = real
    tiny_session.still_works(session)


def test_ctrl_c_in_a_round_ends_the_request_and_keeps_what_there_was(session: Session) -> None:
    real = session.engine
    _, stream = scripted(session, "ab", error=KeyboardInterrupt())  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        list(stream)
    assert stream.result().text == "ab"
    assert stream.finish_reason == "cancelled"
    session.engine = real
    tiny_session.still_works(session)
