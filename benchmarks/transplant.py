"""What a transplanted draft is worth, beside the known tool's rule and the donor itself.

    python benchmarks/transplant.py [--quick] [--json FILE] [--only NAME …] [--models DIR] [--prompts DIR]

Needs SmolLM2-135M-Instruct, Qwen2.5-Coder-0.5B-Instruct and -1.5B-Instruct as GGUFs in --models, the prompts
gsm8k.jsonl, humaneval.jsonl and mt-bench.jsonl ({"turns": [...]} a line) in --prompts, and the wheel
splintr-rs for Kimi's vocabulary. Answers of targets are written once and kept in --cache. Intervals hold 95 %
of 2,000 bootstrap resamples of texts, places or prompts. Everything takes most of an hour on two cores.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import platformdirs
from acceptance import Rounds, Sampled, greedy, sampled
from answers import answers, prompts, states, target_head
from numpy.typing import NDArray

from gguftools import assets
from gguftools.header import read_header
from gguftools.intervals import Estimate, bootstrap, ratio
from gguftools.verbs.transplant.align import align
from gguftools.verbs.transplant.calibrate import calibrate, open_source
from gguftools.verbs.transplant.donor import Donor
from gguftools.verbs.transplant.draft import teller
from gguftools.verbs.transplant.evaluate import Size, evaluate
from gguftools.verbs.transplant.evaluate.baseline import BaselineRows
from gguftools.verbs.transplant.evaluate.results import Evaluation
from gguftools.verbs.transplant.evaluate.scoring import Head
from gguftools.verbs.transplant.evaluate.setup import Setup
from gguftools.verbs.transplant.evaluate.texts import held_out
from gguftools.verbs.transplant.rows import NewRows, PlainRows
from gguftools.verbs.transplant.special_map import special_map
from gguftools.verbs.transplant.spelling import ordinary
from gguftools.verbs.transplant.text import Text, from_python
from gguftools.vocab import Vocab

REPO = Path(__file__).resolve().parent.parent
SMALL, HALF, BIG = (
    "SmolLM2-135M-Instruct.Q4_1.gguf",
    "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
)
TEMPERATURE = 0.8
PASSAGE = 3000  # characters of plain text that are read at once


def draft_rows(setup: Setup, name: str | None = "auto") -> NewRows:
    """The rows that `transplant --calibrate auto` would write; of None, those without --calibrate."""
    donor, target, alignment = setup.donor, setup.target, setup.alignment
    source, stage = open_source(name, 25_000), partial(teller, None)
    return calibrate(donor, target, alignment, source, fold=False, tell=stage).rows


@dataclass(frozen=True, slots=True)
class OtherInputs:
    """Rows that score as `rows` and read as `read`."""

    rows: NewRows
    read: NewRows

    @property
    def n_tokens(self) -> int:
        return self.rows.n_tokens

    @property
    def bias(self) -> NDArray[np.float32]:
        return self.rows.bias

    def head_rows(self, lo: int, hi: int) -> NDArray[np.float32]:
        return self.rows.head_rows(lo, hi)

    def input_rows(self, lo: int, hi: int) -> NDArray[np.float32]:
        return self.read.input_rows(lo, hi)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: what is measured, what it should be, what it is by side. met None: no target."""

    measure: str
    wanted: str
    found: dict[str, object]
    met: bool | None = None

    def __str__(self) -> str:
        mark = {True: "ok", False: "MISSED", None: ""}[self.met]
        found = "  ".join(f"{side} {_short(value)}" for side, value in self.found.items())
        return f"{self.measure:<44} {found}   [{self.wanted}] {mark}"


def _short(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)


@contextmanager
def opened(donor: Path, target: Vocab) -> Iterator[Setup]:
    model = Donor(read_header(donor))
    mapped = special_map(target, model.vocab, {})
    alignment = align(target, model.vocab, {one.target: one for one in mapped})
    with Setup.open(model, target, alignment, mapped) as setup:
        yield setup
    model.close()


def kimi(options: argparse.Namespace) -> Iterator[Row]:
    """Kimi ← Qwen2.5-Coder-0.5B: losses, the marginal, turn ends."""
    target = Vocab.from_checkpoint(assets.kimi_k2(options.cache / "kimi-k2"))
    nbytes, places = (1200, 12) if options.quick else (10**6, 60)
    questions = prompts(options.prompts, "gsm8k", 4 if options.quick else 24)
    solved = answers(options.models / BIG, questions, 0.0, 160, options.cache)
    spelling = Vocab.from_gguf(options.models / BIG)
    given = {
        "English + code": [*held_out("english", nbytes), *held_out("code", nbytes)],
        "numbers": [
            Text("numbers", f"answer {i + 1}", spelling.decode(one.ids).decode("utf-8", "ignore"))
            for i, one in enumerate(solved)
        ],
        "Chinese": held_out("chinese", nbytes),
    }
    size = Size(places=places, floor=4e-3 if options.quick else 1e-3, answers=12 if options.quick else 40)
    with opened(options.models / HALF, target) as setup:
        rows = draft_rows(setup)
        alignment, mapped, donor = setup.alignment, setup.mapped, setup.donor
        found = evaluate(donor, target, alignment, mapped, rows, size=size, given=given, progress=_progress)
    yield from _of_texts(found)
    yield from _of_turns(found)


