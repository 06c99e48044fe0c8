"""Pace in simulated worlds: it loses next to nothing where drafts cannot pay, and finds what pays."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from pace_world import (
    COSTS,
    F16,
    HALF_B,
    MODEL,
    NGRAM,
    Costs,
    Text,
    Writer,
    aware,
    best_fixed,
    best_length,
    calibrate,
    constant,
    copied,
    fixed,
    run,
)

from gguftools._native import Pace

SEEDS = range(11)
BOTH = 1 << MODEL | 1 << NGRAM
TEXTS: dict[str, Callable[[np.random.Generator, int], Text]] = {
    "half right": lambda rng, n: constant(rng, n, 0.5),
    "mostly right": lambda rng, n: constant(rng, n, 0.9),
    "code": lambda rng, n: aware(rng, n, 0.85),
    "prose": lambda rng, n: aware(rng, n, 0.45),
    "boasting": lambda rng, n: aware(rng, n, 0.6, boast=2.0),
}


def new(costs: Costs, rng: np.random.Generator) -> Pace:
    """As an engine starts that measures a few batches at load."""
    pace = Pace(16, costs.widths)
    calibrate(pace, costs, rng)
    return pace


def loaded(costs: Costs, text: Text, rng: np.random.Generator) -> Pace:
    """As in the second process: learned on another text, saved, loaded."""
    first = new(costs, rng)
    run(first, costs, text, rng)
    pace = Pace(16, costs.widths)
    pace.load(first.save())
    pace.request()
    return pace


LOSING = [
    *[(costs, text) for costs in ("q4", "moe") for text in TEXTS],
    *[("q4 smol", text) for text in TEXTS],
    *[("f16", text) for text in ("half right", "prose", "boasting")],
    *[("q8", text) for text in ("half right", "prose", "boasting")],
    *[("moe small draft", text) for text in ("half right", "prose", "boasting")],
]


@pytest.mark.parametrize(("name", "kind"), LOSING)
def test_short_answers_lose_nothing_where_drafts_cannot_pay(name: str, kind: str) -> None:
    costs, known, unknown = COSTS[name], [], []
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        text = TEXTS[kind](rng, 200)
        plain = fixed(costs, text, 0, 128)
        known.append(run(loaded(costs, TEXTS[kind](rng, 600), rng), costs, text, rng, 128).rate / plain)
        unknown.append(run(Pace(16, costs.widths), costs, text, rng, 128).rate / plain)
    assert np.median(known) >= 0.98
    assert min(known) >= 0.94
    assert np.median(unknown) >= 0.95


WINNING = [
    *[("gpu", text) for text in TEXTS],
    *[("f16 smol", text) for text in ("mostly right", "code", "boasting")],
    *[("f16", text) for text in ("mostly right", "code")],
]


@pytest.mark.parametrize(("name", "kind"), WINNING)
def test_what_pays_is_found_within_a_twentieth_of_the_best_fixed_length(name: str, kind: str) -> None:
    costs, short, long = COSTS[name], [], []
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        text = TEXTS[kind](rng, 700)
        long.append(run(new(costs, rng), costs, text, rng).rate / best_fixed(costs, text))
        pace = loaded(costs, TEXTS[kind](rng, 600), rng)
        short.append(
            run(pace, costs, text, rng, 128).rate / fixed(costs, text, best_length(costs, text), 128)
        )
    assert np.median(long) >= 0.95
    assert np.median(short) >= 0.95


def test_nothing_is_drafted_where_it_could_not_pay_even_if_all_were_accepted() -> None:
    rng, costs = np.random.default_rng(0), COSTS["q4"]
    pace = new(costs, rng)
    assert pace.hopeless(MODEL)
    assert not any(run(pace, costs, constant(rng, 500, 0.99), rng).drafted)


def test_what_was_hopeless_is_tried_again_when_the_target_becomes_slower() -> None:
    rng = np.random.default_rng(1)
    pace = new(COSTS["q4"], rng)
    run(pace, COSTS["q4"], constant(rng, 100, 0.95), rng)
    slow = Costs({n: 8 * ms for n, ms in COSTS["q4"].target.items()}, HALF_B)
    run(pace, slow, constant(rng, 200, 0.95), rng)
    pace.request()  # its prompt is decoded by the draft, too, so there is nothing to catch up with
    assert any(run(pace, slow, constant(rng, 200, 0.95), rng).drafted)


def test_a_text_that_turns_hard_is_written_plainly_from_then_on() -> None:
    rates = []
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        easy, hard = constant(rng, 400, 0.95), constant(rng, 400, 0.15)
        log = run(new(COSTS["f16"], rng), COSTS["f16"], easy + hard, rng)
        ideal = 400 / best_fixed(COSTS["f16"], easy) + 380 / best_fixed(COSTS["f16"], hard)
        rates.append(log.rate * ideal / 780)
        assert not any(log.drafted[-100:])
    assert np.median(rates) >= 0.95


def test_a_text_that_turns_easy_is_drafted_from_then_on_where_catching_up_is_cheap() -> None:
    costs, rates = COSTS["gpu"], []
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        hard, easy = constant(rng, 400, 0.02), constant(rng, 400, 0.9)
        ideal = 400 / best_fixed(costs, hard) + 380 / best_fixed(costs, easy)
        rates.append(run(new(costs, rng), costs, hard + easy, rng).rate * ideal / 780)
    assert np.median(rates) >= 0.92


def test_an_easy_request_after_hard_ones_is_drafted() -> None:
    costs, rates = COSTS["f16 smol"], []
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        pace, text = loaded(costs, constant(rng, 400, 0.3), rng), constant(rng, 400, 0.95)
        rates.append(run(pace, costs, text, rng).rate / fixed(costs, text, 0))
    assert np.median(rates) >= 1.3


@pytest.mark.parametrize("name", ["f16", "f16 smol", "gpu"])
def test_requests_of_two_kinds_by_turns_are_each_written_as_is_best_for_them(name: str) -> None:
    costs, easy, hard = COSTS[name], [], []
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        pace = new(costs, rng)
        for turn in range(8):
            pace.request()
            text = aware(rng, 200, 0.95 if turn % 2 else 0.3)
            best = max(fixed(costs, text, n, 128) for n in (0, best_length(costs, text)))
            rates = easy if turn % 2 else hard
            rates.append(run(pace, costs, text, rng, 128).rate / best)
    assert np.median(easy) >= 0.9
    assert np.median(hard) >= 0.95


def test_a_machine_at_half_its_speed_changes_nothing_but_the_time() -> None:
    rng = np.random.default_rng(3)
    fast, slow = (
        COSTS["f16"],
        Costs({n: 2 * ms for n, ms in F16.items()}, {n: 2 * ms for n, ms in HALF_B.items()}),
    )
    text, pace = constant(rng, 400, 0.93), new(COSTS["f16"], rng)
    run(pace, fast, text, rng)
    assert run(pace, slow, text, rng).rate / best_fixed(slow, text) >= 0.93


def test_ngrams_are_drafted_where_text_is_copied_and_cost_nothing_where_not() -> None:
    costs, much, none = COSTS["f16"], [], []
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        text = copied(rng, constant(rng, 600, 0.5), 0.7)
        much.append(run(new(costs, rng), costs, text, rng, on=1 << NGRAM).rate / fixed(costs, text, 0))
        text = copied(rng, constant(rng, 600, 0.5), 0.0)
        none.append(run(new(costs, rng), costs, text, rng, on=1 << NGRAM).rate / fixed(costs, text, 0))
    assert np.median(much) >= 1.4
    assert np.median(none) >= 0.97


@pytest.mark.parametrize("name", ["f16", "f16 smol", "gpu", "q4", "moe"])
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_two_sources_are_no_worse_than_the_better_of_them(name: str, share: float) -> None:
    costs, rates = COSTS[name], []
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        text = copied(rng, aware(rng, 600, 0.7), share)
        each = [run(new(costs, rng), costs, text, rng, on=1 << kind).rate for kind in (MODEL, NGRAM)]
        rates.append(run(new(costs, rng), costs, text, rng, on=BOTH).rate / max(each))
    assert np.median(rates) >= 0.97


def test_a_model_goes_on_where_ngrams_have_ended_or_begins_instead_of_weak_ones() -> None:
    rng = np.random.default_rng(0)
    costs = COSTS["gpu"]
    text = copied(rng, constant(rng, 600, 0.95), 0.5)
    writer = Writer(new(costs, rng), costs, text, rng, BOTH)
    while writer.at < 560:
        writer.round()
    rounds = [set(kinds) for kinds in writer.log.drafted]
    assert {MODEL} in rounds
    assert {NGRAM} in rounds


def test_allowed_widths_alone_are_verified_and_the_last_one_is_kept_to() -> None:
    rng = np.random.default_rng(5)
    log = run(new(COSTS["gpu"], rng), COSTS["gpu"], constant(rng, 600, 0.8), rng)
    widths = [len(kinds) + 1 for kinds in log.drafted]
    assert set(widths) <= {1, 2, 4, 8}
    assert sum(a != b for a, b in pairwise(widths)) < len(widths) / 2
