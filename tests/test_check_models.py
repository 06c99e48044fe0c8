"""check: what is known of Kimi, of eagle3 heads and of chat templates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFValueType as T
from pairs import IF, LOOP, TOKENS, N, failed, kimi_with, made, pair
from tiny_gguf import letters

from gguftools.verbs.check import check
from gguftools.verbs.check.templates import prompt_inside_loop
from gguftools.vocab import Vocab

# Kimi, Qwen


@pytest.fixture(scope="module")
def kimi(kimi_folder: Path) -> Vocab:
    return Vocab.from_checkpoint(kimi_folder)


def test_kimi_k2_and_k3_differ_in_names_alone(kimi: Vocab, tmp_path: Path, shared_data: Path) -> None:
    k3 = json.loads((shared_data / "kimi" / "kimi_k3.special_tokens.json").read_text())
    names = {int(i): text for i, text in _names(k3).items()}
    report = check(kimi_with(kimi, names, tmp_path, "k3"), kimi_with(kimi, {}, tmp_path, "k2"))
    assert report.verdict == "alignable"
    assert {rule.name for rule in report.failed() if rule.source == "llama.cpp"} == {"texts"}
    assert report.shared_fraction > 0.999
    assert all(i >= 163584 for i in report.unshared)


def _names(content: Any) -> dict[str, str]:
    if isinstance(content, dict) and all(isinstance(v, int) for v in content.values()):
        return {str(i): text for text, i in content.items()}
    return {str(i): text for i, text in content.items()}


def test_a_kimi_folder_and_its_gguf_are_identical(kimi: Vocab, kimi_folder: Path, tmp_path: Path) -> None:
    path = kimi_with(kimi, {}, tmp_path, "k2", merges=list(kimi.merges))
    report = check(path, kimi_folder)
    assert [rule.name for rule in report.failed()] in ([], ["special ids"])
    assert f"gguftools convert {kimi_folder} -o draft.gguf" in report.advice


def test_a_distilled_qwen_with_changed_specials_is_alignable(tmp_path: Path) -> None:
    qwen = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    r1 = ["<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"]
    report = pair(tmp_path, {"tokens": letters(N) + qwen}, tokens=letters(N) + r1)
    assert report.verdict == "alignable"
    assert [d.target for d in report.differences] == qwen


# Heads


def head(folder: Path, **change: Any) -> Path:
    keys: dict[str, Any] = {"eagle3.target_hidden_size": 64}
    layers = (np.array([1, 2, 3], np.uint32).tolist(), T.ARRAY)
    return made(
        folder,
        "head",
        **{"arch": "eagle3", "keys": keys, "typed": {"eagle3.target_layers": layers}, **change},
    )


@pytest.mark.parametrize("arch", ["deepseek2", "kimi-linear", "kimi-k3", "qwen2", "gemma3"])
def test_an_eagle3_head_would_end_the_process_with_these_targets(tmp_path: Path, arch: str) -> None:
    report = check(made(tmp_path, "target", arch=arch), head(tmp_path))
    assert (report.verdict, report.usable) == ("incompatible", False)
    assert "ends the process" in next(rule.effect for rule in report.failed() if rule.name == "layer inputs")
    assert any("Do not load" in line for line in report.advice)


@pytest.mark.parametrize("arch", ["llama", "qwen3", "gpt-oss"])
def test_an_eagle3_head_runs_in_llama_cpp_but_not_here_with_these(tmp_path: Path, arch: str) -> None:
    keys = {f"{arch}.embedding_length": 64, f"{arch}.block_count": 4}
    report = check(made(tmp_path, "target", arch=arch, keys=keys), head(tmp_path))
    assert report.verdict in ("identical", "compatible")
    assert not report.usable


def test_an_eagle3_head_made_for_another_target_is_fatal(tmp_path: Path) -> None:
    keys = {"llama.embedding_length": 128, "llama.block_count": 2}
    report = check(made(tmp_path, "target", keys=keys), head(tmp_path))
    assert {"hidden size", "layers"} <= set(failed(report))
    assert report.verdict == "incompatible"


# Templates


@pytest.mark.parametrize(
    ("template", "inside"),
    [
        (LOOP + "{% endfor %}" + IF, False),
        (LOOP + IF + "{% endfor %}", True),
        (LOOP + "{%- if loop.last and add_generation_prompt -%}x{% endif %}{% endfor %}", False),
        (LOOP + "{% if loop.last %}" + IF + "{% endif %}{% endfor %}", False),
        (LOOP + "{% if m.role == 'user' %}u{% elif add_generation_prompt %}a{% endif %}{% endfor %}", True),
        ("{% for t in tools %}{{ t }}{% endfor %}" + IF, False),
        ("{% endfor %}{% endif %}", False),
        ("{% if x %}" + LOOP + "{% endfor %}{% endif %}" + IF, False),
    ],
)
def test_a_header_inside_the_loop_is_seen(template: str, inside: bool) -> None:
    assert prompt_inside_loop(template) is inside


def test_headers_that_the_draft_lacks_are_reported(tmp_path: Path) -> None:
    target = {"keys": {"tokenizer.chat_template": "<|user|>{{ x }}<|end|>"}}
    report = pair(tmp_path, target, tokens=[*TOKENS[:N], "<|end|>", "<|human|>", "<|pad|>"])
    rule = next(rule for rule in report.failed() if rule.name == "template headers")
    assert "<|user|>" in rule.effect


def test_a_draft_with_a_short_context_is_reported(tmp_path: Path) -> None:
    report = pair(tmp_path, {"keys": {"llama.context_length": 8192}}, keys={"llama.context_length": 2048})
    assert report.verdict == "identical"
    assert "context length" in failed(report)


@pytest.mark.parametrize(
    ("rope", "wrong"),
    [
        ({"type": "yarn", "factor": 32.0, "beta_fast": 1.0}, True),
        ({"rope_type": "yarn", "factor": 32.0, "beta_fast": 32}, False),
        ({"rope_type": "yarn", "factor": 32.0}, False),
        ({"rope_type": "linear", "factor": 4.0, "beta_fast": 1}, False),
        ([], False),
        (None, False),
    ],
)
def test_a_folder_whose_yarn_llama_cpp_would_not_follow_is_told(
    kimi_folder: Path, tmp_path: Path, rope: Any, wrong: bool
) -> None:
    for path in kimi_folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"model_type": "kimi_k2", "rope_scaling": rope}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = [rule for rule in check(tmp_path).failed() if rule.name == "YaRN beta_fast"]
    assert [rule.target for rule in found] == ["1"] * wrong
    assert all("yarn_beta_fast = 1" in rule.mend for rule in found)


def test_an_eot_that_one_side_names_and_the_other_finds_is_no_difference(tmp_path: Path) -> None:
    tokens = [*TOKENS[:-3], "<|im_end|>", *TOKENS[-2:]]
    target = made(tmp_path, "t", tokens=tokens, ids={"bos": N + 1, "eos": N, "eot": N})
    draft = made(tmp_path, "d", tokens=tokens)
    assert check(target, draft).verdict == check(draft, target).verdict == "identical"
    other = made(tmp_path, "o", tokens=tokens, ids={"bos": N + 1, "eos": N, "eot": N + 2})
    assert check(target, other).verdict == "compatible"
