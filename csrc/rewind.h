/* Cutting a cache back. What cannot be cut is restored from a checkpoint or dropped; the caller decodes the rest again. */
#ifndef GT_REWIND_H
#define GT_REWIND_H

#include "cache.h"

/* The cache holds at most `n` tokens afterwards; fewer where its memory cannot be cut there: read c->n. */
int gt_cache_cut(gt_cache *c, int32_t n);

/* Keeps the recurrent state of now, for a later cut to here or behind. No-op for GT_REWIND_ANY and _NONE.
 * Allocates only when the state has grown. GT_E_MEMORY; GT_E_NO_REWIND when libllama gives no state. */
int gt_cache_save(gt_cache *c);

/* Before a batch of which the last k tokens may be cut again. Snapshots undo that alone; a checkpoint is then only
 * for a batch that fails or is cancelled half-way, and taken once in a while. Codes of gt_cache_save. */
int gt_cache_may_cut(gt_cache *c, int32_t k);

/* After a failed decode: what was there before stays, or comes back from a checkpoint; else the cache is empty. */
void gt_cache_recover(gt_cache *c, int code);

/* How many of `n` tokens may be decoded in one batch that will perhaps be cut again. */
int32_t gt_cache_speculates(const gt_cache *c, int32_t n);

#endif
