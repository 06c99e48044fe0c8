#include "engine.h"

#include <string.h>

#include "guard.h"
#include "rewind.h"
#include "round.h"

static int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }

static int32_t pending(const gt_engine *e, int kind) {
    gt_source *s = gt_source_of(e, kind);
    if (!s || !s->pending || (e->lazy && gt_pace_hopeless(&e->pace, kind))) return 0;
    return s->pending(s, gt_history_of(e));
}

static int64_t lacking(const gt_engine *e) {
    int32_t target = e->n_history - 1 - e->target.n;
    int64_t n = target > 0 ? target : 0;
    for (int kind = 0; kind < GT_KINDS; kind++) n += pending(e, kind);
    return n;
}

static int begin_sources(gt_engine *e, int32_t shared) {
    for (int kind = 0; kind < GT_KINDS; kind++) {
        gt_source *s = e->sources[kind];
        int code = s ? gt_source_result(e, kind, s->begin(s, gt_history_of(e), shared)) : GT_OK;
        if (code) return code;
    }
    return GT_OK;
}

/* One chunk for the first source that lacks some of the prompt. */
static int prefill_sources(gt_engine *e) {
    for (int kind = 0; kind < GT_KINDS; kind++)
        if (pending(e, kind) > 0)
            return gt_source_result(e, kind, e->sources[kind]->prefill(e->sources[kind], gt_history_of(e)));
    return GT_OK;
}

static int begin(gt_engine *e, const int32_t *prompt, int32_t n_prompt, const gt_sampling *how, bool lazy, int32_t *reused) {
    int32_t shared = 0;
    if (n_prompt < 1 || n_prompt > e->target.p.n_ctx) return GT_E_ARGUMENT;
    for (int32_t i = 0; i < n_prompt; i++)
        if (prompt[i] < 0 || prompt[i] >= e->target.p.n_vocab) return GT_E_TOKEN;
    while (shared < smaller(e->n_history, n_prompt - 1) && e->history[shared] == prompt[shared]) shared++;
    memcpy(e->history, prompt, (size_t)n_prompt * sizeof *prompt);
    e->n_history = n_prompt;
    e->ended = false;
    e->pending = GT_OK;
    e->lazy = lazy;
    memset(e->failed, 0, sizeof e->failed);
    if (e->target.p.rewind == GT_REWIND_NONE) gt_refuse_all(e, GT_E_NO_REWIND);
    int code = gt_cache_cut(&e->target, shared);
    if (!code) code = begin_sources(e, shared);
    if (!code) code = gt_picker_begin(&e->picker, how, prompt, n_prompt);
    gt_pace_request(&e->pace);
    if (code) e->ended = true;
    *reused = e->target.n;
    e->total_prefill = lacking(e);
    return code;
}

int gt_begin(gt_engine *e, const int32_t *prompt, int32_t n_prompt, const gt_sampling *how, bool lazy, int32_t *reused) {
    int64_t start = gt_llama.llama_time_us();
    int code = begin(e, prompt, n_prompt, how, lazy, reused);
    e->counters.total_us += gt_llama.llama_time_us() - start;
    return code;
}

int gt_prefill(gt_engine *e, int64_t *done, int64_t *total) {
    int64_t start = gt_llama.llama_time_us(), before = lacking(e);
    int code = GT_OK;
    bool failed = gt_any_failed(e);
    if (before > e->total_prefill) e->total_prefill = before; /* a failed round lost a cache */
    if (e->n_history < 1)
        code = GT_E_STATE;
    else if (e->target.n < e->n_history - 1)
        code = gt_cache_chunk(&e->target, e->history, e->n_history - 1);
    else
        code = prefill_sources(e);
    int64_t left = lacking(e);
    /* A cache that was lost, or a draft that was switched off, moves the goal, not what is done. */
    if (left > before || gt_any_failed(e) != failed) e->total_prefill += left - before;
    *total = e->total_prefill;
    *done = *total - left;
    e->counters.total_us += gt_llama.llama_time_us() - start;
    return code;
}

int gt_truncate(gt_engine *e, int32_t n) {
    if (n < 1 || n > e->n_history) return GT_E_ARGUMENT;
    e->n_history = n;
    e->ended = true;
    e->pending = GT_OK;
    gt_drop_proposals(e);
    return gt_cache_cut(&e->target, n - 1);
}

void gt_cancel(gt_engine *e, bool on) { *e->cancel = on; }

void gt_set_source(gt_engine *e, int kind, bool on) { e->on[kind] = on; }

gt_counters gt_read_counters(const gt_engine *e) {
    gt_counters c = e->counters;
    c.target_decodes = e->target.n_decodes;
    c.target_us = e->target.us;
    c.draft_decodes = e->model.cache.n_decodes;
    c.draft_us = e->model.cache.us;
    return c;
}
