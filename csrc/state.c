#include "state.h"

#include <string.h>

#include "guard.h"
#include "round.h"

size_t gt_state_size(const gt_cache *c) { return c->n > 0 ? gt_guard_state_size(c->p.ctx, GT_STATE_WHOLE) : 0; }

int gt_state_get(const gt_cache *c, uint8_t *data, size_t size) {
    return gt_guard_state_get(c->p.ctx, data, size, GT_STATE_WHOLE) == size ? GT_OK : GT_E_SAVED;
}

/* The target never holds the history's last token, the draft may; each sum is checked so that it cannot overflow. */
static bool fits(const gt_cache *c, const gt_state_part *part, int32_t n_ids) {
    if (part->n < 0 || part->base < 0 || (part->n == 0) != (part->size == 0)) return false;
    return part->n <= c->p.n_ctx && part->n <= n_ids && part->base <= n_ids - part->n;
}

static int check(const gt_engine *e, const gt_state *s) {
    if (s->n_ids < 0 || s->n_ids > e->target.p.n_ctx) return GT_E_ARGUMENT;
    if (!fits(&e->target, &s->target, s->n_ids) || s->target.base != 0) return GT_E_ARGUMENT;
    if (s->target.n > 0 && s->target.n >= s->n_ids) return GT_E_ARGUMENT;
    if (e->sources[GT_KIND_MODEL] ? !fits(&e->model.cache, &s->draft, s->n_ids) : s->draft.size > 0) return GT_E_ARGUMENT;
    for (int32_t i = 0; i < s->n_ids; i++)
        if (s->ids[i] < 0 || s->ids[i] >= e->target.p.n_vocab) return GT_E_TOKEN;
    return GT_OK;
}

/* The positions must be those of `part`, whatever the bytes say of themselves. */
static int put(gt_cache *c, const gt_state_part *part) {
    int code = gt_cache_clear(c, part->base);
    if (code || part->n == 0) return code;
    c->foreign = true;
    if (gt_guard_state_set(c->p.ctx, part->data, part->size, GT_STATE_WHOLE) != part->size) return GT_E_SAVED;
    if (gt_llama.llama_memory_seq_pos_max(c->memory, 0) != part->n - 1) return GT_E_SAVED;
    c->n = part->n;
    return GT_OK;
}

/* Both caches, or none. */
static int put_both(gt_engine *e, const gt_state *s) {
    int code = put(&e->target, &s->target);
    if (!code && e->sources[GT_KIND_MODEL]) code = put(&e->model.cache, &s->draft);
    if (!code) return GT_OK;
    gt_cache_clear(&e->target, 0);
    if (e->sources[GT_KIND_MODEL]) gt_cache_clear(&e->model.cache, 0);
    return code;
}

int gt_state_restore(gt_engine *e, const gt_state *s) {
    int code = check(e, s);
    if (code) return code;
    e->n_history = 0;
    e->ended = true;
    e->pending = GT_OK;
    memset(e->failed, 0, sizeof e->failed);
    code = put_both(e, s);
    if (code) return code;
    if (s->n_ids > 0) memcpy(e->history, s->ids, (size_t)s->n_ids * sizeof *s->ids);
    e->n_history = s->n_ids;
    gt_source *copier = &e->copier.source;
    return gt_source_result(e, GT_KIND_NGRAM, copier->begin(copier, gt_history_of(e), 0));
}
