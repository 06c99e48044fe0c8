#include "guess.h"

/* Draws of `reject` are no business of the target's noise. */
#define OWN_NOISE 0x5851f42d4c957f2du

static float probability(gt_row *row, int32_t id) { return (float)gt_row_probability(row, id); }

static int greedy(gt_picker *p, const gt_exchange *x, float *logits, int32_t *id, float *sure) {
    float best;
    int32_t own = gt_argmax(logits, x->n_vocab, &best);
    if (own < 0) return GT_E_LOGITS;
    *sure = gt_softmax_best(logits, x->n_vocab, best);
    *id = x->to_target ? x->to_target[own] : own;
    if (*id >= p->n_vocab) *id = -1;
    return GT_OK;
}

static int drawn(gt_picker *p, const gt_exchange *x, float *logits, int32_t place, int32_t number, int32_t *id,
                 float *sure) {
    bool rejects = p->how.rule == GT_REJECT;
    gt_row *row = &p->guesses[gt_picker_keeps(p) ? number : 0];
    int code = gt_chain_row(&p->how.chain, logits, x->n_vocab, x->to_target, &p->work, row);
    if (code) return code;
    int32_t top = row->ids ? row->ids[row->top] : row->top;
    *id = top;
    if (p->how.rule != GT_MATCH) *id = gt_row_draw(row, gt_noise_at(p->how.seed ^ (rejects ? OWN_NOISE : 0), place));
    *sure = probability(row, rejects ? top : *id);
    if (gt_picker_keeps(p) && row->x == logits) gt_row_own(row, row->kept_x);
    if (*id >= p->n_vocab) *id = -1;
    return GT_OK;
}

int gt_guess(gt_picker *p, const gt_exchange *x, float *logits, int32_t place, int32_t number, int32_t *id,
             float *sure) {
    bool native = gt_picker_is_native(p);
    bool draws = native && p->how.chain.temperature > 0.0f && (p->how.rule != GT_MATCH || gt_picker_keeps(p));
    if (!logits) return GT_E_NO_LOGITS;
    if (native) gt_penalize(&p->counts, &p->how.chain, logits, x->n_vocab, x->to_draft);
    int code = draws ? drawn(p, x, logits, place, number, id, sure) : greedy(p, x, logits, id, sure);
    if (native) gt_unpenalize(&p->counts, logits, x->n_vocab, x->to_draft);
    return code;
}
