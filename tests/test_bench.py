"""bench: prompts, turns, what rounds say, and the advice that follows from costs and acceptance."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gguftools import Round, errors
from gguftools.intervals import Estimate, geometric_mean
from gguftools.verbs.bench import measures, prompts, runs
from gguftools.verbs.bench.advice import Evidence, advice, replay
from gguftools.verbs.bench.measures import Acceptance, Cost, Position
from gguftools.verbs.bench.prompts import Prompt
from gguftools.verbs.bench.report import Report, Side
from gguftools.verbs.bench.runs import Run
from gguftools.verbs.bench.same import Match

LOW = Estimate(0.8, 0.7, 0.9)


def run(speed: float = 10.0, n: int = 20, rounds: tuple[Round, ...] = ()) -> Run:
    return Run("text", n, 1000 * n / speed, 50.0, rounds=rounds)


def round_(n_draft: int, n_accepted: int, target_us: int = 1000, draft_us: int = 0) -> Round:
    return Round(n_draft, n_accepted, "model" if n_draft else "", target_us, draft_us, 10)


# ---- prompts ----


def test_our_own_prompts_are_half_code_half_prose() -> None:
    kinds = [prompt.kind for prompt in prompts.own()]
    assert sorted(kinds) == ["code"] * 4 + ["prose"] * 4
    assert len({prompt.text for prompt in prompts.own()}) == 8


def test_a_text_file_holds_a_prompt_a_line(tmp_path: Path) -> None:
    file = tmp_path / "p.txt"
    file.write_text("\ufeffOne?\n\n  Two?  \n", "utf-8")
    assert [prompt.text for prompt in prompts.read(file)] == ["One?", "Two?"]


def test_json_lines_hold_turns_a_prompt_or_messages(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Why?"}]
    lines = [{"turns": ["First", "Second"], "category": "math"}, {"prompt": "Ask", "kind": "code"}]
    file = tmp_path / "p.jsonl"
    file.write_text("\n".join(json.dumps(line) for line in [*lines, {"messages": messages}]))
    found = prompts.read(file)
    assert [prompt.kind for prompt in found] == ["math", "code", ""]
    assert [prompt.text for prompt in found] == ["First", "Ask", "Be short.\n\nWhy?"]
    assert list(found[2].messages) == messages


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "line 2: it is no JSON"),
        ("[" * 100_000, "line 2: it is no JSON"),
        ("7", "line 2: it is no JSON object"),
        ('{"turns": []}', "line 2: it has no text"),
        ('{"turns": [7]}', "line 2: it has no text"),
        ('{"prompt": " "}', "line 2: it has no text"),
        ('{"messages": []}', 'line 2: "messages" is empty'),
        ('{"messages": [{"role": "user"}]}', 'no "role" and "content"'),
        ('{"messages": ["hi"]}', 'no "role" and "content"'),
    ],
)
def test_a_wrong_line_is_named(line: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text('{"prompt": "fine"}\n' + line)
    with pytest.raises(errors.FormatError, match=why):
        prompts.read(file)


def test_a_file_without_prompts_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n \n")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    with pytest.raises(errors.InputError, match="holds no prompt"):
        prompts.read(tmp_path / "empty.txt")
    with pytest.raises(errors.FormatError, match="not UTF-8"):
        prompts.read(tmp_path / "latin.txt")
    with pytest.raises(errors.NotFound):
        prompts.read(tmp_path / "none.txt")
    with pytest.raises(errors.InputError, match="cannot be read"):
        prompts.read(tmp_path)


# ---- turns ----


@given(ways=st.integers(1, 5), n_prompts=st.integers(1, 6), repeats=st.integers(1, 4))
def test_ways_are_asked_forwards_and_backwards_in_turns(ways: int, n_prompts: int, repeats: int) -> None:
    order: list[tuple[int, int]] = []

    def ask(way: int) -> runs.Ask:
        def answer(prompt: int, max_tokens: int) -> Run:
            order.append((way, prompt))
            return run(n=way + 1)

        return answer

    seen: list[float] = []
    found = runs.interleaved(
        [ask(way) for way in range(ways)], n_prompts, 9, repeats, lambda _stage, done: seen.append(done)
    )
    blocks = [order[i : i + ways] for i in range(0, len(order), ways)]
    for i, block in enumerate(blocks):
        assert {prompt for _, prompt in block} == {i // repeats}
        forwards = list(range(ways))
        assert [way for way, _ in block] == (forwards if i % 2 == 0 else forwards[::-1])
    assert [[[one.n for one in each] for each in way] for way in found] == [
        [[way + 1] * repeats] * n_prompts for way in range(ways)
    ]
    assert seen == sorted(seen)
    assert seen[-1] == 1


def test_a_prompt_s_speed_is_the_median_of_its_repeats_and_all_have_their_weight() -> None:
    found = [[run(10, 10), run(1, 10), run(11, 10)], [run(40, 80)] * 3]
    assert runs.speeds(found) == [10, 40]
    assert runs.overall(found) == pytest.approx(90 / (1 + 2))


# ---- what rounds say ----


def test_acceptance_by_position_counts_what_was_proposed_there() -> None:
    rounds = [round_(3, 3), round_(3, 1), round_(1, 0), round_(0, 0)]
    assert measures.positions(rounds) == (Position(3, 2), Position(2, 1), Position(2, 1))


def test_costs_are_medians_so_that_one_slow_round_is_nothing() -> None:
    rounds = [round_(1, 1, us, 500) for us in (2000, 2100, 90_000)] + [round_(0, 0, 1000)] * 2
    assert measures.costs(rounds) == (Cost(1, 2, 1.0, 0.0), Cost(2, 3, 2.1, 0.5))
    assert measures.draft_ms_per_token([*rounds, round_(0, 0, 1000, 300)]) == 0.6
    assert measures.draft_ms_per_token(rounds[3:]) is None


def test_the_shares_of_time_make_one() -> None:
    found = measures.time_share([[run(100, 10, (round_(4, 4, 50_000, 30_000),) * 1)]])
    assert found is not None
    assert sum(found.values()) == pytest.approx(1)
    assert found["target"] == pytest.approx(0.5)
    assert found["draft"] == pytest.approx(0.3)
    assert measures.time_share([[run()]]) is None


@given(st.lists(st.tuples(st.integers(0, 16), st.integers(0, 16)), max_size=40))
def test_lengths_over_time_are_ten_within_what_was_chosen(pairs: list[tuple[int, int]]) -> None:
    rounds = tuple(round_(n, min(n, kept)) for n, kept in pairs)
    found = measures.lengths_over_time([[run(rounds=rounds)]])
    assert len(found) == (10 if pairs else 0)
    if pairs:
        lengths = [n for n, _ in pairs]
        assert all(min(lengths) <= length <= max(lengths) for length in found)
        assert found[0] >= 0
        assert measures.length_counts(rounds) == {n: lengths.count(n) for n in sorted(set(lengths))}


def test_steps_that_are_not_told_follow_from_the_tokens() -> None:
    told = Run("", 12, 100, 0, draft_n=8, draft_n_accepted=7)
    assert measures.acceptance([[told]]) == Acceptance(7 / 8, 1 + 7 / 5)
    assert measures.acceptance([[run()]]) == Acceptance()


def test_the_geometric_mean_of_ratios_has_an_interval_around_it() -> None:
    found = geometric_mean(np.array([0.5, 2.0, 1.0, 1.0]))
    assert found.value == pytest.approx(1)
    assert 0.5 <= found.low < 1 < found.high <= 2
    assert geometric_mean(np.array([1.3])) == Estimate(*[pytest.approx(1.3)] * 3)
    assert np.isnan(geometric_mean(np.array([])).value)


# ---- the report ----


def report(plain: list[float], draft: list[float], verdicts: str = "") -> Report:
    names = {"e": "equal", "t": "tie", "d": "different", "u": "unknown"}
    return Report(
        "t.gguf",
        [Prompt(({"role": "user", "content": "x"},), kind) for kind in ("code", "prose")],
        Side("", 0, [[run(speed)] for speed in plain], Acceptance()),
        Side("d.gguf", 5, [[run(speed)] for speed in draft], Acceptance(0.5, 2.0)),
        matches=[Match(names[letter]) for letter in verdicts],  # type: ignore[arg-type]
        settings={"max_tokens": 20, "repeats": 1, "temperature": 0},
    )


def test_the_speed_up_is_the_geometric_mean_over_prompts() -> None:
    found = report([10, 10], [20, 5])
    assert found.speedup.value == pytest.approx(1)
    assert found.speedup_by_kind == {"code": 2, "prose": 0.5}
    assert (found.speedup.low, found.speedup.high) == (0.5, 2)


@pytest.mark.parametrize(
    ("verdicts", "same"), [("ee", True), ("et", True), ("eu", None), ("du", False), ("", None)]
)
def test_texts_are_the_same_when_equal_or_parted_by_a_near_tie(verdicts: str, same: bool | None) -> None:
    assert report([1, 1], [1, 1], verdicts).same_text is same


def test_the_json_has_its_keys_and_no_number_that_json_lacks() -> None:
    for found in (report([10, 10], [20, 5], "ee"), Report("t", [Prompt(({"content": "x"},))], None, None)):
        content = json.loads(json.dumps(found.to_json(), allow_nan=False))
        wanted = (
            "plain draft speedup speedup_interval acceptance_rate mean_acceptance_length "
            "acceptance_by_position cost_by_width time_share same_text sweep"
        )
        assert set(wanted.split()) <= content.keys()
    assert content["speedup"] is content["speedup_interval"] is None


# ---- advice ----


def evidence(
    target: dict[int, float],
    rounds: list[tuple[int, int]],
    draft_ms: float,
    *,
    speedup: Estimate = LOW,
    **more: object,
) -> Evidence:
    """rounds: (proposed, kept), each many times. draft_ms: for a proposed token."""
    costs = [Cost(width, 50, ms, 0) for width, ms in target.items()]
    made = [round_(n, kept, draft_us=round(1000 * draft_ms * n)) for n, kept in rounds] * 20
    return Evidence(speedup, 5, costs, made, **more)  # type: ignore[arg-type]


F16 = {1: 85.0, 2: 140.0, 3: 160.0, 4: 174.0, 6: 179.0}
Q4 = {1: 34.0, 2: 63.0, 3: 85.0, 4: 106.0}


def test_a_draft_that_pays_needs_no_advice_and_a_doubtful_one_a_word() -> None:
    assert advice(evidence(F16, [(3, 3)], 24, speedup=Estimate(1.3, 1.1, 1.5))) == []
    assert advice(Evidence(Estimate(np.nan, np.nan, np.nan), None)) == []
    (only,) = advice(evidence(F16, [(3, 3)], 24, speedup=Estimate(1.05, 0.9, 1.2)))
    assert only.startswith("It is not certain that the draft pays: 1.05 ×")


def test_a_length_that_would_pay_is_named_by_what_was_measured() -> None:
    rounds = [(5, 3), (5, 3), (5, 0)]
    gain = (1 + 2) * 85 / (174 + 3 * 10)  # of three, two are kept on the average
    found = advice(evidence(F16, rounds, 10))
    assert found[1] == f"--draft-tokens 3 may pay: about {gain:.2f} × by the costs that were measured."
    swept = advice(evidence(F16, rounds, 10, sweep={2: 1.2, 4: 1.1, "auto": 0.8}))
    assert swept[1] == "--draft-tokens 2 pays: 1.20 × was measured."
    assert not any("--draft-tokens" in text for text in advice(evidence(F16, rounds, 10, sweep={2: 0.9})))


def test_a_draft_that_is_sure_only_now_and_then_is_judged_by_its_own_rounds() -> None:
    rare = [(0, 0)] * 9 + [(3, 3)]
    gain = (9 + 4) * 34 / (9 * 34 + 106 + 3 * 1)
    found = advice(evidence(Q4, rare, 1))
    assert any(f"--draft-tokens 3 may pay: about {gain:.2f} ×" in text for text in found)


def test_a_smaller_draft_is_named_with_the_cost_at_which_it_pays() -> None:
    found = advice(evidence(F16, [(3, 3), (3, 3)], 90))
    smaller = next(text for text in found if "smaller" in text)
    least = (4 * 85 - 174) / 3
    assert f"less than {least:.1f} ms for each token; this one takes 90.0 ms, the target 85.0 ms" in smaller


def test_batches_that_cost_nearly_per_token_are_the_reason_that_no_draft_pays() -> None:
    found = advice(evidence(Q4, [(3, 0), (3, 2)], 24))
    assert found[0] == "The draft does not pay here: 0.80 × the speed without it."
    assert "2 tokens 1.9 ×, 3 tokens 2.5 ×, 4 tokens 3.1 ×" in found[1]
    assert "with up to 4 at once no draft gives more than 1.28 ×" in found[1]
    assert found[2].endswith("run this target without a draft.")


def test_low_acceptance_asks_for_a_closer_draft_only_where_one_could_pay() -> None:
    assert any("Only 33% of the drafted" in text for text in advice(evidence(F16, [(3, 1)], 24)))
    assert not any("Only" in text for text in advice(evidence(Q4, [(3, 1)], 24)))
    assert not any("Only" in text for text in advice(evidence(F16, [(3, 2)], 24)))


def test_n_grams_are_named_where_they_would_have_helped_on_the_texts() -> None:
    words = list(range(100, 150))
    copying = [(words, words[10:40])]
    found = advice(evidence(F16, [(3, 1)], 60, texts=copying))
    assert any(text.startswith("n-grams may pay: about") for text in found)
    fresh = [(words, list(range(500, 530)))]
    assert not any("n-grams" in text for text in advice(evidence(F16, [(3, 1)], 60, texts=fresh)))


def test_few_rounds_say_nothing() -> None:
    few = Evidence(LOW, 5, [Cost(1, 50, 10, 0), Cost(2, 2, 1, 0)], [round_(1, 1)] * 2)
    assert advice(few)[1:] == [
        "What was measured shows nothing that would help: run this target without a draft."
    ]


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=30),
    st.lists(st.integers(0, 3), min_size=1, max_size=60),
    st.integers(1, 8),
)
def test_a_replay_writes_the_whole_answer_and_proposes_at_most_k(
    prompt: list[int], answer: list[int], k: int
) -> None:
    rounds = replay(prompt, answer, k)
    assert all(0 <= kept <= proposed <= k for kept, proposed in rounds)
    written = sum(kept + 1 for kept, _ in rounds)
    assert len(answer) <= written <= len(answer) + 1  # the last round may end behind the last token


def test_a_replay_copies_from_the_newest_place() -> None:
    assert replay([1, 2, 3, 4, 1, 2, 3], [4, 9], 2) == [(1, 2)]
    assert replay([1, 2, 3, 7, 1, 2, 3, 8, 1, 2, 3], [8, 1, 2, 5], 3) == [(3, 3)]
