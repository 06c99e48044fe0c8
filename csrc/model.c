#include "model.h"

#include "rewind.h"

/* Tokens of the window that the history would fill, and the slice of the history that starts with it. */
static int32_t filled(const gt_model *m, gt_history h) { return h.n - m->cache.base; }
static const int32_t *window(const gt_model *m, gt_history h) { return h.ids + m->cache.base; }

/* When `extra` more tokens do not fit, the newest half of the context is kept and decoded again. */
static int make_room(gt_model *m, gt_history h, int32_t extra) {
    gt_cache *c = &m->cache;
    if (filled(m, h) + extra <= c->p.n_ctx) return GT_OK;
    int32_t keep = c->p.n_ctx / 2 > 0 ? c->p.n_ctx / 2 : 1;
    return gt_cache_clear(c, h.n - keep);
}

static int model_begin(gt_source *s, gt_history h, int32_t shared) {
    gt_model *m = (gt_model *)s;
    int code = shared > m->cache.base ? gt_cache_cut(&m->cache, shared - m->cache.base) : gt_cache_clear(&m->cache, 0);
    return code ? code : make_room(m, h, m->margin);
}

static int32_t model_pending(const gt_source *s, gt_history h) {
    const gt_model *m = (const gt_model *)s;
    int32_t lacking = filled(m, h) - 1 - m->cache.n;
    return lacking > 0 ? lacking : 0;
}

static int model_prefill(gt_source *s, gt_history h) {
    gt_model *m = (gt_model *)s;
    return gt_cache_chunk(&m->cache, window(m, h), filled(m, h) - 1);
}

/* Decodes up to token `goal` of the window, the last one with logits where `n_out` is 1. */
static int decode_to(gt_model *m, gt_history h, int32_t goal, int32_t n_out) {
    gt_cache *c = &m->cache;
    while (goal - c->n > c->p.n_ubatch) {
        int code = gt_cache_chunk(c, window(m, h), goal);
        if (code) return code;
    }
    return gt_cache_decode(c, window(m, h) + c->n, goal - c->n, n_out);
}

/* Decodes what the cache lacks of history and proposals; a recurrent state is kept where the history ends. */
static int catch_up(gt_model *m, gt_history h, int32_t n, int32_t n_more) {
    gt_cache *c = &m->cache;
    int32_t end = filled(m, h), goal = end + n;
    int code = GT_OK;
    /* A cache that ends with its goal (the proposals were never verified) is asked again for its logits. */
    if (c->n >= goal) code = gt_cache_cut(c, goal - 1);
    if (!code && n > 0 && c->n < end && c->p.rewind != GT_REWIND_ANY) {
        code = decode_to(m, h, end, 0);
        if (!code) code = gt_cache_save(c);
    }
    if (!code) code = decode_to(m, h, goal, 1);
    if (!code && n == 0 && n_more > 1) code = gt_cache_save(c);
    return code;
}

static int32_t model_lag(const gt_source *s, gt_history h, int32_t n) {
    const gt_model *m = (const gt_model *)s;
    int32_t lag = filled(m, h) + n - m->cache.n;
    return lag > 1 ? lag : 1;
}

static int model_next(gt_source *s, gt_history h, gt_draft *d) {
    gt_model *m = (gt_model *)s;
    int32_t id;
    float sure;
    if (d->n >= d->max || d->n > m->margin || (d->n > 0 && m->eog[d->ids[d->n - 1]])) return GT_OK;
    int code = make_room(m, h, d->max - 1 < m->margin ? d->max - 1 : m->margin);
    if (!code) code = catch_up(m, h, d->n, d->max);
    gt_picker_count(m->picker, h.ids, h.n + d->n);
    if (!code) code = gt_guess(m->picker, &m->exchange, gt_cache_logits(&m->cache, 0), h.n + d->n, d->n, &id, &sure);
    if (code || id < 0) return code;
    d->ids[d->n] = id;
    d->sure[d->n] = sure;
    d->kind[d->n++] = GT_KIND_MODEL;
    return GT_OK;
}

static int model_rewind(gt_source *s, gt_history h) {
    gt_model *m = (gt_model *)s;
    if (filled(m, h) <= 0) return gt_cache_clear(&m->cache, 0);
    return gt_cache_cut(&m->cache, filled(m, h));
}

static int model_observe(gt_source *s, gt_history h, int32_t n_agreed) {
    h.n = n_agreed; /* what follows, the target's own token, was never decoded here */
    return model_rewind(s, h);
}

int gt_model_init(gt_model *m, const gt_cache_params *p, int32_t n_draft_max, gt_flag *cancel) {
    static const gt_source functions = {
        model_begin, model_pending, model_prefill, model_lag, model_next, model_observe, model_rewind,
    };
    int32_t half = p->n_ctx - p->n_ctx / 2;
    m->source = functions;
    m->margin = (n_draft_max < half ? n_draft_max : half) - 1;
    if (p->rewind == GT_REWIND_NONE) return GT_E_NO_REWIND;
    return gt_cache_init(&m->cache, p, cancel);
}
