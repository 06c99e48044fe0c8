/* Making and freeing an engine; the codes' names. */
#include <stdlib.h>
#include <string.h>

#include "engine.h"

static void *copied(const void *data, size_t size) {
    void *copy = malloc(size > 0 ? size : 1);
    if (copy) memcpy(copy, data, size);
    return copy;
}

static bool in_range(const int32_t *map, int32_t n, int32_t low, int32_t high) {
    for (int32_t i = 0; map && i < n; i++)
        if (map[i] < low || map[i] >= high) return false;
    return true;
}

static int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }
static int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }

static int check(const gt_engine_params *p) {
    if (p->target.n_vocab < 1 || p->target.n_ctx < 1 || p->n_draft_max < 0 || !p->eog) return GT_E_ARGUMENT;
    if (p->n_draft_max > 0 && p->n_draft_max >= p->target.n_batch) return GT_E_ARGUMENT;
    if (!p->draft.ctx) return GT_OK;
    if (p->draft.n_vocab < 1 || p->draft.n_ctx < 1) return GT_E_ARGUMENT;
    if (!in_range(p->to_draft, p->target.n_vocab, 0, p->draft.n_vocab)) return GT_E_TOKEN;
    return in_range(p->to_target, p->draft.n_vocab, -1, p->target.n_vocab) ? GT_OK : GT_E_TOKEN;
}

static int allocate(gt_engine *e, const gt_engine_params *p) {
    size_t n_vocab = (size_t)p->target.n_vocab;
    size_t n_draft = (size_t)p->n_draft_max + 1;
    e->cancel = calloc(1, sizeof *e->cancel);
    e->history = malloc((size_t)p->target.n_ctx * sizeof *e->history);
    e->draft.sure = malloc(n_draft * sizeof *e->draft.sure);
    e->draft.kind = malloc(n_draft);
    e->eog = copied(p->eog, n_vocab);
    if (!e->cancel || !e->history || !e->eog) return GT_E_MEMORY;
    if (!e->draft.sure || !e->draft.kind) return GT_E_MEMORY;
    if (p->draft.ctx && p->to_draft) {
        e->to_draft = copied(p->to_draft, n_vocab * sizeof *p->to_draft);
        if (!e->to_draft) return GT_E_MEMORY;
    }
    if (p->draft.ctx && p->to_target) {
        e->to_target = copied(p->to_target, (size_t)p->draft.n_vocab * sizeof *p->to_target);
        if (!e->to_target) return GT_E_MEMORY;
    }
    return GT_OK;
}

static int set_up(gt_engine *e, const gt_engine_params *p) {
    gt_cache_params target = p->target, draft = p->draft;
    int code = allocate(e, p);
    if (code) return code;
    e->n_draft_max = p->n_draft_max;
    e->on[GT_KIND_MODEL] = true;
    code = gt_picker_init(&e->picker, target.n_vocab, larger(target.n_vocab, draft.n_vocab), p->n_draft_max);
    if (code) return code;
    gt_pace_init(&e->pace, p->n_draft_max);
    code = gt_logprobs_init(&e->logprobs, p->n_draft_max + 1);
    if (code) return code;
    code = gt_copier_init(&e->copier, target.n_ctx, e->eog);
    if (code) return code;
    e->sources[GT_KIND_NGRAM] = &e->copier.source;
    target.n_out = p->n_draft_max + 1;
    target.map = NULL;
    code = gt_cache_init(&e->target, &target, e->cancel);
    if (code || !draft.ctx || p->n_draft_max < 1) return code;
    draft.n_out = 1;
    draft.map = e->to_draft;
    draft.n_map = target.n_vocab;
    e->model.picker = &e->picker;
    e->model.exchange.n_vocab = e->to_target ? draft.n_vocab : smaller(draft.n_vocab, target.n_vocab);
    e->model.exchange.to_target = e->to_target;
    e->model.exchange.to_draft = e->to_draft;
    e->model.eog = e->eog;
    code = gt_model_init(&e->model, &draft, p->n_draft_max, e->cancel);
    if (!code) e->sources[GT_KIND_MODEL] = &e->model.source;
    return code;
}

int gt_engine_new(const gt_engine_params *p, gt_engine **out) {
    *out = NULL;
    if (!gt_api_ready()) return GT_E_STATE;
    int code = check(p);
    if (code) return code;
    gt_engine *e = calloc(1, sizeof *e);
    if (!e) return GT_E_MEMORY;
    code = set_up(e, p);
    if (code)
        gt_engine_free(e, true);
    else
        *out = e;
    return code;
}

void gt_engine_free(gt_engine *e, bool release) {
    if (!e) return;
    gt_cache_free(&e->target, release);
    gt_cache_free(&e->model.cache, release);
    free(e->history);
    free(e->draft.sure);
    free(e->draft.kind);
    gt_picker_free(&e->picker);
    gt_logprobs_free(&e->logprobs);
    gt_copier_free(&e->copier);
    free(e->eog);
    free(e->to_draft);
    free(e->to_target);
    if (release) free((void *)e->cancel);
    free(e);
}

int gt_code(int i, const char **name, const char **meaning) {
    static const struct {
        const char *name, *meaning;
        int value;
    } codes[] = {
#define GT_CODE(name, value, meaning) {#name, meaning, value},
        GT_CODES(GT_CODE)
#undef GT_CODE
    };
    int n = (int)(sizeof codes / sizeof codes[0]);
    *name = i < n ? codes[i].name : NULL;
    *meaning = i < n ? codes[i].meaning : NULL;
    return i < n ? codes[i].value : 0;
}
