/* One pass over one row of logits. NaN counts as minus infinity. Nothing here allocates. */
#ifndef GT_SELECT_H
#define GT_SELECT_H

#include "llama_api.h"

enum { GT_BLOCK = 64 }; /* floats that are looked at together, and skipped together */

/* The order of candidates: by logit, of equal ones the higher id is the weaker. */
static inline bool gt_weaker(const llama_token_data *a, const llama_token_data *b) {
    return a->logit < b->logit || (a->logit == b->logit && a->id > b->id);
}

/* The largest of n floats; minus infinity when there is none. */
float gt_block_max(const float *x, int32_t n);

/* The first index of the largest of n logits, its value in *best; -1 when none is above minus infinity. */
int32_t gt_argmax(const float *logits, int32_t n, float *best);

/* The k largest of n logits into out[0 … k), descending, equal ones by id; returns how many. `out` has room for k. */
int32_t gt_top_k(const float *logits, int32_t n, int32_t k, llama_token_data *out);

/* All n logits into out, unsorted. */
void gt_all(const float *logits, int32_t n, llama_token_data *out);

/* The sum of n floats, for few of them. */
float gt_block_sum(const float *x, int32_t n);

/* Σ exp((x - best) · scale), `best` the finite largest of the n floats; relative error below 3e-6. */
double gt_exp_sum(const float *x, int32_t n, float best, float scale);

/* out[i] = factor · exp((x[i] - best) · scale), exactly 0 where the power is below 2^-126. */
void gt_exp(const float *x, int32_t n, float best, float scale, float factor, float *out);

/* Softmax probability of the best logit: 1 / Σ exp(x - best). */
float gt_softmax_best(const float *logits, int32_t n, float best);

/* log Σ exp(x); infinite when the largest logit is. */
double gt_log_total(const float *logits, int32_t n);

/* The natural logarithm of a logit's softmax probability; `log_total` is gt_log_total of its row. */
float gt_log_probability(float logit, double log_total);

/* Log probabilities of n_ids ids. */
void gt_log_softmax(const float *logits, int32_t n, const int32_t *ids, int32_t n_ids, float *out);

/* gt_top_k with the log probabilities in .p. */
int32_t gt_top_log_softmax(const float *logits, int32_t n, int32_t k, llama_token_data *out);

#endif
