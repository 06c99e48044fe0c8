#include "model.h"

#include "rewind.h"
#include "select.h"

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

/* Decodes what the cache lacks of the history; the last token's logits are the first proposal's. */
static int catch_up(gt_model *m, gt_history h) {
    gt_cache *c = &m->cache;
    int32_t goal = filled(m, h);
    while (goal - c->n > c->p.n_ubatch) {
        int code = gt_cache_chunk(c, window(m, h), goal);
        if (code) return code;
    }
    return gt_cache_decode(c, window(m, h) + c->n, goal - c->n, 1);
}

/* The most probable token of the last decode; *id stays -1 when it must not be proposed. */
static int best_token(gt_model *m, float p_min, int32_t *id) {
    const float *logits = gt_cache_logits(&m->cache, 0);
    float best;
    *id = -1;
    if (!logits) return GT_E_NO_LOGITS;
    int32_t own = gt_argmax(logits, m->cache.p.n_vocab, &best);
    if (own < 0) return GT_E_LOGITS;
    if (p_min > 0.0f && gt_softmax_best(logits, m->cache.p.n_vocab, best) < p_min) return GT_OK;
    int32_t mapped = m->to_target ? m->to_target[own] : own;
    if (mapped < m->n_vocab) *id = mapped;
    return GT_OK;
}

static int model_propose(gt_source *s, gt_history h, int32_t n_max, float p_min, int32_t *out, int32_t *n) {
    gt_model *m = (gt_model *)s;
    gt_cache *c = &m->cache;
    *n = 0;
    if (n_max > m->margin + 1) n_max = m->margin + 1;
    if (n_max < 1) return GT_OK;
    int code = make_room(m, h, n_max - 1);
    /* A cache that ends with the history (its last proposals were never verified) is asked again for its logits. */
    if (!code && c->n >= filled(m, h)) code = gt_cache_cut(c, filled(m, h) - 1);
    if (!code) code = catch_up(m, h);
    if (!code && n_max > 1) code = gt_cache_save(c);
    while (!code) {
        int32_t id;
        code = best_token(m, p_min, &id);
        if (code || id < 0) break;
        out[(*n)++] = id;
        if (*n == n_max || m->eog[id]) break;
        code = gt_cache_decode(c, &id, 1, 1);
    }
    if (code) *n = 0;
    return code;
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
        model_begin, model_pending, model_prefill, model_propose, model_observe, model_rewind,
    };
    int32_t half = p->n_ctx - p->n_ctx / 2;
    m->source = functions;
    m->margin = (n_draft_max < half ? n_draft_max : half) - 1;
    if (p->rewind == GT_REWIND_NONE) return GT_E_NO_REWIND;
    return gt_cache_init(&m->cache, p, cancel);
}
