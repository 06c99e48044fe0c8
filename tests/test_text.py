"""Bytes become text, reasoning and an answer."""

from __future__ import annotations

import itertools
import random

import pytest

from gguftools.errors import InputError
from gguftools.session.answer import Answer
from gguftools.session.text import StopStrings, Utf8Decoder, check_stops
from gguftools.session.thinking import ThinkSplitter


def feed(answer: Answer, pieces: list[bytes], last: bool = True) -> list[str]:
    """The texts of the tokens for these pieces, extra ones included."""
    tokens = []
    for i, piece in enumerate(pieces):
        tokens += answer.push(i, piece, False, last=last and i == len(pieces) - 1)
        if answer.stopped:
            break
    return [token.text for token in tokens]


def test_a_code_point_that_is_split_over_tokens_comes_whole() -> None:
    answer = Answer(())
    assert feed(answer, [b"a\xf0", b"\x9f\x98", b"\x80b"]) == ["a", "", "😀b"]


@pytest.mark.parametrize("bad", [b"\xff", b"\xc3", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\xaf"])
def test_bytes_that_are_no_utf8_become_replacement_characters_and_nothing_is_lost(bad: bytes) -> None:
    decoder = Utf8Decoder()
    text = decoder.push(b"a" + bad) + decoder.push(b"b") + decoder.flush()
    assert text[0] == "a"
    assert text[-1] == "b"
    assert set(text[1:-1]) == {"�"}


def test_every_way_to_cut_a_text_gives_the_same_text() -> None:
    data = "zoë 😀 <|x|> ñ 漢字".encode()
    for cuts in itertools.combinations(range(1, len(data)), 2):
        pieces = [data[a:b] for a, b in zip((0, *cuts), (*cuts, len(data)), strict=True)]
        assert "".join(feed(Answer(("<|y|>",)), pieces)) == data.decode()


def test_a_stop_string_ends_the_answer_wherever_token_borders_are() -> None:
    data = b"one two<|stop|>three"
    for cut in range(1, len(data)):
        answer = Answer(("<|stop|>",))
        shown = feed(answer, [data[:cut], data[cut:]])
        assert answer.stopped
        assert "".join(shown) == answer.text == "one two"


def test_text_that_may_begin_a_stop_string_is_held_back_and_let_go_when_it_does_not() -> None:
    answer = Answer(("###", "\n\nUser:"))
    assert feed(answer, [b"a\n", b"\n", b"Us", b"es #", b"#", b" b"]) == [
        "a",
        "",
        "",
        "\n\nUses ",
        "",
        "## b",
    ]
    assert not answer.stopped


def test_of_several_stop_strings_the_one_that_is_complete_first_wins_then_the_longest() -> None:
    assert StopStrings(("cd", "bcd", "e")).push("abcde") == ("a", True)
    assert StopStrings(("bcde", "cd")).push("abcde") == ("ab", True)


def test_random_stop_strings_agree_with_a_plain_search() -> None:
    rng = random.Random(7)
    for _ in range(3000):
        text = "".join(rng.choices("ab", k=12))
        stops = tuple("".join(rng.choices("ab", k=rng.randint(1, 4))) for _ in range(2))
        found = [text.find(stop) for stop in stops if stop in text]
        searched = StopStrings(stops)
        shown, stopped, at = "", False, 0
        while at < len(text) and not stopped:  # pieces of one to three characters
            size = rng.randint(1, 3)
            part, stopped = searched.push(text[at : at + size])
            shown += part
            at += size
        shown += searched.flush()
        assert stopped == bool(found)
        if not found:
            assert shown == text
        else:  # the stop that is complete first wins over one that begins earlier but ends later
            ends = min((text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text)
            assert shown == text[: min(text[: ends[0]].find(s) for s in stops if s in text[: ends[0]])]


@pytest.mark.parametrize("wrong", ["", ["a", ""], [b"a"], ["x"] * 65, "x" * 5000])
def test_a_senseless_stop_is_refused(wrong: object) -> None:
    with pytest.raises(InputError):
        check_stops(wrong)  # type: ignore[arg-type]


def test_reasoning_is_kept_apart_wherever_token_borders_are() -> None:
    data = b"<think>\nso </ hm\n</think>\n\nThe <think> answer"
    for cut in range(1, len(data)):
        answer = Answer(())
        tokens = []
        for i, piece in enumerate((data[:cut], data[cut:])):
            tokens += answer.push(i, piece, False, last=i == 1)
        assert answer.reasoning == "so </ hm"
        assert answer.text == "The <think> answer"
        assert "".join(token.text for token in tokens if not token.thinking) == answer.text
        assert "".join(token.text for token in tokens if token.thinking).strip() == answer.reasoning


def test_reasoning_one_byte_at_a_time_gives_the_same() -> None:
    data = b"  <think>a<b</think> c</think>"
    answer = Answer(("zz",))
    feed(answer, [bytes([byte]) for byte in data])
    assert (answer.reasoning, answer.text) == ("a<b", "c</think>")


def test_a_prompt_that_ends_inside_reasoning_begins_there() -> None:
    answer = Answer((), thinking=True)
    feed(answer, [b"hm", b"</th", b"ink>", b"yes"])
    assert (answer.reasoning, answer.text) == ("hm", "yes")


def test_reasoning_that_never_ends_is_all_reasoning() -> None:
    answer = Answer((), thinking=True)
    assert "".join(feed(answer, [b"hm ", b"</thin"])) == "hm </thin"
    assert (answer.reasoning, answer.text) == ("hm </thin", "")


def test_the_models_own_tag_token_opens_reasoning_again_and_a_written_tag_does_not() -> None:
    splitter = ThinkSplitter()
    assert splitter.push("a") == [("a", False)]
    assert splitter.push("<think>") == [("<think>", False)]
    assert splitter.push("<think>", is_open_tag=True) == []
    assert splitter.push("b") == [("b", True)]


def test_stop_strings_do_not_end_reasoning() -> None:
    answer = Answer(("\n\n",))
    feed(answer, [b"<think>a\n\nb</think>", b"c\n", b"\nd"])
    assert (answer.reasoning, answer.text, answer.stopped) == ("a\n\nb", "c", True)


def test_a_token_carries_text_of_one_kind_and_the_last_carries_the_rest() -> None:
    answer = Answer(())
    first = answer.push(5, b"<think>a</think>b", True)
    assert [(token.id, token.text, token.thinking) for token in first] == [(5, "a", True)]
    second = answer.push(6, b"c", False, last=True)
    assert [(token.id, token.text, token.thinking) for token in second] == [(6, "bc", False)]


def test_a_request_that_is_cut_short_gives_what_it_held_back_without_half_a_code_point() -> None:
    answer = Answer(("stop",))
    assert answer.push(1, b"a st", False)[0].text == "a "
    answer.push(2, b"\xf0\x9f", False)
    assert [(token.id, token.text) for token in answer.finish()] == [(-1, "st")]
    assert answer.text == "a st"
