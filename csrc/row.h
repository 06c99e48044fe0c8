/* A distribution over the target's ids: what a chain (chain.h) left of a row of logits. Drawing from it with the same
 * noise for draft and target is `coupled`; gt_row_accepts and gt_row_residual are `reject`.
 *
 * When a chain keeps everything, the logits stay where they are: the row is valid as long as they are. */
#ifndef GT_ROW_H
#define GT_ROW_H

#include "noise.h"
#include "select.h"

typedef struct gt_row {
    const float *x;     /* logits; NaN and minus infinity are never drawn */
    const int32_t *ids; /* their ids, each once; below 0 where x is minus infinity. NULL: 0 … n */
    int32_t n, top;     /* how many; index of the largest */
    float best, scale;  /* the largest logit, finite; 1 / temperature */
    double total;       /* Σ exp((x - best) · scale); 0 until it was needed */
    int32_t *kept_ids;  /* own memory for a row that is not kept whole: the owner of the row gives both, */
    float *kept_x;      /* gt_chain_room entries each */
} gt_row;

/* argmax of log probability + Gumbel noise, which is a draw from the row. */
int32_t gt_row_draw(const gt_row *r, gt_noise noise);

/* 0 for ids that are not in the row. */
double gt_row_probability(gt_row *r, int32_t id);

/* Whether `id`, drawn from q, is kept where p is wanted: with probability min(1, p / q); uniform in (0, 1). */
bool gt_row_accepts(gt_row *p, gt_row *q, int32_t id, double uniform);

/* A draw from the normalised positive part of p - q, never an id with p = 0. weights: n_vocab floats of working
 * memory, n_vocab above every id. */
int32_t gt_row_residual(gt_row *p, gt_row *q, gt_noise noise, float *weights, int32_t n_vocab);

/* Copies the logits of a row that was kept whole to `x` (r->n floats), so that it outlives them. */
void gt_row_own(gt_row *r, float *x);

#endif
