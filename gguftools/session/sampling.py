"""Sampling values: where they come from, whether they make sense, and the sampler that they give."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .. import libllama, recipes
from ..errors import InputError
from ..header import Header
from ..libllama.compat import library
from . import limits
from .limits import MAX_SEED

NAMES = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repeat_penalty",
    "frequency_penalty",
    "presence_penalty",
    "repeat_last_n",
)
GGUF_KEYS = {
    "temperature": "general.sampling.temp",
    "top_k": "general.sampling.top_k",
    "top_p": "general.sampling.top_p",
    "min_p": "general.sampling.min_p",
    "repeat_penalty": "general.sampling.penalty_repeat",
    "repeat_last_n": "general.sampling.penalty_last_n",
}


@dataclass(frozen=True, slots=True)
class Sampling:
    """temperature 0: greedy. top_k 0, top_p 1, min_p 0, repeat_penalty 1, the others 0: off.

    repeat_last_n: tokens that the penalties look back on, -1 for the whole context.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.0
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repeat_last_n: int = 64
    sources: tuple[tuple[str, str], ...] = ()  # (value's name, source); "default" where absent

    @property
    def is_greedy(self) -> bool:
        return self.temperature <= 0

    @property
    def has_penalties(self) -> bool:
        off = self.repeat_penalty == 1 and self.frequency_penalty == 0 and self.presence_penalty == 0
        return not off and self.repeat_last_n != 0

    @property
    def source(self) -> str:
        """For people: "temperature 0.6 (family Kimi-K2-Instruct), top_k 40 (default), …"."""
        where = dict(self.sources)
        shown = NAMES if self.has_penalties else NAMES[:4]
        if self.is_greedy:
            shown = ("temperature", *shown[4:])
        return ", ".join(f"{name} {getattr(self, name):g} ({where.get(name, 'default')})" for name in shown)

    def using(self, given: Mapping[str, Any], source: str) -> Sampling:
        """With the values of `given` that are not None. Raises InputError for one out of range."""
        new = {name: value for name, value in given.items() if value is not None}
        origins = {**dict(self.sources), **dict.fromkeys(new, source)}
        changed = replace(self, **new, sources=tuple(origins.items()))
        changed.check()
        return changed

    def check(self) -> None:
        for name in NAMES:
            limits.check(name, getattr(self, name))


def defaults(header: Header) -> Sampling:
    """A model's own values: from its GGUF, then from models/sampling.toml, then the fixed ones."""
    found = Sampling()
    family = _family(header)
    if family is not None:
        values = {name: family[name] for name in NAMES if name in family}
        found = found.using(values, f"family {family['name']}")
    own = {name: header.keys.get(key) for name, key in GGUF_KEYS.items()}
    for name, value in own.items():
        try:
            found = found.using({name: value}, "GGUF")
        except InputError:
            continue  # a senseless value in a file is as good as none
    return found


def _family(header: Header) -> Mapping[str, Any] | None:
    keys = ("general.name", "general.basename", "general.finetune")
    name = " ".join([*(str(header.keys.get(key, "")) for key in keys), header.path.name])
    for family in recipes.load("sampling")["family"]:
        fits = header.architecture in family.get("architecture", (header.architecture,))
        if fits and re.search(family["pattern"], name, re.IGNORECASE):
            return dict(family)
    return None


def check_seed(seed: int | None) -> int:
    """The seed, a new one for None. Raises InputError."""
    if seed is None:
        return secrets.randbelow(MAX_SEED + 1)
    limits.check("seed", seed)
    return seed


@dataclass(frozen=True, slots=True)
class Chain:
    """How the engine draws. n_penalty: tokens that penalties look back on.

    values: (temperature, top_k, top_p, min_p, repeat, frequency, presence) for the engine's own chain. With a
    grammar `sampler` holds libllama's chain beside it; preselect: k when top-k comes first.
    """

    values: tuple[float, int, float, float, float, float, float]
    n_penalty: int
    sampler: libllama.Sampler | None = None
    preselect: int = 0

    @property
    def draws(self) -> bool:
        """Whether the engine itself draws, and not always the largest."""
        return self.sampler is None and self.values[0] > 0

    def close(self) -> None:
        if self.sampler is not None:
            self.sampler.close()


def chain(values: Sampling, seed: int, weights: libllama.Weights, n_ctx: int, grammar: str | None) -> Chain:
    """Stages in llama.cpp's order: penalties, top-k, top-p, min-p, temperature, draw. Raises GrammarError."""
    top_k = values.top_k if 0 < values.top_k < weights.n_vocab else 0
    last_n = n_ctx if values.repeat_last_n < 0 else min(values.repeat_last_n, n_ctx)
    penalties = (values.repeat_penalty, values.frequency_penalty, values.presence_penalty)
    if not values.has_penalties:
        penalties, last_n = (1.0, 0.0, 0.0), 0
    own = (values.temperature, top_k, values.top_p, values.min_p, *penalties)
    if grammar is None:
        return Chain(own, last_n)
    allowed = libllama.grammar(weights, grammar)
    stages = [] if values.is_greedy else _stages(values, top_k, seed)
    if last_n:
        stages.insert(0, library().llama_sampler_init_penalties(weights.n_vocab, last_n, *penalties))
        if values.is_greedy:
            stages.append(library().llama_sampler_init_greedy())
    return Chain(own, last_n, libllama.Sampler(stages, allowed), 0 if last_n or values.is_greedy else top_k)


def _stages(values: Sampling, top_k: int, seed: int) -> list[Any]:
    """libllama's samplers of what follows the penalties."""
    lib = library()
    stages: list[Any] = [lib.llama_sampler_init_top_k(top_k)] if top_k else []
    if values.top_p < 1:
        stages.append(lib.llama_sampler_init_top_p(values.top_p, 1))
    if values.min_p > 0:
        stages.append(lib.llama_sampler_init_min_p(values.min_p, 1))
    return [*stages, lib.llama_sampler_init_temp(values.temperature), lib.llama_sampler_init_dist(seed)]
