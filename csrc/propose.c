#include "round.h"

/* Lets a source append once; what is less probable than p_min is dropped. A draft model's time goes to pace. Returns
 * whether it may be asked again; *code is only that of a cancel. */
static bool ask(gt_engine *e, int kind, float p_min, int *code) {
    gt_source *s = gt_source_of(e, kind);
    gt_draft *d = &e->draft;
    int32_t before = d->n, lag = s->lag ? s->lag(s, gt_history_of(e), d->n) : 0;
    int64_t start = gt_llama.llama_time_us();
    int result = s->next(s, gt_history_of(e), d);
    if (result) d->n = before;
    *code = gt_source_result(e, kind, result);
    if (result) return false;
    if (lag > 0 && d->n > before) gt_pace_drafted(&e->pace, kind, lag, gt_llama.llama_time_us() - start);
    for (int32_t i = before; i < d->n; i++)
        if (d->sure[i] < p_min) {
            d->n = i;
            return false;
        }
    return d->n > before;
}

/* One source after the other: what n-grams do not find, the model proposes. */
static int propose_all(gt_engine *e, float p_min) {
    static const int order[] = {GT_KIND_NGRAM, GT_KIND_HEAD, GT_KIND_MODEL};
    int code = GT_OK;
    for (int i = 0; !code && e->draft.n == 0 && i < GT_KINDS; i++)
        while (gt_source_of(e, order[i]) && e->draft.n < e->draft.max && ask(e, order[i], p_min, &code) && !code) {}
    return code;
}

static uint32_t look_around(const gt_engine *e, int32_t lag[GT_KINDS]) {
    uint32_t on = 0;
    for (int kind = 0; kind < GT_KINDS; kind++) {
        gt_source *s = gt_source_of(e, kind);
        lag[kind] = s && s->lag ? s->lag(s, gt_history_of(e), e->draft.n) : 0;
        if (s) on |= 1u << kind;
    }
    return on;
}

static int propose_paced(gt_engine *e, float p_min) {
    int32_t lag[GT_KINDS];
    uint32_t spent = 0;
    int code = GT_OK;
    uint32_t on = look_around(e, lag);
    int32_t kind = gt_pace_begin(&e->pace, &e->draft, on, lag);
    while (!code && kind != GT_PACE_NONE) {
        if (!ask(e, kind, p_min, &code)) spent |= 1u << kind;
        on = look_around(e, lag) & ~spent;
        kind = gt_pace_more(&e->pace, &e->draft, on, lag);
    }
    /* Whether what a rule rejects by was verified must not hang on what was drawn: see guess.h. */
    if (e->picker.how.rule != GT_REJECT) gt_draft_cut(&e->draft, gt_pace_length(&e->pace, &e->draft));
    return code;
}

int gt_propose(gt_engine *e, bool paced, int32_t n_max, float p_min) {
    gt_draft *d = &e->draft;
    d->ids = e->history + e->n_history;
    d->n = d->left = 0;
    d->max = n_max;
    if (paced) return propose_paced(e, p_min);
    return n_max > 0 ? propose_all(e, p_min) : GT_OK;
}
