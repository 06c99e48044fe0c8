"""The text that a draft is calibrated on: of the package, generated, of the donor."""

from __future__ import annotations

import hashlib
import itertools
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tiny_session import write

import gguftools
from gguftools.errors import LoadAborted
from gguftools.verbs.transplant import text as texts
from gguftools.verbs.transplant.number_text import KINDS, draws, number_text
from gguftools.verbs.transplant.text import SHARES, Text, counting_texts, model_texts, packaged, take
from gguftools.verbs.transplant.written import written_by

REPO = Path(__file__).resolve().parent.parent
MODELS = REPO / "models"


def n_bytes(text: str) -> int:
    return len(text.encode())


# What comes with the package.


@pytest.mark.parametrize(
    ("kind", "least", "test", "test_least"),
    [
        ("english", 15_000, "en", 6_000),
        ("code", 12_000, "code", 6_000),
        ("chinese", 7_000, "zh", 5_000),
        ("other", 4_000, None, 0),
    ],
)
def test_each_kind_has_documents_and_none_is_in_what_is_measured_on(
    kind: str, least: int, test: str | None, test_least: int
) -> None:
    documents = [document.text for document in packaged(kind, 0)]
    assert sum(map(len, documents)) >= least
    assert len(set(documents)) == len(documents) >= 10
    assert all(50 < len(document) < texts.PASSAGE for document in documents)
    if test is not None:
        measured = (MODELS / f"evaluation-{test}.txt").read_text("utf-8")
        assert len(measured) >= test_least
        ours = "\n".join(documents)
        shared = [i for i in range(0, len(ours) - 40, 1) if ours[i : i + 40] in measured]
        assert not shared


def test_chinese_is_chinese_and_other_has_eight_languages() -> None:
    chinese = "".join(document.text for document in packaged("chinese", 0))
    assert len(re.findall("[一-鿿]", chinese)) >= 5_000
    assert len(re.findall("[一-鿿]", (MODELS / "evaluation-zh.txt").read_text("utf-8"))) >= 4_000
    other = "".join(document.text for document in packaged("other", 0))
    for word in ("Teppich", "saladier", "¿Por qué", "подоконнике", "パスワード", "김치", "لماذا", "पानी"):
        assert word in other


def test_the_files_are_plain_text_without_control_characters_or_trailing_blanks() -> None:
    for path in MODELS.glob("*.txt"):
        data = path.read_bytes()
        assert b"\r" not in data, path
        assert data.rstrip() + b"\n" == data, path
        for line in data.decode("utf-8").split("\n"):
            assert line.rstrip() == line, (path, line)
            assert all(char == "\t" or char.isprintable() or char == "\u200c" for char in line), (path, line)


def test_fences_in_every_document_are_closed() -> None:
    for kind in texts.FILES:
        for document in packaged(kind, 0):
            assert document.text.count("```") % 2 == 0, document.text


# Generated numbers.


def test_generated_numbers_are_the_same_everywhere() -> None:
    digest = hashlib.sha256("\n\n".join(number_text(20_000)).encode()).hexdigest()
    assert digest[:16] == "2830eda189f0e03d"
    assert number_text(500, seed=2) != number_text(500, seed=1)


def test_a_longer_text_of_numbers_begins_with_a_shorter_one() -> None:
    short, long = number_text(5_000), number_text(50_000)
    assert long[: len(short)] == short
    assert 5_000 <= sum(map(len, short)) < 7_000
    assert number_text(0) == []


def test_numbers_of_up_to_three_digits_occur_in_all_combinations() -> None:
    found = Counter()
    for run in re.findall("[0-9]+", "\n\n".join(number_text(500_000))):
        found.update(run[i : i + 3] for i in range(0, len(run), 3))
    for n in (1, 2, 3):
        assert not {f"{i:0{n}}" for i in range(10**n)} - found.keys()


def test_the_arithmetic_in_generated_text_is_right() -> None:
    checked = 0
    draw = draws(7)
    for _, kind in itertools.product(range(100), KINDS):
        for a, sign, b, c in re.findall(
            r"(?<![\d.,:×*·+−÷/-] )(?<![\d.,$€^])(\d+) ?([×+−*·]) ?(\d+) = ([\d,]*\d)(?![\d.,]| [×+*])",
            kind(draw),
        ):
            done = {
                "×": int(a) * int(b),
                "*": int(a) * int(b),
                "·": int(a) * int(b),
                "+": int(a) + int(b),
                "−": int(a) - int(b),
            }
            assert done[sign] == int(c.replace(",", "")), (a, sign, b, c)
            checked += 1
    assert checked > 300


# Mixes.


@pytest.mark.parametrize("n", [500, 5_000, 60_000])
def test_the_mix_for_the_model_has_its_shares(n: int) -> None:
    mix = model_texts(n, n_bytes)
    sizes = Counter()
    for text in mix:
        sizes[text.kind] += n_bytes(text.text)
    for kind, share in SHARES.items():
        if kind == "other" or n < 60_000:
            assert sizes[kind] == pytest.approx(share * n, abs=8), kind
    assert sum(sizes.values()) <= n + 8
    assert mix == model_texts(n, n_bytes)


