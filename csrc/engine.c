#include "engine.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "guard.h"
#include "rewind.h"

static gt_history history(const gt_engine *e) {
    gt_history h = {e->history, e->n_history};
    return h;
}

static int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }

static bool drafting(const gt_engine *e) { return e->source && e->draft_on && !e->draft_failed; }

/* A failing draft never fails the request: it is switched off and its code kept. A cancel is no failure. */
static int draft_result(gt_engine *e, int code) {
    if (!code || (code == GT_CANCELLED && *e->cancel)) return code;
    e->draft_failed = code;
    gt_cache_clear(&e->model.cache, 0);
    return GT_OK;
}

static int64_t lacking(const gt_engine *e) {
    int32_t target = e->n_history - 1 - e->target.n;
    return (target > 0 ? target : 0) + (drafting(e) ? e->source->pending(e->source, history(e)) : 0);
}

static int begin(gt_engine *e, const int32_t *prompt, int32_t n_prompt, int32_t n_penalty, int32_t *reused) {
    int32_t shared = 0;
    if (n_prompt < 1 || n_prompt > e->target.p.n_ctx) return GT_E_ARGUMENT;
    for (int32_t i = 0; i < n_prompt; i++)
        if (prompt[i] < 0 || prompt[i] >= e->target.p.n_vocab) return GT_E_TOKEN;
    while (shared < smaller(e->n_history, n_prompt - 1) && e->history[shared] == prompt[shared]) shared++;
    memcpy(e->history, prompt, (size_t)n_prompt * sizeof *prompt);
    e->n_history = n_prompt;
    e->ended = false;
    e->pending = GT_OK;
    e->draft_failed = e->source && e->target.p.rewind == GT_REWIND_NONE ? GT_E_NO_REWIND : GT_OK;
    int code = gt_cache_cut(&e->target, shared);
    if (!code && e->source) code = draft_result(e, e->source->begin(e->source, history(e), shared));
    if (!code) code = gt_picker_begin(&e->picker, prompt, n_prompt, n_penalty);
    if (code) e->ended = true;
    *reused = e->target.n;
    e->total_prefill = lacking(e);
    return code;
}

int gt_begin(gt_engine *e, const int32_t *prompt, int32_t n_prompt, const gt_picker *picker, int32_t n_penalty,
             int32_t *reused) {
    int64_t start = gt_llama.llama_time_us();
    e->picker.sampler = picker->sampler;
    e->picker.grammar = picker->grammar;
    e->picker.preselect = picker->preselect;
    int code = begin(e, prompt, n_prompt, n_penalty, reused);
    e->counters.total_us += gt_llama.llama_time_us() - start;
    return code;
}

int gt_prefill(gt_engine *e, int64_t *done, int64_t *total) {
    int64_t start = gt_llama.llama_time_us(), before = lacking(e);
    int code = GT_OK, failed = e->draft_failed;
    if (before > e->total_prefill) e->total_prefill = before; /* a failed round lost a cache */
    if (e->n_history < 1)
        code = GT_E_STATE;
    else if (e->target.n < e->n_history - 1)
        code = gt_cache_chunk(&e->target, e->history, e->n_history - 1);
    else if (lacking(e) > 0)
        code = draft_result(e, e->source->prefill(e->source, history(e)));
    int64_t left = lacking(e);
    /* A cache that was lost, or a draft that was switched off, moves the goal, not what is done. */
    if (left > before || e->draft_failed != failed) e->total_prefill += left - before;
    *total = e->total_prefill;
    *done = *total - left;
    e->counters.total_us += gt_llama.llama_time_us() - start;
    return code;
}

/* Restores I1 where a cut had to take more than was wanted. */
static int catch_up(gt_engine *e) {
    while (e->target.n < e->n_history - 1) {
        int code = gt_cache_chunk(&e->target, e->history, e->n_history - 1);
        if (code) return code;
    }
    return GT_OK;
}

