#include "round.h"

#include <assert.h>

#include "rewind.h"

static int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }

gt_history gt_history_of(const gt_engine *e) {
    gt_history h = {e->history, e->n_history};
    return h;
}

gt_source *gt_source_of(const gt_engine *e, int kind) {
    return e->on[kind] && !e->failed[kind] ? e->sources[kind] : NULL;
}

int gt_source_result(gt_engine *e, int kind, int code) {
    if (!code || (code == GT_CANCELLED && *e->cancel)) return code;
    e->failed[kind] = code;
    if (kind == GT_KIND_MODEL) gt_cache_clear(&e->model.cache, 0);
    return GT_OK;
}

bool gt_any_failed(const gt_engine *e) {
    for (int kind = 0; kind < GT_KINDS; kind++)
        if (e->failed[kind]) return true;
    return false;
}

void gt_drop_proposals(gt_engine *e) {
    e->draft.n = 0;
    for (int kind = 0; kind < GT_KINDS; kind++) {
        gt_source *s = e->sources[kind];
        if (s) gt_source_result(e, kind, s->rewind(s, gt_history_of(e)));
    }
}

/* Restores I1 where a cut had to take more than was wanted. */
static int catch_up(gt_engine *e) {
    while (e->target.n < e->n_history - 1) {
        int code = gt_cache_chunk(&e->target, e->history, e->n_history - 1);
        if (code) return code;
    }
    return GT_OK;
}

/* Decodes the history's last token and the draft's proposals, which follow it, in one batch, all with logits. */
static int verify(gt_engine *e) {
    int32_t k = e->draft.n;
    int code = catch_up(e);
    if (!code && k > 0) code = gt_cache_save(&e->target);
    if (code) return code;
#ifdef GT_DEBUG
    assert(e->target.n == e->n_history - 1);
    assert(e->target.n + k < e->target.p.n_ctx);
    if (gt_source_of(e, GT_KIND_MODEL)) assert(e->model.cache.base + e->model.cache.n <= e->n_history + k);
#endif
    return gt_cache_decode(&e->target, e->history + e->n_history - 1, k + 1, k + 1);
}

/* Draws tokens row by row while they equal the proposals, which lie where the tokens go. An error after the first
 * token is kept for the next step. */
static int accept(gt_engine *e, int32_t *out, uint8_t *from_draft, int32_t *n) {
    const gt_draft *d = &e->draft;
    for (int32_t i = 0; i <= d->n; i++) {
        int32_t token;
        int code = gt_pick(&e->picker, gt_cache_logits(&e->target, i), &token);
        if (code) {
            if (*n > 0) e->pending = code;
            return *n > 0 ? GT_OK : code;
        }
        bool agreed = i < d->n && token == d->ids[i];
        e->history[e->n_history++] = token;
        out[*n] = token;
        from_draft[(*n)++] = agreed;
        if (agreed) e->counters.n_accepted[d->kind[i]]++;
        e->ended = e->eog[token] != 0;
        if (!agreed || e->ended) break;
    }
    return GT_OK;
}

static int accept_timed(gt_engine *e, int32_t *out, uint8_t *from_draft, int32_t *n) {
    int64_t start = gt_llama.llama_time_us();
    int code = accept(e, out, from_draft, n);
    e->counters.select_us += gt_llama.llama_time_us() - start;
    return code;
}

/* Nothing beyond the agreed tokens stays in any cache. The tokens are out, so an error waits for the next step. */
static void settle(gt_engine *e, int32_t n_agreed) {
    int code = gt_cache_cut(&e->target, e->n_history - 1);
    for (int kind = 0; kind < GT_KINDS; kind++) {
        gt_source *s = e->sources[kind];
        if (s) gt_source_result(e, kind, s->observe(s, gt_history_of(e), n_agreed));
    }
    if (code) e->pending = code;
}

static int round_of(gt_engine *e, int32_t n_max, float p_min, int32_t *out, uint8_t *from_draft, int32_t *n) {
    int32_t before = e->n_history;
    e->draft.n = 0;
    int code = catch_up(e);
    if (!code) code = gt_propose(e, n_max, p_min);
    if (!code) code = verify(e);
    if (code && code != GT_CANCELLED && e->draft.n > 0) {
        gt_drop_proposals(e);
        code = verify(e);
    }
    if (!code) code = accept_timed(e, out, from_draft, n);
    if (code) {
        gt_cache_cut(&e->target, e->n_history - 1);
        gt_drop_proposals(e);
        return code;
    }
    e->counters.verify_steps++;
    for (int32_t i = 0; i < e->draft.n; i++) e->counters.n_draft[e->draft.kind[i]]++;
    int32_t n_agreed = before;
    for (int32_t i = 0; i < *n; i++) n_agreed += from_draft[i];
    settle(e, n_agreed);
    return GT_OK;
}

int gt_step(gt_engine *e, int32_t n_draft, float p_min, int32_t max_tokens, int32_t *out, uint8_t *from_draft,
            int32_t *n) {
    *n = 0;
    if (e->n_history < 1) return GT_E_STATE;
    int code = e->pending;
    e->pending = GT_OK;
    int32_t limit = smaller(max_tokens, e->target.p.n_ctx - e->n_history);
    if (code || e->ended || limit < 1) return code;
    int64_t start = gt_llama.llama_time_us();
    int32_t n_max = smaller(smaller(n_draft, e->n_draft_max), limit - 1);
    code = round_of(e, gt_cache_speculates(&e->target, n_max), p_min, out, from_draft, n);
    e->counters.total_us += gt_llama.llama_time_us() - start;
    return code;
}
