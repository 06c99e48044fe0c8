"""How much memory a model takes: weights, what it keeps of the text, and room to compute.

Weights and cache are exact. The room to compute is an estimate from above of the buffers that llama.cpp
reserves with flash attention on: the larger of the output's and of the widest layer's intermediate results,
for a batch of UBATCH tokens. docs/info.md says how near it comes.
"""

from __future__ import annotations

from ...session.engine import N_DRAFT_MAX
from .caches import UBATCH, cells
from .results import Memory
from .shape import Shape

OURS = N_DRAFT_MAX + 1  # rows of logits that gguftools asks of one batch
SERVER = UBATCH  # and llama-server
COPIES = 4  # ggml's GGML_SCHED_MAX_COPIES

_F32, _F16 = 4, 2


def needed(shape: Shape, n_ctx: int, types: tuple[str, str], *, drafts: bool = False) -> Memory:
    """In main memory alone. drafts: recurrent layers keep earlier states."""
    kept = (cache_bytes(shape, n_ctx, types, windowed=windowed) for windowed in (False, True))
    full, window = kept
    state = state_bytes(shape, drafts=drafts)
    ours, server = (alone(shape, n_ctx, rows) for rows in (OURS, SERVER))
    total = shape.nbytes + full + state + ours
    return Memory(n_ctx, *types, shape.nbytes, full, window, state, ours, server, total, shape.notes)


def cache_bytes(shape: Shape, n_ctx: int, types: tuple[str, str], *, windowed: bool = False) -> int:
    """Of keys and values, all layers."""
    return sum(layer.cache.nbytes(n_ctx, types, windowed=windowed) for layer in shape.layers)


def state_bytes(shape: Shape, *, drafts: bool = False) -> int:
    """Of recurrent layers."""
    rows = 1 + N_DRAFT_MAX if drafts and shape.rollback else 1
    return rows * sum(layer.cache.state for layer in shape.layers)


def alone(shape: Shape, n_ctx: int, rows: int) -> int:
    """Room to compute without a GPU."""
    return compute(shape, n_ctx, rows) + 2 * _embd(shape)


def beside(shape: Shape, n_ctx: int, copies: int = 1) -> int:
    """Room in main memory beside GPUs that compute: what goes in, and the masks."""
    return _embd(shape) + copies * (_embd(shape) + masks(shape, n_ctx))


def compute(shape: Shape, n_ctx: int, rows: int, copies: int = 1) -> int:
    """Room on the device that computes; rows: of logits, 0 where the output is elsewhere.

    copies: of what goes in; several GPUs work on COPIES batches at once where they hold everything.
    """
    mask = masks(shape, n_ctx)
    output = rows * shape.widths.n_vocab * _F32 + 3 * _embd(shape) if rows else 0
    layer = max(_ffn(shape), _experts(shape), _attention(shape), _state(shape))
    if copies > 1:
        return max(output, layer) + copies * (mask + _embd(shape)) + 2 * _embd(shape)
    if any(layer.cache.window for layer in shape.layers):
        output += mask  # two masks leave holes that the logits do not fit into
    return max(output if rows else 0, mask + layer)


def masks(shape: Shape, n_ctx: int) -> int:
    """One mask for the layers that see all and one for each kind of window, as long as the cache is."""
    kinds = {layer.cache.window > 0 for layer in shape.layers if layer.cache.k}
    return len(kinds) * cells(n_ctx) * UBATCH * _F16


def _embd(shape: Shape) -> int:
    return shape.widths.n_embd * UBATCH * _F32


def _ffn(shape: Shape) -> int:
    return 3 * shape.widths.n_ff * UBATCH * _F32 + 3 * _embd(shape)


def _experts(shape: Shape) -> int:
    """Of all experts that the tokens of a batch wake: what goes through them, and what each gives back."""
    if not shape.widths.experts:
        return 0
    inner, back = (
        shape.widths.experts_used * width * UBATCH * _F32
        for width in (shape.widths.n_ff_expert or shape.widths.n_ff, shape.widths.n_embd)
    )
    return max(2 * back + inner + 2 * _embd(shape), 3 * inner + 4 * _embd(shape))


def _attention(shape: Shape) -> int:
    w = shape.widths
    if w.latent:
        return w.heads * (w.key + 2 * w.value) * UBATCH * _F32 + _embd(shape)
    return (2 * w.heads * w.key + w.heads_kv * (w.key + w.value)) * UBATCH * _F32 + 2 * _embd(shape)


def _state(shape: Shape) -> int:
    """Recurrent layers: a few times the width of their state's rows; a rough figure."""
    return 16 * _embd(shape) if any(layer.cache.state for layer in shape.layers) else 0
