"""`bench --server`: what each kind of server tells is read, and what none should tell is refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from llm_server import Fake, serve

from gguftools import errors
from gguftools.verbs.bench import bench_server, http, servers
from gguftools.verbs.bench.http import Address

PROMPTS = ["Say one.", "Say two."]


@pytest.fixture
def llama() -> Iterator[Fake]:
    with serve("llamacpp") as fake:
        yield fake


@pytest.fixture
def vllm() -> Iterator[Fake]:
    with serve("vllm") as fake:
        yield fake


@pytest.fixture
def sglang() -> Iterator[Fake]:
    with serve("sglang") as fake:
        yield fake


def test_llama_server_s_own_timings_and_counts_are_the_report_s(llama: Fake) -> None:
    llama.metrics = False
    report = bench_server(llama.url + "/v1/", prompts=PROMPTS, max_tokens=12)
    found = report.to_json()
    assert found["target"] == "m"
    assert found["draft"]["tokens_per_second"] == 40
    assert found["draft"]["prompt_ms"] == 30
    assert found["acceptance_rate"] == 7 / 8
    assert found["mean_acceptance_length"] == pytest.approx(12 / 5)  # 5 of 12 tokens are the target's own
    assert found["acceptance_by_position"] == []
    assert (found["plain"], found["speedup"], found["same_text"]) == (None, None, None)
    assert all(body["cache_prompt"] is False for body in llama.asked)


def test_llama_server_s_metrics_add_the_acceptance_by_position(llama: Fake) -> None:
    found = bench_server(llama.url, prompts=PROMPTS, max_tokens=12).to_json()
    assert found["acceptance_rate"] == 7 / 8
    assert found["acceptance_by_position"] == [1, 0.75]
    assert found["proposed_by_position"] == [8, 8]  # two answers; the one to warm up is not counted


def test_vllm_s_counters_are_read_before_and_after(vllm: Fake) -> None:
    vllm.answers = 1000
    report = bench_server(vllm.url, prompts=PROMPTS, max_tokens=12)
    found = report.to_json()
    assert found["acceptance_rate"] == 7 / 8
    assert found["mean_acceptance_length"] == 1 + 7 / 4
    assert found["acceptance_by_position"] == [1, 0.75]
    assert 0 < found["draft"]["tokens_per_second"] < 12 / (11 * 0.002)
    assert found["draft"]["tokens"] == 24
    assert len({body["cache_salt"] for body in vllm.asked}) == 3  # no answer finds another's prompt
    assert "others included" in report.notes[0]


def test_sglang_s_mean_length_is_read_where_it_has_no_counters(sglang: Fake) -> None:
    report = bench_server(sglang.url, prompts=PROMPTS, max_tokens=12)
    assert report.draft is not None
    assert report.draft.name.startswith("SGLang at http://127.0.0.1:")
    assert report.draft.acceptance.mean_length == 2.5
    assert report.draft.acceptance.rate == 0.75
    assert "since it was started" in report.notes[0]


def test_a_server_that_tells_nothing_of_its_drafts_is_measured_by_our_clock(vllm: Fake) -> None:
    vllm.metrics, vllm.kind = False, "somebody"
    report = bench_server(vllm.url, prompts=PROMPTS, max_tokens=12)
    assert report.to_json()["acceptance_rate"] is None
    assert report.draft is not None
    assert report.draft.name == f"server at {vllm.url}"
    assert report.draft.tokens_per_second > 0


def test_a_baseline_gives_the_speed_up_and_whether_the_texts_are_the_same(llama: Fake) -> None:
    with serve("llamacpp") as plain:
        plain.per_second = 50.0
        report = bench_server(llama.url, plain.url, prompts=PROMPTS, max_tokens=12)
        assert report.speedup.value == pytest.approx(0.8)
        assert report.same_text is True
        assert report.advice[0].startswith("The draft does not pay here: 0.80 ×")
        plain.words, plain.model = ["other"], "n"
        report = bench_server(llama.url, plain.url, prompts=PROMPTS, max_tokens=12)
        assert report.same_text is None
        assert report.notes[-1] == "the servers name different models: n and m"
    with pytest.raises(errors.InputError, match="the same server"):
        bench_server(llama.url, llama.url + "/v1")


def test_the_prompts_are_asked_in_turns(llama: Fake) -> None:
    order: list[str] = []
    with serve("llamacpp") as plain:
        for name, fake in (("server", llama), ("plain", plain)):
            fake.asked = type("Log", (list,), {"append": lambda self, body, name=name: order.append(name)})()
        bench_server(llama.url, plain.url, prompts=PROMPTS, max_tokens=12)
    assert order == ["plain", "server", "plain", "server", "server", "plain"]  # the first two warm up


def test_what_is_no_such_server_is_refused_with_a_reason(llama: Fake) -> None:
    for url in ("127.0.0.1:8080", "ftp://host", "http://", "http://[", "http://host:port"):
        with pytest.raises(errors.InputError, match="no server's URL"):
            http.address(url)
    llama.status = 404
    with pytest.raises(errors.ServerError, match="answers 404\nno such model"):
        bench_server(llama.url, prompts=PROMPTS)
    llama.key = True
    with pytest.raises(errors.ServerError, match="wants a key"):
        servers.connect(llama.url)
    llama.key = False
    llama.model = None  # type: ignore[assignment]
    with pytest.raises(errors.ServerError, match="no server that can be measured"):
        servers.connect(llama.url)
    with pytest.raises(errors.ServerError, match="no answer"):
        servers.connect("http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "an answer without text"),
        (b"data: [DONE]\n\n", "an answer without text"),
        (b"data: {nonsense\n\n", "no JSON object"),
        (b"data: [1]\n\n", "no JSON object"),
        (b"data: " + b"[" * 100_000 + b"\n\n", "no JSON object"),
        (b'data: {"error": {"message": "out of memory"}}\n\n', "out of memory"),
        (b'error: {"code": 500, "message": "slot failed"}\n\n', "slot failed"),
        (b'data: {"choices": 7, "usage": [], "timings": "no"}\n\n', "an answer without text"),
        (b"data: " + b"x" * 5_000_000 + b"\n", "larger than it can be"),
        ((b": ping" + b"!" * 1_000_000 + b"\n") * 34, "larger than it can be"),
    ],
)
def test_a_senseless_answer_is_an_error_that_says_so(llama: Fake, body: bytes, why: str) -> None:
    llama.raw = body
    with pytest.raises(errors.ServerError, match=why):
        bench_server(llama.url, prompts=PROMPTS)


def test_senseless_numbers_are_as_good_as_none(llama: Fake) -> None:
    llama.metrics = False
    llama.raw = (
        b'data: {"choices": [{"delta": {"content": "a"}}], "usage": {"completion_tokens": -3},'
        b' "timings": {"predicted_n": "many", "predicted_ms": 1e400, "draft_n": true}}\n\n'
        b'data: {"choices": [{"delta": {"reasoning_content": "b"}}]}\n\n'
    )
    found = bench_server(llama.url, prompts=PROMPTS).to_json()
    assert found["draft"]["tokens"] == 4
    assert found["acceptance_rate"] == 0


def test_urls_keep_their_path_without_v1() -> None:
    assert http.address("https://host/gate/v1") == Address("https", "host", 443, "/gate")
    assert str(http.address("http://[::1]:80/v1/")) == "http://[::1]:80"