def test_our_own_text_comes_before_pythons() -> None:
    names = {text.name for text in model_texts(10_000, n_bytes)}
    assert not [name for name in names if name.startswith("Python")]


def test_a_python_without_sources_gives_our_own_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(texts, "import_module", missing)
    monkeypatch.setattr(texts.util, "find_spec", missing)
    for lookup in (texts._topics, texts._source):
        lookup.cache_clear()
    try:
        assert not [text for text in counting_texts() if text.name.startswith("Python")]
        mix = model_texts(60_000, n_bytes)
        assert {text.kind for text in mix} == set(SHARES)
        assert sum(n_bytes(text.text) for text in mix) < 60_000
    finally:
        for lookup in (texts._topics, texts._source):
            lookup.cache_clear()


def test_sources_that_are_missing_unreadable_or_broken_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Spec:
        def __init__(self, loader: object) -> None:
            self.loader = loader

    class Loader:
        def __init__(self, error: Exception | None) -> None:
            self.error = error

        def get_source(self, name: str) -> None:
            if self.error:
                raise self.error

    specs: list[object] = [
        None,
        Spec(None),
        Spec(object()),
        Spec(Loader(None)),
        Spec(Loader(OSError("gone"))),
    ]
    specs.append(Spec(Loader(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"))))
    for spec in specs:
        monkeypatch.setattr(texts.util, "find_spec", lambda name, spec=spec: spec)
        texts._source.cache_clear()
        assert texts._source("argparse") == ""
    texts._source.cache_clear()


def test_the_text_to_count_on_is_large_capped_and_the_same_again() -> None:
    large = counting_texts()
    assert {text.kind for text in large} == set(SHARES)
    assert 500_000 < sum(len(text.text) for text in large) <= texts.MAX_COUNTED
    assert large == counting_texts()
    assert sum(len(text.text) for text in counting_texts(50_000)) <= 50_000


def test_what_is_taken_lies_evenly_over_the_text_and_in_its_order() -> None:
    long = Text("user", "long", "".join(f"line {i}\n" for i in range(100_000)))
    parts = take([long], 30_000, len)
    assert sum(len(part.text) for part in parts) == 30_000
    first = [int(re.findall(r"line (\d+)", part.text)[0]) for part in parts]
    assert first == sorted(first)
    assert first[0] < 20_000
    assert first[-1] > 80_000
    assert all(part.text.endswith("\n") for part in parts[:-1] if len(part.text) > 2_900)
    assert take([], 100, len) == take([long], 0, len) == []


def test_text_without_line_ends_is_taken_too() -> None:
    parts = take([Text("user", "one line", "字" * 10_000)], 9_500, len)
    assert sum(len(part.text) for part in parts) == 9_500


# The donor's own.


def test_a_donor_writes_the_same_answers_for_a_seed(tmp_path: Path) -> None:
    donor = write(tmp_path / "donor.gguf")
    seen: list[tuple[str, float]] = []
    prompts = ("Say something.", "And more.")
    found = written_by(donor, 200, prompts=prompts, progress=lambda *state: seen.append(state))
    assert found == written_by(donor, 200, prompts=prompts)
    assert found != written_by(donor, 200, prompts=prompts, seed=2)
    assert found[0].text
    assert {text.kind for text in found} == {"written"}
    assert found[0].name == "donor.gguf: answer 1"
    assert seen[-1] == ("writing", 1.0)
    assert [fraction for _, fraction in seen] == sorted(fraction for _, fraction in seen)


def test_a_base_model_without_a_template_continues_text(tmp_path: Path) -> None:
    donor = write(tmp_path / "base.gguf", specials=("<|endoftext|>",), template=None)
    assert written_by(donor, 150)


def test_the_writing_stops_when_asked_to(tmp_path: Path) -> None:
    donor = write(tmp_path / "donor.gguf")
    with pytest.raises(LoadAborted):
        written_by(donor, 500, progress=lambda *_: False)
    assert written_by(donor, 0) == []
    assert written_by(donor, 100, prompts=()) == []


def test_answers_that_run_in_circles_are_dropped() -> None:
    from gguftools.verbs.transplant.written import _runs_in_circles

    assert _runs_in_circles("and then he said it again, " * 30)
    for kind in ("english", "code", "chinese"):
        assert not any(_runs_in_circles(document.text) for document in packaged(kind, 0))


def test_the_text_needs_neither_libllama_nor_numpy() -> None:
    code = (
        "import sys; from gguftools.verbs.transplant.text import counting_texts; counting_texts(9_000);"
        "assert not {'llama_cpp', 'gguf'} & sys.modules.keys()"
    )
    root = Path(gguftools.__file__).parent.parent
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)
