"""What each layer keeps of a text: keys and values of all positions, of a window, or a state of fixed size.

The rules are llama.cpp's (llama-hparams.cpp, llama-kv-cache*.cpp, llama-memory-recurrent.cpp and the
architectures in src/models, as of llama-cpp-python 0.3.36).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...session.fit import ELEMENT
from .numbers import Numbers

UBATCH = 512  # tokens that are computed at once, by gguftools and by llama-server's default
CELLS = 256  # cells are counted in these


class _Pattern(NamedTuple):
    """Every `every`th layer sees all, the last of them or the first; `window` where no key says it."""

    every: int
    first: bool = False
    window: int = 0


_WINDOWED = {
    "afmoe": _Pattern(4),
    "cohere2": _Pattern(4),
    "cohere2moe": _Pattern(4, first=True),
    "exaone-moe": _Pattern(4, window=128),
    "exaone4": _Pattern(4),
    "gemma2": _Pattern(2, window=4096),
    "gemma3": _Pattern(6),
    "gemma3n": _Pattern(5),
    "gpt-oss": _Pattern(2),
    "laguna": _Pattern(4, first=True),
    "llama4": _Pattern(4, window=8192),
    "mellum": _Pattern(4),
    "muse-glimmer": _Pattern(4),
    "olmo2": _Pattern(4),
    "plamo3": _Pattern(8),
    "smallthinker": _Pattern(4, first=True),
}
# A layer is recurrent where it has no key and value heads …
_BY_HEADS = {
    *("bailingmoe3", "glm5-next", "granitehybrid", "jamba", "kimi-k3", "kimi-linear", "lfm2", "lfm2moe"),
    *("nemotron_h", "nemotron_h_moe", "plamo2"),
}
# … or every layer is but each Nth …
_BY_INTERVAL = {"qwen3next": 4, "qwen35": 4, "qwen35moe": 4, "qwen4exp": 4, "minimax-01": 8}
# … or all are.
_ALL_RECURRENT = {"mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"}
_BOTH = {"falcon-h1"}
ROLLBACK = {  # recurrent layers that keep a state for each of the last positions
    *("bailingmoe3", "deepseek4", "glm5-next", "kimi-k3", "lfm2", "lfm2moe", "nemotron_h", "nemotron_h_moe"),
    *("qwen35", "qwen35moe", "qwen4exp"),
}
_MORE = {  # what these keep besides is not counted
    *("deepseek32", "deepseek4", "dots3note", "glm-dsa", "glm5-next", "hy_v4", "minimax-m3", "qwen4exp"),
}


@dataclass(frozen=True, slots=True)
class Cache:
    """One layer's. k, v: elements of a position. window: 0 for all positions. state: bytes at any length."""

    k: int = 0
    v: int = 0
    window: int = 0
    state: int = 0

    def nbytes(self, n_ctx: int, types: tuple[str, str], *, windowed: bool = False) -> int:
        """Bytes of keys and values; `windowed`: of a window no more than it."""
        a_row = self.k * ELEMENT[types[0]] + self.v * ELEMENT[types[1]]
        return int(cells(n_ctx, self.window if windowed else 0) * a_row)


