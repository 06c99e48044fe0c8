/* A draft source: something that guesses how the history goes on. The engine drives it:
 * begin → prefill until nothing is pending → (propose → observe) per round; rewind when the history is cut.
 * Every function gets the source first and returns a code of codes.h. One file per kind. */
#ifndef GT_SOURCE_H
#define GT_SOURCE_H

#include "codes.h"
#include "llama_api.h"

typedef struct gt_history {
    const int32_t *ids; /* target's ids */
    int32_t n;
} gt_history;

typedef struct gt_source gt_source;
struct gt_source {
    /* A new request; the first `shared` tokens are those of the history before. */
    int (*begin)(gt_source *s, gt_history h, int32_t shared);

    /* Prompt tokens that prefill has still to decode; one chunk of them. */
    int32_t (*pending)(const gt_source *s, gt_history h);
    int (*prefill)(gt_source *s, gt_history h);

    /* At most n_max tokens that may follow; fewer when the next one is less probable than p_min, cannot be mapped,
     * or ends the generation. On failure *n holds nothing. */
    int (*propose)(gt_source *s, gt_history h, int32_t n_max, float p_min, int32_t *out, int32_t *n);

    /* The proposals were verified and the history has grown: its first n_agreed tokens end with the accepted ones,
     * what follows is the target's own. */
    int (*observe)(gt_source *s, gt_history h, int32_t n_agreed);

    /* The history was cut to h.n, or the proposals were never verified: nothing beyond it may stay. */
    int (*rewind)(gt_source *s, gt_history h);
};

#endif
