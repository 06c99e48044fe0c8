/* Drafts copied from the text itself: what followed the longest earlier occurrence of its end. No model, any target.
 *
 *   gt_ngram_init → gt_ngram_update whenever the history has changed → gt_ngram_next when proposals are wanted
 *
 * An end is a number of tokens e; it stands for the place between token e - 1 and token e. Chains link the ends of
 * equal groups of 4, 2 and 1 tokens, the newest first, as LZ77's do, so a token that comes or goes costs a constant,
 * and so does a draft. A match of one token is proposed too, with a small `sure`: whether it pays is pace's matter.
 * All memory is taken at the start: 28 to 40 bytes per token of n_max. Nothing but the history decides what is
 * proposed, so nothing survives what is cut from it. */
#ifndef GT_NGRAM_H
#define GT_NGRAM_H

#include "codes.h"
#include "draft.h"

enum {
    GT_NGRAM_CHAINS = 3,
    GT_NGRAM_LOOKS = 16,   /* most earlier ends of one chain that are looked at */
    GT_NGRAM_LONGEST = 255 /* tokens of a match that are compared; it may go on */
};

typedef struct gt_ngram_chain {
    int32_t size;    /* tokens of a group */
    int32_t *newest; /* bucket of a group → the last end with it, 0: none; mask + 1 entries */
    int32_t *older;  /* end → the one before in its bucket; n_max + 1 entries */
} gt_ngram_chain;

typedef struct gt_ngram {
    gt_ngram_chain chains[GT_NGRAM_CHAINS]; /* the largest groups first */
    uint32_t mask;
    int32_t *text;      /* our copy of the history, n_max entries; behind it what is being proposed */
    int32_t n;          /* tokens of the history */
    int32_t n_max;
    int32_t distance;   /* how far back the last draft was copied from; 0: unknown */
    int32_t matched;    /* tokens that the last draft's source had in common with the end; 0: no draft */
    const uint8_t *eog; /* one byte per id, the caller's: nothing is proposed after such a token; NULL: none */
} gt_ngram;

/* Room for a history and proposals of n_max tokens. GT_E_ARGUMENT, GT_E_MEMORY. */
int gt_ngram_init(gt_ngram *g, int32_t n_max, const uint8_t *eog);

/* Twice is fine, and so is a zeroed struct. */
void gt_ngram_free(gt_ngram *g);

/* The history is now ids[0 … n), of which the first `shared` tokens are as at the last update. GT_E_CONTEXT where it
 * does not fit; what was known is then kept. */
int gt_ngram_update(gt_ngram *g, const int32_t *ids, int32_t n, int32_t shared);

/* Appends what may follow history and draft, until the draft is full. Returns the number of tokens: 0 where no
 * earlier end matches. A source may run into its own copy, so a period goes on.
 *
 * sure = LA / (LA + 2(1 + D)): L tokens match; of the ends looked at that match at least half as long, A go on with
 * this token (the source is one of them) and D with another. Fitted on code and prose, see benchmarks/ngram.py. */
int32_t gt_ngram_next(gt_ngram *g, gt_draft *draft);

#endif