/* Decodes the history's last token and k proposals in one batch, all with logits. */
static int verify(gt_engine *e, int32_t k) {
    int32_t *batch = e->proposed - 1; /* the array has one entry before its first */
    int code = catch_up(e);
    if (!code) code = gt_cache_may_cut(&e->target, k);
    if (code) return code;
#ifdef GT_DEBUG
    assert(e->target.n == e->n_history - 1);
    assert(e->target.n + k < e->target.p.n_ctx);
    if (drafting(e)) assert(e->model.cache.base + e->model.cache.n <= e->n_history + k);
#endif
    batch[0] = e->history[e->n_history - 1];
    return gt_cache_decode(&e->target, batch, k + 1, k + 1);
}

/* Draws tokens row by row while they equal the proposals. An error after the first token is kept for the next step. */
static int accept(gt_engine *e, int32_t k, int32_t *out, uint8_t *from_draft, int32_t *n) {
    for (int32_t i = 0; i <= k; i++) {
        int32_t token;
        int code = gt_pick(&e->picker, gt_cache_logits(&e->target, i), &token);
        if (code) {
            if (*n > 0) e->pending = code;
            return *n > 0 ? GT_OK : code;
        }
        bool agreed = i < k && token == e->proposed[i];
        e->history[e->n_history++] = token;
        out[*n] = token;
        from_draft[(*n)++] = agreed;
        e->counters.n_accepted += agreed;
        e->ended = e->eog[token] != 0;
        if (!agreed || e->ended) break;
    }
    return GT_OK;
}

static int accept_timed(gt_engine *e, int32_t k, int32_t *out, uint8_t *from_draft, int32_t *n) {
    int64_t start = gt_llama.llama_time_us();
    int code = accept(e, k, out, from_draft, n);
    e->counters.select_us += gt_llama.llama_time_us() - start;
    return code;
}

/* Nothing beyond the agreed tokens stays in either cache. The tokens are out, so an error waits for the next step. */
static void settle(gt_engine *e, int32_t agreed) {
    int code = gt_cache_cut(&e->target, e->n_history - 1);
    if (e->source) draft_result(e, e->source->observe(e->source, history(e), agreed));
    if (code) e->pending = code;
}

static int propose(gt_engine *e, int32_t n_max, float p_min, int32_t *k) {
    *k = 0;
    if (n_max < 1 || !drafting(e)) return GT_OK;
    int code = e->source->propose(e->source, history(e), n_max, p_min, e->proposed, k);
    if (code) *k = 0;
    return draft_result(e, code);
}

/* Cuts the draft back to the history; its failure is its own. */
static void drop_proposals(gt_engine *e) {
    if (e->source) draft_result(e, e->source->rewind(e->source, history(e)));
}

static int round_of(gt_engine *e, int32_t n_max, float p_min, int32_t *out, uint8_t *from_draft, int32_t *n) {
    int32_t before = e->n_history, k = 0;
    int code = catch_up(e);
    if (!code) code = propose(e, n_max, p_min, &k);
    if (!code) code = verify(e, k);
    if (code && code != GT_CANCELLED && k > 0) {
        k = 0;
        drop_proposals(e);
        if (code == GT_E_NO_REWIND) draft_result(e, code); /* the target's memory, as it turned out */
        code = verify(e, 0);
    }
    if (!code) code = accept_timed(e, k, out, from_draft, n);
    if (code) {
        gt_cache_cut(&e->target, e->n_history - 1);
        drop_proposals(e);
        return code;
    }
    e->counters.verify_steps++;
    e->counters.n_draft += k;
    int32_t agreed = before;
    for (int32_t i = 0; i < *n; i++) agreed += from_draft[i];
    settle(e, agreed);
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

int gt_truncate(gt_engine *e, int32_t n) {
    if (n < 1 || n > e->n_history) return GT_E_ARGUMENT;
    e->n_history = n;
    e->ended = true;
    e->pending = GT_OK;
    drop_proposals(e);
    return gt_cache_cut(&e->target, n - 1);
}

void gt_cancel(gt_engine *e, bool on) { *e->cancel = on; }

void gt_set_draft(gt_engine *e, bool on) { e->draft_on = on; }

gt_counters gt_read_counters(const gt_engine *e) {
    gt_counters c = e->counters;
    c.target_decodes = e->target.n_decodes;
    c.target_us = e->target.us;
    c.draft_decodes = e->source ? e->model.cache.n_decodes : 0;
    c.draft_us = e->source ? e->model.cache.us : 0;
    return c;
}
