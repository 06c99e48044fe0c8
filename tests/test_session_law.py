"""The law of what a whole Session samples, with a draft and without, against the exact one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import lowlevel
import numpy as np
import pytest
import tiny_session

from gguftools import Model

pytestmark = pytest.mark.usefixtures("real_api")

PROMPT, TOP_K, TEMPERATURE, REQUESTS = [5, 9], 3, 1.4, 700
LIMIT = 64.0  # chi-square with 26 degrees of freedom passes it once in 20,000 times


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_session.write(tmp_path_factory.mktemp("law") / "tiny.gguf")


@pytest.fixture(scope="module")
def law(tiny: Path) -> dict[tuple[int, ...], float]:
    """Probability of each three tokens after PROMPT, from libllama's logits alone."""
    with lowlevel.model(tiny) as loaded:
        found = {(): 1.0}
        for _ in range(3):
            longer = {}
            for text, chance in found.items():
                with lowlevel.context(loaded, 16) as ctx:
                    ids = [*PROMPT, *text]
                    row = lowlevel.decode(ctx, ids, 0, lowlevel.n_tokens(loaded))[-1] / TEMPERATURE
                kept = np.argsort(row)[-TOP_K:]
                weights = np.exp(row[kept] - row.max())
                for token, share in zip(kept.tolist(), weights / weights.sum(), strict=True):
                    longer[(*text, token)] = chance * float(share)
            found = longer
    assert len(found) == TOP_K**3
    assert sum(found.values()) == pytest.approx(1)
    return found


@pytest.mark.parametrize(
    ("drafts", "length", "p_min", "accept"),
    [
        ("itself", 5, 0.0, "match"),
        ("itself", 5, 0.5, "coupled"),
        ("itself", 5, 0.4, "reject"),
        ("another", 5, 0.0, "match"),
        ("another", 5, 0.0, "coupled"),
        ("another", 5, 0.3, "reject"),
        ("another", "auto", None, "auto"),
        ("another", "auto", None, "reject"),
    ],
)
def test_three_tokens_of_a_session_have_the_targets_joint_law(
    tiny: Path,
    law: dict[tuple[int, ...], float],
    tmp_path: Path,
    drafts: str,
    length: Any,
    p_min: Any,
    accept: Any,
) -> None:
    draft = tiny if drafts == "itself" else tiny_session.write(tmp_path / "other.gguf", seed=1)
    counts: Counter[tuple[int, ...]] = Counter()
    accepted = 0
    with Model.load(tiny, draft, threads=1) as model, model.session(n_ctx=64) as session:
        for seed in range(REQUESTS):
            result = session.generate(
                PROMPT,
                max_tokens=3,
                temperature=TEMPERATURE,
                top_k=TOP_K,
                top_p=1,
                seed=seed,
                draft_tokens=length,
                draft_p_min=p_min,
                accept=accept,
            ).result()
            assert accept == "auto" or result.stats.accept == accept
            counts[result.tokens] += 1
            accepted += result.stats.draft_n_accepted
    assert sum(counts[text] for text in law) == REQUESTS
    chi_square = sum(
        (counts[text] - REQUESTS * chance) ** 2 / (REQUESTS * chance) for text, chance in law.items()
    )
    assert chi_square < LIMIT
    assert accepted > 0 or drafts == "another" or length == "auto"
