#include "measure.h"

#include "round.h"

/* Sizes in the order of what they tell, three times each: only then are they known (cost.h). */
static const int32_t SIZES[] = {1, 2, 4, 1, 2, 4, 1, 2, 4, 8, 8, 8, 6, 16, 6, 16, 6, 16, 3, 12, 3, 12, 3, 12};
enum { N_SIZES = sizeof SIZES / sizeof SIZES[0], WARM_UPS = 2 };

/* Tokens spread over the vocabulary, so that a mixture of experts wakes many: real text wakes no more. */
static void fill(gt_engine *e, int32_t n, int32_t n_vocab, uint32_t *state) {
    for (int32_t i = 0; i < n; i++) {
        *state = *state * 1664525u + 1013904223u;
        e->history[i] = (int32_t)(((uint64_t)*state * (uint64_t)n_vocab) >> 32);
    }
}

/* Time of one batch of n tokens on an emptied cache. */
static int timed(gt_engine *e, gt_cache *c, int32_t n, int32_t n_out, uint32_t *state, int64_t *us) {
    int code = gt_cache_clear(c, 0);
    if (code) return code;
    fill(e, n, c->p.n_vocab < e->target.p.n_vocab ? c->p.n_vocab : e->target.p.n_vocab, state);
    int64_t before = c->us;
    code = gt_cache_decode(c, e->history, n, n_out);
    *us = c->us - before;
    return code;
}

static int measure_target(gt_engine *e, int32_t n, bool counts, uint32_t *state) {
    int64_t us = 0;
    if (n > e->n_draft_max + 1 || n > e->target.p.n_ctx) return GT_OK;
    int code = timed(e, &e->target, n, n, state, &us);
    if (!code && counts) gt_pace_verified(&e->pace, n, us);
    return code;
}

/* The draft's own steps, and what it catches up with: two tokens after a round that was accepted whole. */
static int measure_draft(gt_engine *e, int32_t n, bool counts, uint32_t *state) {
    int64_t us = 0;
    gt_cache *c = &e->model.cache;
    if (!gt_source_of(e, GT_KIND_MODEL) || n > 4 || n > c->p.n_ctx) return GT_OK;
    int code = timed(e, c, n, 1, state, &us);
    if (code && !(code == GT_CANCELLED && *e->cancel)) return GT_OK; /* its own trouble: the request will tell */
    if (!code && counts) gt_pace_drafted(&e->pace, GT_KIND_MODEL, n, us);
    return code;
}

int gt_measure(gt_engine *e, int64_t budget_us) {
    uint32_t state = 12345;
    int code = GT_OK;
    int64_t start = gt_llama.llama_time_us();
    if (e->n_history > 0) return GT_E_STATE;
    for (int i = 0; !code && i < WARM_UPS; i++) {
        code = measure_target(e, 1, false, &state);
        if (!code) code = measure_draft(e, 1, false, &state);
    }
    for (int i = 0; !code && i < N_SIZES && gt_llama.llama_time_us() - start < budget_us; i++) {
        code = measure_target(e, SIZES[i], true, &state);
        if (!code) code = measure_draft(e, SIZES[i], true, &state);
    }
    int cleared = gt_cache_clear(&e->target, 0);
    if (e->model.cache.memory) gt_cache_clear(&e->model.cache, 0);
    return code ? code : cleared;
}
