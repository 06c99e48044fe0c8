/* The n-grams of ngram.h as a source: what followed the history's end before. */
#ifndef GT_COPIER_H
#define GT_COPIER_H

#include "ngram.h"
#include "source.h"

typedef struct gt_copier {
    gt_source source; /* first: a gt_source * is a gt_copier * */
    gt_ngram ngram;
} gt_copier;

/* eog must outlive it. GT_E_MEMORY. */
int gt_copier_init(gt_copier *c, int32_t n_ctx, const uint8_t *eog);
void gt_copier_free(gt_copier *c);

#endif
