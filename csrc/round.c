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

void gt_refuse_all(gt_engine *e, int code) {
    for (int kind = 0; kind < GT_KINDS; kind++)
        if (e->sources[kind]) e->failed[kind] = code;
}

bool gt_any_failed(const gt_engine *e) {
    for (int kind = 0; kind < GT_KINDS; kind++)
        if (e->failed[kind]) return true;
    return false;
}

void gt_drop_proposals(gt_engine *e) {
    e->draft.n = e->draft.left = 0;
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
    if (!code) code = gt_cache_may_cut(&e->target, k);
    if (code) return code;
#ifdef GT_DEBUG
    assert(e->target.n == e->n_history - 1);
    assert(e->target.n + k < e->target.p.n_ctx);
    if (gt_source_of(e, GT_KIND_MODEL)) assert(e->model.cache.base + e->model.cache.n <= e->n_history + k + e->draft.left);
#endif
    int64_t before = e->target.us;
    code = gt_cache_decode(&e->target, e->history + e->n_history - 1, k + 1, k + 1);
    if (!code) gt_pace_verified(&e->pace, k + 1, e->target.us - before);
    return code;
}

/* The number of the draft's row that proposal i was drawn from; -1: not from one. */
static int32_t guess_of(const gt_draft *d, int32_t i) { return i < d->n && d->kind[i] == GT_KIND_MODEL ? i : -1; }

static void emit(gt_engine *e, int32_t token, bool agreed, int32_t i, int32_t *out, uint8_t *from_draft) {
    e->history[e->n_history++] = token;
    gt_picker_count(&e->picker, e->history, e->n_history);
    out[i] = token;
    from_draft[i] = agreed;
    if (agreed) e->counters.n_accepted[e->draft.kind[i]]++;
    e->ended = e->eog[token] != 0;
}

/* Draws tokens row by row while they equal the proposals, which lie where the tokens go. An error after the first
 * token is kept for the next step. */
static int accept(gt_engine *e, int32_t *out, uint8_t *from_draft, int32_t *n, int32_t *n_agreed) {
    const gt_draft *d = &e->draft;
    bool agreed = true;
    for (int32_t i = 0; agreed && !e->ended && i <= d->n; i++) {
        int32_t token, proposal = i < d->n ? d->ids[i] : -1;
        float *row = gt_cache_logits(&e->target, i);
        int code = gt_pick(&e->picker, row, e->n_history, proposal, guess_of(d, i), &token);
        if (code) {
            if (i > 0) e->pending = code;
            return i > 0 ? GT_OK : code;
        }
        gt_logprobs_note(&e->logprobs, i, row, e->target.p.n_vocab, token);
        agreed = token == proposal;
        *n_agreed += i < d->n + d->left && token == d->ids[i]; /* also one that was left */
        emit(e, token, agreed, i, out, from_draft);
        *n = i + 1;
    }
    return GT_OK;
}

static int accept_timed(gt_engine *e, int32_t *out, uint8_t *from_draft, int32_t *n, int32_t *n_agreed) {
    int64_t start = gt_llama.llama_time_us();
    int code = accept(e, out, from_draft, n, n_agreed);
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

static int round_of(gt_engine *e, bool paced, int32_t n_max, float p_min, int32_t *out, uint8_t *from_draft,
                    int32_t *n) {
    int32_t before = e->n_history, n_agreed = 0, n_accepted = 0;
    int code = catch_up(e);
    if (!code) code = gt_propose(e, paced, n_max, p_min);
    gt_picker_count(&e->picker, e->history, e->n_history);
    if (!code) code = verify(e);
    if (code && code != GT_CANCELLED && e->draft.n > 0) {
        gt_drop_proposals(e);
        if (code == GT_E_NO_REWIND) gt_refuse_all(e, code); /* the target's memory, as it turned out */
        code = verify(e);
    }
    if (!code) code = accept_timed(e, out, from_draft, n, &n_agreed);
    if (code) {
        gt_cache_cut(&e->target, e->n_history - 1);
        gt_drop_proposals(e);
        return code;
    }
    e->counters.verify_steps++;
    for (int32_t i = 0; i < e->draft.n; i++) e->counters.n_draft[e->draft.kind[i]]++;
    for (int32_t i = 0; i < *n; i++) n_accepted += from_draft[i];
    gt_pace_outcome(&e->pace, &e->draft, n_agreed, e->ended || e->pending);
    settle(e, before + n_accepted);
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
    int32_t n_max = smaller(e->n_draft_max, limit - 1);
    if (n_draft != GT_AUTO) n_max = smaller(n_draft, n_max);
    n_max = gt_cache_speculates(&e->target, n_max);
    code = round_of(e, n_draft == GT_AUTO, n_max, p_min, out, from_draft, n);
    e->counters.total_us += gt_llama.llama_time_us() - start;
    return code;
}
