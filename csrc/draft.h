/* The proposals of one round, in order. Sources append to it; pace judges it; the engine verifies it. */
#ifndef GT_DRAFT_H
#define GT_DRAFT_H

#include <stdint.h>

enum gt_kind { GT_KIND_MODEL = 0, GT_KIND_NGRAM = 1, GT_KIND_HEAD = 2, GT_KINDS = 3 };

typedef struct gt_draft {
    int32_t *ids;   /* the target's ids; max entries, as in the arrays below */
    float *sure;    /* the source's own idea of each one's probability, in (0, 1) */
    uint8_t *kind;  /* enum gt_kind: who proposed it */
    int32_t n, max;
    int32_t left; /* made after the n, but not to be verified */
} gt_draft;

static inline void gt_draft_cut(gt_draft *d, int32_t n) {
    d->left = d->n - n;
    d->n = n;
}

#endif
