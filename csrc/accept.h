/* The acceptance rule `match`: a token is drawn from the target's row by the request's own sampler; a drafted token
 * is kept while it equals what was drawn. Exact for any draft. */
#ifndef GT_ACCEPT_H
#define GT_ACCEPT_H

#include "codes.h"
#include "llama_api.h"

typedef struct gt_picker {
    int32_t n_vocab;
    struct llama_sampler *sampler; /* NULL: the largest logit */
    struct llama_sampler *grammar; /* NULL: none; never part of the chain */
    int32_t preselect;             /* the chain begins with top-k of this k, so it is handed only these; 0: all */
    llama_token_data *candidates;  /* n_vocab entries */
} gt_picker;

/* A new request: both samplers start afresh, the chain sees the last n_penalty of the prompt's tokens. */
int gt_picker_begin(gt_picker *p, const int32_t *prompt, int32_t n_prompt, int32_t n_penalty);

/* Draws one token from a row of n_vocab logits and tells sampler and grammar so, exactly once. On any error nothing
 * counts as emitted. GT_E_LOGITS, GT_E_SAMPLER, GT_E_GRAMMAR, GT_E_EXCEPTION. */
int gt_pick(gt_picker *p, const float *logits, int32_t *token);

#endif
