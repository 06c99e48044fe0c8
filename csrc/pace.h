/* How many tokens are worth drafting now, and by which source. Pure arithmetic: no clock, no memory, no model; the
 * caller tells microseconds. One round:
 *
 *   int32_t kind = gt_pace_begin(p, draft, on, lag);
 *   while (kind != GT_PACE_NONE) {
 *       … source `kind` appends to the draft; when it has nothing, its bit in `on` is cleared …
 *       gt_pace_drafted(p, kind, tokens of its batch, us);        per batch; not for a source without one
 *       kind = gt_pace_more(p, draft, on, lag);                    lag as it is now
 *   }
 *   gt_draft_cut(draft, gt_pace_length(p, draft));
 *   … verify; gt_pace_verified(p, draft->n + 1, us) …
 *   gt_pace_outcome(p, draft, n_agreed, ended);
 *
 * A round is worth its expected tokens less λ times its time, λ being the best tokens per time so far, that of no draft
 * included; another proposal is worth its price when some number of further ones is (ENGINE's rule). Where speculation
 * does not pay, 1 % of the time is saved up, and a source that costs is listened to again when its expected loss has
 * been saved: its proposal is judged by the next token, verified or not. When it could not pay even if everything were
 * accepted, it is not asked.
 *
 * `on` has bit 1 << kind for each source that may draft. lag[kind] is the number of tokens, of the history and the draft,
 * that its next proposal needs decoded first; 0: proposals cost nothing, and such a source is asked before all others. */
#ifndef GT_PACE_H
#define GT_PACE_H

#include "draft.h"
#include "learned.h"

#define GT_PACE_NONE (-1)
#define GT_PACE_MAX 64 /* most proposals of a round */

typedef struct gt_pace {
    gt_learned learned;
    int32_t n_max;                              /* most proposals */
    uint8_t allowed[GT_PACE_MAX + 2];           /* by verify width */
    bool few_widths;                            /* not all are allowed: keep to the last one */
    int32_t last_width;
    int32_t since_plain;                        /* verify batches since the last of width 1 */
    float ahead;                                /* microseconds gained against plain, and those that may be lost */
    float rate;                                 /* λ, tokens per microsecond; from here on: of this round */
    float margin;                               /* tokens that a draft must promise to gain */
    float price[GT_PACE_MAX + 2];               /* λ × expected time of a verify batch, by width */
    gt_forecast forecast[GT_KINDS][GT_ODDS_DEPTHS];
    float spent;                                /* expected microseconds of the draft batches */
    float foreseen;                             /* what it is worth, as foreseen when its source began */
    bool probe;                                 /* it is made in order to learn */
    int32_t goal;                               /* proposals to verify all the same, to learn what that costs; 0: none */
} gt_pace;

/* n_max: 0 … GT_PACE_MAX proposals. */
void gt_pace_init(gt_pace *p, int32_t n_max);

/* Only these verify widths from now on, and 1; n 0: all of them. For GPU backends: 1, 2, 4, 8. */
void gt_pace_widths(gt_pace *p, const int32_t *widths, int32_t n);

/* A new request: its text may be of another kind. How sure sources are of it is seen anew, and as much may be lost by
 * listening to them in every request. */
void gt_pace_request(gt_pace *p);

/* A target batch of `width` tokens with logits, a draft batch of `n` tokens. Prefill is not told. */
void gt_pace_verified(gt_pace *p, int32_t width, int64_t us);
void gt_pace_drafted(gt_pace *p, int32_t kind, int32_t n, int64_t us);

/* A new round, draft emptied: the source that drafts first, or GT_PACE_NONE. draft->max may be less than n_max where the
 * context or the request ends. */
int32_t gt_pace_begin(gt_pace *p, gt_draft *d, uint32_t on, const int32_t lag[GT_KINDS]);

/* The source that drafts next, or GT_PACE_NONE. It may go on from a free source's proposals; where it does better
 * without them the draft is emptied. */
int32_t gt_pace_more(gt_pace *p, gt_draft *d, uint32_t on, const int32_t lag[GT_KINDS]);

/* How many of the proposals to verify, 0 … d->n. */
int32_t gt_pace_length(gt_pace *p, const gt_draft *d);

/* The first n_agreed proposals equal the tokens that came. Of the d->left that were not verified the first is judged,
 * too, by the token that follows an accepted draft, so n_agreed may be d->n + 1: what n-grams propose is learned from
 * at no cost. ended: the request ended with the last of these, so the next was not refused. Of rounds without a draft,
 * too (d->n 0). */
void gt_pace_outcome(gt_pace *p, const gt_draft *d, int32_t n_agreed, bool ended);

/* λ in tokens per second; 0 before the first measurement. */
float gt_pace_rate(const gt_pace *p);

/* Whether this source could not pay even if all it proposes were accepted, as far as costs are known: its prompt need
 * not be decoded. */
bool gt_pace_hopeless(const gt_pace *p, int32_t kind);

/* GT_LEARNED_FLOATS numbers out and back. Loading refuses others: another count, another version, numbers out of range;
 * p stays as it was then. n_max and the widths are not part of them. */
void gt_pace_save(const gt_pace *p, float *out);
bool gt_pace_load(gt_pace *p, const float *in, int32_t n);

#endif