def cells(n_ctx: int, window: int = 0) -> int:
    """Positions that a cache has room for."""
    size = -(-n_ctx // CELLS) * CELLS
    if window:
        size = min(size, -(-(window + UBATCH) // CELLS) * CELLS)
    return size


def of_layers(numbers: Numbers, n_layers: int) -> tuple[Cache, ...]:
    """The Cache of each layer."""
    heads = numbers.each("attention.head_count", n_layers)
    heads_kv = numbers.each("attention.head_count_kv", n_layers, default=max(heads, default=0))
    recurrent = _recurrent(numbers, n_layers, heads_kv)
    windows = _windows(numbers, n_layers, recurrent)
    with_own = n_layers - numbers.one("attention.shared_kv_layers")
    with_own = min(with_own, 20) if numbers.architecture == "gemma3n" else with_own
    state = _state(numbers, max(heads, default=0))
    found = []
    for i in range(n_layers):
        attends = heads_kv[i] and i < with_own and (not recurrent[i] or numbers.architecture in _BOTH)
        k, v = widths(numbers, max(heads, default=0), windowed=windows[i] > 0)
        cache = Cache(k * heads_kv[i], v * heads_kv[i], windows[i]) if attends else Cache()
        found.append(Cache(cache.k, cache.v, cache.window, state if recurrent[i] else 0))
    return tuple(found)


def notes(numbers: Numbers) -> tuple[str, ...]:
    """What the figures leave out."""
    if numbers.architecture in _MORE:
        return (f"the index that {numbers.architecture} keeps beside its cache is not counted",)
    return ()


def is_latent(numbers: Numbers) -> bool:
    """Whether keys and values are one compressed row (MLA)."""
    return all(numbers.one(f"attention.{name}_length_mla") > 0 for name in ("key", "value"))


def widths(numbers: Numbers, heads: int, *, windowed: bool = False) -> tuple[int, int]:
    """Elements of one head's key and value in the cache."""
    default = numbers.one("embedding_length") // heads if heads else 0
    k, v = (numbers.one(f"attention.{name}_length", default) for name in ("key", "value"))
    if windowed:
        k, v = (numbers.one(f"attention.{n}_length_swa", x) for n, x in (("key", k), ("value", v)))
    return (k, 0) if is_latent(numbers) else (k, v)


def _recurrent(numbers: Numbers, n: int, heads_kv: tuple[int, ...]) -> list[bool]:
    arch = numbers.architecture
    if arch in _ALL_RECURRENT or arch in _BOTH:
        return [True] * n
    if arch.startswith("nemotron_h"):
        n_ff = numbers.each("feed_forward_length", n)
        return [not kv and not ff for kv, ff in zip(heads_kv, n_ff, strict=True)]
    if arch in _BY_HEADS:
        return [not kv for kv in heads_kv]
    if arch in _BY_INTERVAL:
        if numbers.is_array("attention.recurrent_layers"):
            return [bool(i) for i in numbers.each("attention.recurrent_layers", n)]
        every = max(1, numbers.one("full_attention_interval", _BY_INTERVAL[arch]))
        return [(i + 1) % every != 0 for i in range(n)]
    return [False] * n


def _windows(numbers: Numbers, n: int, recurrent: list[bool]) -> list[int]:
    """The window of each layer, 0 where it sees all."""
    key = "attention.sliding_window_pattern"
    pattern = _WINDOWED.get(numbers.architecture)
    window = numbers.one("attention.sliding_window", pattern.window if pattern else 0)
    if numbers.architecture == "llama4" and window:
        window = 8192  # the chunk, whatever the key says
    if not window:
        return [0] * n
    if numbers.is_array(key):
        return [window * bool(i) for i in numbers.each(key, n)]
    if numbers.architecture.startswith("lfm2"):
        return [window * (not r) for r in recurrent]
    if pattern is None:
        return [0] * n
    every = numbers.one(key, pattern.every)
    full = 0 if pattern.first else every - 1
    return [window * (every == 0 or i % every != full) for i in range(n)]


def _state(numbers: Numbers, heads: int) -> int:
    """Bytes of a recurrent layer's state, in F32."""
    n_embd = numbers.one("embedding_length")
    head, short, kda = (numbers.one(key) for key in ("wkv.head_size", "shortconv.l_cache", "kda.head_dim"))
    kernel, inner, size, groups = (
        numbers.one(f"ssm.{key}") for key in ("conv_kernel", "inner_size", "state_size", "group_count")
    )
    if head:
        return 4 * n_embd * (numbers.one("token_shift_count", 2) + head)
    if short:
        return 4 * n_embd * (short - 1)
    if kda:
        return 4 * heads * kda * (3 * (max(kernel - 1, 0) if kernel else 3) + kda)
    if numbers.architecture == "minimax-01":
        head = widths(numbers, heads)[0]
        return 4 * heads * head * head
    return 4 * (max(kernel - 1, 0) * (inner + 2 * groups * size) + size * inner)
