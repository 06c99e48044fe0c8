/* llama.cpp's common sampler chain over a row of floats: penalties, top-k, top-p, min-p, temperature; the draw is
 * row.h's. Same order and same rules; of equal logits the lower id is kept. A row in a draft's own ids is turned into
 * one of the target's by `to_target` (NULL: same ids; below 0: never drawn). */
#ifndef GT_CHAIN_H
#define GT_CHAIN_H

#include "codes.h"
#include "row.h"

typedef struct gt_chain {
    float temperature;                  /* 0: the largest logit */
    int32_t top_k;                      /* 0: off */
    float top_p, min_p;                 /* 1 and 0: off */
    float repeat, frequency, presence;  /* 1, 0 and 0: off */
} gt_chain;

/* How often each token stands among the newest last_n of a history. */
typedef struct gt_counts {
    int32_t *count; /* by id */
    int32_t *place; /* by id: where it stands in `ids`, while its count is above 0 */
    int32_t *ids;   /* those n that are there */
    float *saved;   /* their logits, while they are penalised */
    int32_t n, last_n;
} gt_counts;

/* Working memory of one call, for rows of up to n floats. */
typedef struct gt_work {
    llama_token_data *candidates; /* n */
    float *floats;                /* n */
} gt_work;

/* Both start as zeros and may be freed so. GT_E_MEMORY. */
int gt_counts_init(gt_counts *c, int32_t n_vocab, int32_t last_n);
void gt_counts_free(gt_counts *c);
int gt_work_init(gt_work *w, int32_t n);
void gt_work_free(gt_work *w);

/* Counts a history of n tokens afresh. */
void gt_counts_begin(gt_counts *c, const int32_t *ids, int32_t n);

/* ids[n - 1] was added to the history; ids[n - 1] is about to be taken off. */
void gt_counts_push(gt_counts *c, const int32_t *ids, int32_t n);
void gt_counts_pop(gt_counts *c, const int32_t *ids, int32_t n);

/* Whether the chain has penalties. */
bool gt_chain_penalizes(const gt_chain *c);

/* Changes the counted tokens' logits in place, and puts back what they were. The same counts and row for both.
 * to_own: from the target's ids to the row's (NULL: same ids; outside 0 … n: not in the row). */
void gt_penalize(gt_counts *counts, const gt_chain *c, float *logits, int32_t n, const int32_t *to_own);
void gt_unpenalize(const gt_counts *counts, float *logits, int32_t n, const int32_t *to_own);

/* Entries that a row needs of its own memory, of rows of n logits. */
int32_t gt_chain_room(const gt_chain *c, int32_t n);

/* What the chain leaves of n logits (penalties apart) into *row, whose own memory is set. Logits of tokens that
 * to_target refuses become minus infinity. GT_E_LOGITS when none is above that. */
int gt_chain_row(const gt_chain *c, float *logits, int32_t n, const int32_t *to_target, const gt_work *w, gt_row *row);

#endif
