/* What drafts are worth, in tokens: those expected to be accepted, less λ times what they take. Part of pace. */
#ifndef GT_WORTH_H
#define GT_WORTH_H

#include "pace.h"

#define GT_NEVER 1e30f /* the price of a width that is not allowed */

/* A draft in hand. */
typedef struct gt_hand {
    float chance; /* that all of it is accepted */
    float tokens; /* expected of it */
    float worth;  /* of its best part */
    int32_t best; /* that part's length */
} gt_hand;

gt_hand gt_look(const gt_pace *p, const gt_draft *d);

/* The chance of proposal i when those before it are accepted. */
float gt_chance(const gt_pace *p, const gt_draft *d, int32_t i);

/* What it costs when a source decodes `lag` tokens, and how much more than one. */
float gt_fee(const gt_pace *p, int32_t kind, int32_t lag);
float gt_lateness(const gt_pace *p, int32_t kind, int32_t lag);

/* Of drafting on when n proposals are in hand and the source has `lag` tokens to decode first. */
float gt_worth_on(const gt_pace *p, int32_t kind, const gt_hand *h, int32_t n, int32_t lag, int32_t limit);

/* Of drafting from nothing, corrected by what came of it before. To catch up is paid once for many rounds. */
float gt_worth_fresh(const gt_pace *p, int32_t kind, int32_t lag, int32_t limit);

/* The length that would be best if acceptance were high and costs as low as can be hoped; 0 when at this λ none could pay
 * even if all were accepted. */
int32_t gt_hoped_length(const gt_pace *p, int32_t kind, float lambda, bool costly, int32_t limit);

/* Expected tokens lost by k proposals from nothing, all verified. */
float gt_loss_of(const gt_pace *p, int32_t kind, int32_t k);

/* The draft does not pay, but telling whether it is right may be cheap enough to learn by: of how many proposals; 0: none. */
int32_t gt_checked_length(const gt_pace *p, const gt_draft *d, int32_t n);

#endif
