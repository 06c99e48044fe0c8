"""A running llama-server, SGLang or vLLM, measured from outside through the API that all three have.

Each is asked by POST /v1/chat/completions with stream, and told apart by GET /v1/models ("owned_by"). What
they tell of speculation differs: llama-server counts drafted tokens in each answer's `timings`, vLLM (and
llama-server with --metrics) in counters at /metrics, SGLang as an average at /metrics or /server_info.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from ...errors import ServerError
from . import http, measures
from .http import Address
from .measures import Acceptance, Position
from .prompts import Prompt
from .runs import Ask, Run, Runs

NAMES = {"llamacpp": "llama-server", "sglang": "SGLang", "vllm": "vLLM"}
COUNTED = "spec_decode_num_"  # what vLLM and llama-server call their counters
_SAMPLE = re.compile(
    r"^(?:vllm|llamacpp|sglang):(\w+?)(?:_total)?(?:\{(.*)\})?\s+([-+.\deE]+)\s*(?:\d+)?$", re.MULTILINE
)
_POSITION = re.compile(r'(?:^|,)\s*position="(\d{1,3})"')

Counters = Mapping[tuple[str, int], float]  # (name, position; -1: none) → value


@dataclass(frozen=True, slots=True)
class Server:
    """kind: one of NAMES, or "" for another server with the same API. model: what it calls its model."""

    address: Address
    kind: str
    model: str

    @property
    def name(self) -> str:
        return f"{NAMES.get(self.kind, 'server')} at {self.address}"

    def way(self, prompts: Sequence[Prompt], temperature: float, seed: int) -> Ask:
        """Asks this server."""

        def ask(prompt: int, max_tokens: int) -> Run:
            body = {
                "model": self.model,
                "messages": [dict(message) for message in prompts[prompt].messages],
                "max_tokens": max_tokens,
                "temperature": temperature,
                "seed": seed,
                "stream": True,
                "stream_options": {"include_usage": True},
                **self._fresh(),
            }
            return self._run(body)

        return ask

    def _fresh(self) -> dict[str, Any]:
        """Keeps an answer from using what the one before left in the prompt cache, where that can be said."""
        if self.kind == "llamacpp":
            return {"cache_prompt": False}
        return {"cache_salt": secrets.token_hex(16)} if self.kind == "vllm" else {}

    def _run(self, body: Mapping[str, Any]) -> Run:
        started = time.perf_counter()
        times: list[float] = []
        texts: list[str] = []
        usage: Mapping[str, Any] = {}
        timings: Mapping[str, Any] = {}
        for event in http.events(self.address, "/v1/chat/completions", body):
            text = _text(event)
            if text:
                times.append(time.perf_counter())
                texts.append(text)
            usage = _object(event, "usage") or usage
            timings = _object(event, "timings") or timings
        if not texts:
            raise ServerError(f"{self.address}: an answer without text", "", "does it answer a chat message?")
        n = _count(usage, "completion_tokens") or _count(timings, "predicted_n") or len(texts)
        first, last = times[0], times[-1]
        # The first piece of text is the prompt's own token; the clock runs over those after it.
        ms = 1000 * (last - first) * n / (n - 1) if n > 1 and last > first else 1000 * (last - started)
        return Run(
            text="".join(texts),
            n=_count(timings, "predicted_n") or n,
            ms=_number(timings, "predicted_ms") or ms,
            prompt_ms=_number(timings, "prompt_ms") or 1000 * (first - started),
            draft_n=(_count(timings, "draft_n") or 0) if timings else None,  # it is left out when it is 0
            draft_n_accepted=_count(timings, "draft_n_accepted"),
        )

    def counters(self) -> Counters:
        """What /metrics counts; empty where the server does not show it."""
        text = (http.get(self.address, "/metrics") or b"").decode("utf-8", "replace")
        found: dict[tuple[str, int], list[float]] = {}
        for name, labels, value in _SAMPLE.findall(text):
            match = _POSITION.search(labels)
            with suppress(ValueError):
                found.setdefault((name, int(match[1]) if match else -1), []).append(float(value))
        # A server of several engines has a line for each: counts add up, SGLang's averages do not.
        return {
            (name, place): fmean(values) if name.startswith("spec_accept") else sum(values)
            for (name, place), values in found.items()
        }

    def acceptance(self, runs: Runs, before: Counters) -> tuple[Acceptance, list[str]]:
        """How much of the drafts was kept, with remarks on where that comes from."""
        after = self.counters()
        done = {key: value - before.get(key, 0.0) for key, value in after.items()}
        told = measures.acceptance(runs)
        counted = _from_counters(done)
        if counted is not None:
            notes = ["acceptance is what the server counted meanwhile, those of others included"]
            if told.rate:
                return Acceptance(told.rate, told.mean_length, counted.positions), []
            return counted, notes
        if self.kind == "sglang":
            return self._sglang(runs, done, after)
        if told.rate is None:
            return told, ["the server does not tell what it drafts; vLLM and SGLang do at /metrics"]
        return told, [] if told.rate else ["the server drafted nothing"]

    def _sglang(self, runs: Runs, done: Counters, after: Counters) -> tuple[Acceptance, list[str]]:
        rate = after.get(("spec_accept_rate", -1))
        steps = done.get(("spec_verify_calls", -1), 0.0)
        tokens = sum(run.n for run in measures.each(runs))
        if steps > 0 and tokens >= steps:
            return Acceptance(rate, tokens / steps), []
        for path in ("/server_info", "/get_server_info"):
            states = _object(http.get_json(self.address, path), "internal_states", list)
            length = _number(states[0], "avg_spec_accept_length") if states else None
            if length:
                return Acceptance(rate, length), [
                    "the acceptance length is SGLang's mean since it was started"
                ]
        length = after.get(("spec_accept_length", -1))
        notes = ["the acceptance length is the one that SGLang showed last"] if length else []
        return Acceptance(rate, length or None), notes or [
            "SGLang tells what it drafts with --enable-metrics"
        ]


def connect(url: str) -> Server:
    """Asks which server this is. Raises InputError, ServerError."""
    where = http.address(url)
    models = _object(http.get_json(where, "/v1/models"), "data", list)
    first = models[0] if models and isinstance(models[0], dict) else {}
    name, kind = first.get("id"), first.get("owned_by")
    if not isinstance(name, str):
        raise ServerError(
            f"{where} is no server that can be measured",
            "it has no /v1/models, as llama-server, SGLang and vLLM have",
            "give the address of such a server",
        )
    return Server(where, kind if isinstance(kind, str) and kind in NAMES else "", name)


def _from_counters(done: Counters) -> Acceptance | None:
    """From vLLM's and llama-server's counters; None where they did not move."""
    drafts, drafted, kept = (
        done.get((COUNTED + name, -1), 0.0) for name in ("drafts", "draft_tokens", "accepted_tokens")
    )
    if drafts <= 0 or drafted <= 0:
        return None
    places = sorted(place for name, place in done if name == f"{COUNTED}accepted_tokens_per_pos")
    positions = tuple(
        Position(round(drafts), round(done[f"{COUNTED}accepted_tokens_per_pos", place])) for place in places
    )
    return Acceptance(kept / drafted, 1 + kept / drafts, positions)


def _text(event: Mapping[str, Any]) -> str:
    """What an event adds to the answer, reasoning included."""
    choices = _object(event, "choices", list)
    delta = _object(choices[0], "delta") if choices else {}
    parts = [delta.get(name) for name in ("reasoning_content", "reasoning", "content")]
    return "".join(part for part in parts if isinstance(part, str))


def _object(holder: Any, name: str, kind: type = dict) -> Any:
    """The member `name`, an empty `kind` where it is missing or of another type."""
    found = holder.get(name) if isinstance(holder, dict) else None
    return found if isinstance(found, kind) else kind()


def _number(holder: Any, name: str) -> float | None:
    found = holder.get(name) if isinstance(holder, dict) else None
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        return None
    return float(found) if 0 <= found < 1e15 else None


def _count(holder: Any, name: str) -> int | None:
    found = _number(holder, name)
    return None if found is None else int(found)
