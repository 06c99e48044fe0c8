/* What a draft's row proposes, so that the target is likely to draw the same. */
#ifndef GT_GUESS_H
#define GT_GUESS_H

#include "accept.h"

/* How a draft's ids stand to the target's. */
typedef struct gt_exchange {
    int32_t n_vocab;          /* of the draft */
    const int32_t *to_target; /* draft id → target id, below 0: never drafted; NULL: the same ids */
    const int32_t *to_draft;  /* target id → draft id; NULL: the same ids */
} gt_exchange;

/* The token to propose at `place` of the history, from n logits of the draft; `number` counts the round's proposals.
 *
 * match, and temperature 0: the largest. coupled: drawn with the target's noise. reject: drawn with noise of its own.
 * *sure is the draft's probability of it; for reject that of the largest, since whether a proposal is verified must
 * not depend on what was drawn. *id is -1 where the token is none of the target's. GT_E_LOGITS. */
int gt_guess(gt_picker *p, const gt_exchange *x, float *logits, int32_t place, int32_t number, int32_t *id,
             float *sure);

#endif
