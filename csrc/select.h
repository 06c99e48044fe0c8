/* One pass over one row of logits. NaN counts as minus infinity. Nothing here allocates. */
#ifndef GT_SELECT_H
#define GT_SELECT_H

#include "llama_api.h"

/* The first index of the largest of n logits, its value in *best; -1 when none is above minus infinity. */
int32_t gt_argmax(const float *logits, int32_t n, float *best);

/* The k largest of n logits into out[0 … k), descending, equal ones by id; returns how many. `out` has room for k. */
int32_t gt_top_k(const float *logits, int32_t n, int32_t k, llama_token_data *out);

/* All n logits into out, unsorted. */
void gt_all(const float *logits, int32_t n, llama_token_data *out);

/* Softmax probability of the best logit: 1 / Σ exp(x - best); relative error below 1e-5. */
float gt_softmax_best(const float *logits, int32_t n, float best);

#endif