def _of_texts(found: Evaluation) -> Iterator[Row]:
    for kind, one in found.kinds.items():
        loss, gap = dict(one.nats_per_byte), one.gap
        yield Row(f"{kind}: nats per byte", "", loss)
        yield Row(f"{kind}: share of the baseline's gap", "≤ 0.5", {"ours": gap}, gap.value <= 0.5)
        yield Row(f"{kind}: top-1 accuracy", "", dict(one.accuracy))
        wanted = "gain's interval above 0" if kind != "English + code" else ""
        gain = one.overlap_gain
        yield Row(
            f"{kind}: Σ min(p, q) with the marginal",
            wanted,
            {**one.overlap, "gain": gain, "left over": one.left_over, "places": one.places},
            gain.low > 0 if wanted else None,
        )
        gain = one.agreement_gain
        more = {"gain": gain, "of several pieces": f"{one.multi_hit} of {one.multi_wanted}"}
        yield Row(f"{kind}: top-1 as the marginal", "gain ≥ 0", {**one.agreement, **more}, gain.value >= 0)


def _of_turns(found: Evaluation) -> Iterator[Row]:
    if (turns := found.turn_ends) is not None:
        shares = {side: n / max(1, turns.donor_ends) for side, n in turns.ends.items()}
        of = f"{turns.donor_ends} of {turns.answers} answers that the donor ends"
        yield Row(f"turn ends, of {of}", "≥ 0.95", dict(shares), shares["draft"] >= 0.95)


def control(options: argparse.Namespace) -> Iterator[Row]:
    """Tops in plain text that are control or reserved tokens."""
    target = Vocab.from_checkpoint(assets.kimi_k2(options.cache / "kimi-k2"))
    n_positions = 1500 if options.quick else 20_000
    with opened(options.models / HALF, target) as setup:
        texts = setup.spell(setup.ours, _plain_text())
        enough = int(np.searchsorted(np.cumsum([len(text.ids) for text in texts]), n_positions)) + 1
        special, found = ~ordinary(target), {}
        for side, rows in _drafts(setup).items():
            head, found[side] = Head(rows), 0
            for i, text in enumerate(texts[:enough]):
                (reading,) = setup.read(rows, [text], lambda _: None)
                found[side] += int(np.count_nonzero(special[head.judge(reading.states, text.ids)[1]]))
                _progress(f"control tokens of {side}", (i + 1) / enough)
        n = sum(len(text.ids) for text in texts[:enough])
    yield Row(f"control tokens in {n:,} places", "0", dict(found), found["draft"] == 0)


def _plain_text() -> list[Text]:
    """English and code by turns, from the running Python."""
    pairs = zip(from_python("english"), from_python("code"), strict=False)
    texts = [text for pair in pairs for text in pair]
    return [
        Text(text.kind, f"{text.name} at {at}", text.text[at : at + PASSAGE])
        for text in texts
        for at in range(0, min(len(text.text), 4 * PASSAGE), PASSAGE)
    ]


def _drafts(setup: Setup) -> dict[str, NewRows]:
    return {
        "draft": draft_rows(setup),
        "baseline": BaselineRows(setup.target, setup.donor, setup.theirs),
    }


def qwen(options: argparse.Namespace) -> Iterator[Row]:
    """SmolLM2-135M with Qwen2.5's vocabulary drafts for Qwen2.5-Coder-1.5B."""
    yield from acceptance(options, options.models / SMALL, options.models / BIG, 2 if options.quick else 8)


def smollm2(options: argparse.Namespace) -> Iterator[Row]:
    """Qwen2.5-Coder-0.5B with SmolLM2's vocabulary drafts for SmolLM2-135M."""
    yield from acceptance(options, options.models / HALF, options.models / SMALL, 1 if options.quick else 4)


