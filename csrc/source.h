/* A draft source: something that guesses how the history goes on. The engine drives it:
 * begin → prefill until nothing is pending → (next, next, … → observe) per round; rewind when the history is cut.
 * Every function gets the source first and returns a code of codes.h. One file per kind. */
#ifndef GT_SOURCE_H
#define GT_SOURCE_H

#include "codes.h"
#include "draft.h"
#include "llama_api.h"

typedef struct gt_history {
    const int32_t *ids; /* target's ids; while a draft is made, its proposals follow behind the n-th */
    int32_t n;
} gt_history;

typedef struct gt_source gt_source;
struct gt_source {
    /* A new request; the first `shared` tokens are those of the history before. */
    int (*begin)(gt_source *s, gt_history h, int32_t shared);

    /* Prompt tokens that prefill has still to decode; one chunk of them. NULL: never any. */
    int32_t (*pending)(const gt_source *s, gt_history h);
    int (*prefill)(gt_source *s, gt_history h);

    /* Tokens that the next `next` will decode, after n proposals; NULL: it decodes nothing. */
    int32_t (*lag)(const gt_source *s, gt_history h, int32_t n);

    /* Appends to the draft: a model one token, n-grams all they find. Appends nothing when there is no more to say: an
     * end token was the last, the next cannot be mapped, nothing matches. On failure the draft is as before. */
    int (*next)(gt_source *s, gt_history h, gt_draft *d);

    /* The proposals were verified and the history has grown: its first n_agreed tokens end with the accepted ones,
     * what follows is the target's own. */
    int (*observe)(gt_source *s, gt_history h, int32_t n_agreed);

    /* The history was cut to h.n, or the proposals were never verified: nothing beyond it may stay. */
    int (*rewind)(gt_source *s, gt_history h);
};

#endif
