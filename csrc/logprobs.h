/* Log probabilities of what a round emits, from the target's own rows: before penalties, truncation and temperature. */
#ifndef GT_LOGPROBS_H
#define GT_LOGPROBS_H

#include "codes.h"
#include "llama_api.h"

enum { GT_LOGPROBS_MOST = 20 };

typedef struct gt_logprobs {
    int32_t n_top;         /* alternatives of each token, 0 … GT_LOGPROBS_MOST; -1: nothing is noted */
    float *own;            /* of each token of the last round */
    llama_token_data *top; /* GT_LOGPROBS_MOST for each, the likeliest first, log probabilities in .p */
} gt_logprobs;

int gt_logprobs_init(gt_logprobs *l, int32_t n_tokens);
void gt_logprobs_free(gt_logprobs *l);

/* The i-th token of a round was drawn from a row of n logits. */
void gt_logprobs_note(gt_logprobs *l, int32_t i, const float *logits, int32_t n, int32_t token);

#endif