def acceptance(options: argparse.Namespace, donor: Path, target: Path, n: int) -> Iterator[Row]:
    """`n` prompts of each kind."""
    questions = [
        one for name in ("gsm8k", "humaneval", "mt-bench") for one in prompts(options.prompts, name, n)
    ]
    pair = " ← ".join(re.split("-instruct", path.stem, flags=re.IGNORECASE)[0] for path in (target, donor))
    plain, drawn = (answers(target, questions, t, 160, options.cache) for t in (0.0, TEMPERATURE))
    read, theirs = states(target, drawn, options.cache), target_head(target)
    with opened(donor, Vocab.from_gguf(target)) as setup:
        drafts = _drafts(setup)
        drafts["plain inputs"] = OtherInputs(drafts["draft"], PlainRows(setup.alignment, setup.donor))
        heads = {name: Head(rows) for name, rows in drafts.items() if name != "plain inputs"}
        both = {name: (rows, heads.get(name, heads["draft"])) for name, rows in drafts.items()}
        lengths = {}
        for i, (name, (rows, head)) in enumerate(both.items()):
            lengths[name] = greedy(setup, rows, head, plain)
            _progress(f"{pair}, greedy", (i + 1) / len(both))
        draws: dict[str, list[Sampled]] = {name: [] for name in both}
        for i, (answer, some) in enumerate(zip(drawn, read, strict=True)):
            p = theirs.probabilities(some, TEMPERATURE)
            for name, one in sampled(setup, p, both, answer, TEMPERATURE).items():
                draws[name].append(one)
            _progress(f"{pair}, sampled", (i + 1) / len(drawn))
    yield from _compared(f"{pair}: greedy length", lengths, "baseline", "gain ≥ 0", lambda e: e.value >= 0)
    rounds = {name: [one.rounds for one in some] for name, some in draws.items()}
    yield from _compared(
        f"{pair}: length at {TEMPERATURE}", rounds, "baseline", "≥ + 5 %, above 0",
        lambda e: e.value >= 0.05 and e.low > 0,
    )  # fmt: skip
    overlaps = {name: [Rounds(one.overlap, one.places) for one in some] for name, some in draws.items()}
    yield from _compared(
        f"{pair}: Σ min(p, q) at {TEMPERATURE}", overlaps, "baseline", "≥ + 5 %, above 0",
        lambda e: e.value >= 0.05 and e.low > 0,
    )  # fmt: skip
    kinds = {
        kind: [i for i, one in enumerate(plain) if one.kind == kind]
        for kind in ("gsm8k", "humaneval", "mt-bench")
    }
    for kind, which in kinds.items():
        some = {name: [lengths[name][i] for i in which] for name in lengths}
        yield Row(f"{pair}: greedy length, {kind}", "", {name: _mean(one) for name, one in some.items()})


def _mean(some: Sequence[Rounds]) -> Estimate:
    return ratio(np.array([one.tokens for one in some]), np.array([one.rounds for one in some]))


def _compared(
    measure: str, found: dict[str, list[Rounds]], over: str, wanted: str, good: Callable[[Estimate], bool]
) -> Iterator[Row]:
    """The means, and how far the draft's is above another's, paired by prompts."""
    gain = _gain(found["draft"], found[over])
    inputs = _gain(found["draft"], found["plain inputs"])
    means = {name: _mean(some) for name, some in found.items()}
    yield Row(measure, wanted, {**means, "gain": gain}, good(gain))
    yield Row(f"{measure}, gain by input rows", "", {"gain": inputs})


def _gain(ours: Sequence[Rounds], theirs: Sequence[Rounds]) -> Estimate:
    """(mean of ours) / (mean of theirs) - 1."""
    a, b = (
        [np.array([getattr(one, name) for one in side], float) for name in ("tokens", "rounds")]
        for side in (ours, theirs)
    )
    return bootstrap(len(a[0]), lambda w: (w @ a[0]) / (w @ a[1]) / ((w @ b[0]) / (w @ b[1])) - 1)


PARTS = {"kimi": kimi, "control": control, "qwen": qwen, "smollm2": smollm2}


def _progress(stage: str, fraction: float) -> None:
    print(f"\r{stage}: {fraction:4.0%} ", end="\n" if fraction >= 1 else "", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a few minutes, on little")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--models", type=Path, default=REPO.parent / "assets" / "gguf")
    parser.add_argument("--prompts", type=Path, default=REPO.parent / "shared" / "data" / "prompts")
    parser.add_argument("--cache", type=Path, default=platformdirs.user_cache_path("gguftools") / "benchmark")
    options = parser.parse_args()
    rows: list[Row] = []
    for name in options.only:
        began = time.perf_counter()
        for row in PARTS[name](options):
            rows.append(row)
            print(row, flush=True)
        print(f"{name}: {time.perf_counter() - began:.0f} s", file=sys.stderr)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
