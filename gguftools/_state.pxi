# What an Engine holds between requests, as bytes for a file: csrc/state.h is the manual.

cdef extern from "state.h" nogil:
    ctypedef struct gt_state_part:
        const uint8_t *data
        size_t size
        int32_t n
        int32_t base
    ctypedef struct gt_state:
        const int32_t *ids
        int32_t n_ids
        gt_state_part target
        gt_state_part draft
    size_t gt_state_size(const gt_cache *c)
    int gt_state_get(const gt_cache *c, uint8_t *data, size_t size)
    int gt_state_restore(gt_engine *e, const gt_state *s)


cdef gt_cache *_cache(gt_engine *e, bint draft) noexcept:
    if not draft:
        return &e.target
    return &e.model.cache if e.model.cache.memory != NULL else NULL


def state_part(Engine engine, bint draft):
    """(bytes of a cache's state, tokens in it, index of the first in the history); zeros without a draft."""
    cdef gt_cache *c = _cache(engine.alive(), draft)
    if c == NULL:
        return 0, 0, 0
    return gt_state_size(c), c.n, c.base


def read_state(Engine engine, bint draft):
    """The state of the target's or the draft's cache, as many bytes as state_part says."""
    cdef gt_cache *c = _cache(engine.alive(), draft)
    cdef size_t size = gt_state_size(c) if c != NULL else 0
    cdef int code = GT_OK
    data = bytearray(size)
    cdef uint8_t[::1] view
    if size > 0:
        view = data
        engine.busy = True
        with nogil:
            code = gt_state_get(c, &view[0], size)
        engine.busy = False
        _check(code)
    return data


def restore_state(Engine engine, const int32_t[::1] history, const uint8_t[::1] target, int32_t n_target,
                  const uint8_t[::1] draft, int32_t n_draft, int32_t draft_base):
    """Puts back what state_part and read_state gave. On an EngineError the engine is unchanged, or empty."""
    cdef gt_engine *e = engine.alive()
    cdef gt_state s
    cdef int code
    if history.shape[0] > e.target.p.n_ctx:
        raise EngineError(GT_E_ARGUMENT)
    s.ids = &history[0] if history.shape[0] > 0 else NULL
    s.n_ids = <int32_t>history.shape[0]
    s.target = _part(target, n_target, 0)
    s.draft = _part(draft, n_draft, draft_base)
    engine.busy = True
    with nogil:
        code = gt_state_restore(e, &s)
    engine.busy = False
    _check(code)


cdef gt_state_part _part(const uint8_t[::1] data, int32_t n, int32_t base):
    cdef gt_state_part part
    part.data = &data[0] if data.shape[0] > 0 else NULL
    part.size = data.shape[0]
    part.n = n
    part.base = base
    return part
