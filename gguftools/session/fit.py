"""How large a context fits. The rule:

n_ctx = min(32,768, what the model was trained on, what the memory holds), a multiple of 256, at least 512.
A token costs, per layer, its key and value heads in the cache's types. Layers on GPUs count against the GPUs'
free memory, the others against main memory; of each, RESERVE and a tenth stay free for compute buffers.
Memory-mapped weights are not resident yet, so their size is taken off first, as is the draft's own cache.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..header import Header

MAX_CTX = 32_768
MIN_CTX = 512
STEP = 256
RESERVE = 512 << 20  # bytes
ELEMENT = {  # bytes of an element in a cache type
    "f32": 4.0,
    "f16": 2.0,
    "bf16": 2.0,
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "q4_1": 20 / 32,
    "q4_0": 18 / 32,
    "iq4_nl": 18 / 32,
}


def n_layers(header: Header) -> int:
    """Blocks of the model, at least 1."""
    return max(1, header.get_int(f"{header.architecture}.block_count", 1))


def cache_bytes(header: Header, type_k: str, type_v: str) -> float:
    """Bytes of cache per token, all layers; an upper bound where some have a sliding window or no cache."""
    prefix = f"{header.architecture}.attention."
    embedding = header.get_int(f"{header.architecture}.embedding_length", 0)
    heads = int(_numbers(header, prefix + "head_count", 1).max(initial=1))
    heads_kv = _numbers(header, prefix + "head_count_kv", heads)
    layers = n_layers(header)
    total = float(heads_kv[:layers].sum() if len(heads_kv) > 1 else heads_kv[0] * layers)
    width = embedding / max(1, heads)
    # An unknown type is refused later, with the names of the known ones.
    bytes_k, bytes_v = ELEMENT.get(type_k, 2.0), ELEMENT.get(type_v, 2.0)
    key = header.get_int(prefix + "key_length", 0) or width
    value = header.get_int(prefix + "value_length", 0) or width
    return total * (key * bytes_k + value * bytes_v)


def _numbers(header: Header, key: str, default: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """One number, or one per layer, as an array."""
    value = header.keys.get(key, default)
    if isinstance(value, np.ndarray) and value.size and value.dtype.kind in "iu":
        return value.astype(np.int64)
    return np.array([value if isinstance(value, int) else default], np.int64)


def context_size(
    per_token: float,
    trained: int,
    gpu_share: float,
    gpu_free: int,
    main_free: int,
    taken: Sequence[float] = (),
) -> int:
    """The default n_ctx.

    per_token: cache_bytes of the target. gpu_share: share of the layers on GPUs.
    gpu_free, main_free: bytes, 0 for unknown (not limited by it). taken: bytes of
    main memory that others are still to take: mapped weights, the draft's cache.
    """
    most = min(MAX_CTX, trained or MAX_CTX)
    rooms = [(gpu_share, gpu_free, 0), (1 - gpu_share, main_free, sum(taken))]
    for share, free, others in rooms:
        if share > 0 and free > 0 and per_token > 0:
            left = max(0.0, 0.9 * free - others - RESERVE)
            most = min(most, int(left / (per_token * share)))
    least = min(MIN_CTX, trained or MIN_CTX)
    return max(least, most - most % STEP if most >= STEP else most)
