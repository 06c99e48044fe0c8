/* The draft model as a source. Its cache holds a prefix of the history, or of a window of it when the draft's context
 * is smaller; what it lacks is decoded together with the first draft step, proposals of other sources included. */
#ifndef GT_MODEL_H
#define GT_MODEL_H

#include "cache.h"
#include "guess.h"
#include "source.h"

typedef struct gt_model {
    gt_source source;         /* first: a gt_source * is a gt_model * */
    gt_cache cache;
    gt_picker *picker;        /* the engine's: how the request draws */
    gt_exchange exchange;
    const uint8_t *eog;       /* one byte per target id: drafting stops after such a token */
    int32_t margin;           /* positions kept free for drafting; with the newest half they fill the context */
} gt_model;

/* Returns gt_cache_init's codes; GT_E_NO_REWIND when the draft's memory cannot be cut back. */
int gt_model_init(gt_model *m, const gt_cache_params *p, int32_t n_draft_max, gt_flag *cancel);

#endif
