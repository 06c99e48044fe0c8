"""The C engine of a session: what it is made with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import _native
from ..libllama import Context, Weights
from . import limits

if TYPE_CHECKING:
    from .model import Model

N_DRAFT_MAX = int(limits.LIMITS["draft_tokens"].high)


def engine(model: Model, target: Context, draft: Context | None) -> _native.Engine:
    draft_params: dict[str, Any] = {}
    if draft is not None and model.draft is not None:
        rewind, bound = _rewind(model.draft, draft)
        draft_params = {
            "draft": draft.handle,
            "draft_n_vocab": model.draft.n_vocab,
            "draft_n_ctx": draft.n_ctx,
            "draft_n_batch": draft.n_batch,
            "draft_n_ubatch": draft.n_ubatch,
            "draft_rewind": rewind,
            "draft_rewind_bound": bound,
            "to_draft": model.exchange.to_draft if model.exchange else None,
            "to_target": model.exchange.to_target if model.exchange else None,
        }
    rewind, bound = _rewind(model.target, target)
    return _native.Engine(
        target.handle,
        n_vocab=model.target.n_vocab,
        n_ctx=target.n_ctx,
        n_batch=target.n_batch,
        n_ubatch=target.n_ubatch,
        n_draft_max=min(N_DRAFT_MAX, target.n_batch - 1),
        eog=model.eog,
        rewind=rewind,
        rewind_bound=bound,
        **draft_params,
    )


def _rewind(weights: Weights, context: Context) -> tuple[int, int]:
    """How a cache can be cut back: attention anywhere, recurrent memory by snapshots or a checkpoint."""
    if not weights.is_recurrent:
        return _native.Rewind.ANY, 0
    if context.n_rs_seq > 0:
        return _native.Rewind.BOUNDED, context.n_rs_seq
    return _native.Rewind.CHECKPOINT, 0
