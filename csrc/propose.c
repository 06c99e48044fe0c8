#include "round.h"

/* Lets one source append until n_max is reached, it has no more to say, or a proposal is less probable than p_min. */
static int extend(gt_engine *e, int kind, int32_t n_max, float p_min) {
    gt_source *s = gt_source_of(e, kind);
    gt_draft *d = &e->draft;
    while (s && d->n < n_max) {
        int32_t before = d->n;
        int code = s->next(s, gt_history_of(e), d);
        if (code) d->n = 0;
        if (code) return gt_source_result(e, kind, code);
        for (int32_t i = before; i < d->n; i++)
            if (d->sure[i] < p_min) {
                d->n = i;
                return GT_OK;
            }
        if (d->n == before) break;
    }
    return GT_OK;
}

int gt_propose(gt_engine *e, int32_t n_max, float p_min) {
    gt_draft *d = &e->draft;
    d->ids = e->history + e->n_history;
    d->n = 0;
    d->max = n_max;
    if (n_max < 1) return GT_OK;
    return extend(e, GT_KIND_MODEL, n_max, p_min);
}
