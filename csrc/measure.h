/* A short calibration: what batches cost, before the first request pays for learning it. */
#ifndef GT_MEASURE_H
#define GT_MEASURE_H

#include "engine.h"

/* Decodes batches of arbitrary tokens on both contexts and tells pace how long they took, the most telling sizes
 * first, until budget_us are spent. Both caches are empty afterwards. GT_E_STATE when a request was begun already;
 * GT_CANCELLED; a failing draft is no error. */
int gt_measure(gt_engine *e, int64_t budget_us);

#endif
