/* An engine between two requests as bytes, and back: its history and what both caches hold of it.
 *
 *   write: gt_state_size → gt_state_get, per cache        read: gt_state_restore
 *
 * Made for files. The bytes of a cache are libllama's own and mean something only to the same build with the same
 * model, context size and cache types: the caller makes sure of that, and of their being whole, before. */
#ifndef GT_STATE_H
#define GT_STATE_H

#include "engine.h"

typedef struct gt_state_part {
    const uint8_t *data; /* what gt_state_get wrote */
    size_t size;         /* 0: the cache was empty */
    int32_t n;           /* tokens in it */
    int32_t base;        /* index in the history of the first of them */
} gt_state_part;

typedef struct gt_state {
    const int32_t *ids; /* the history */
    int32_t n_ids;
    gt_state_part target;
    gt_state_part draft;
} gt_state;

/* Bytes that gt_state_get needs: 0 for an empty cache, and where libllama gives no state. */
size_t gt_state_size(const gt_cache *c);

/* Writes exactly `size` bytes. GT_E_SAVED otherwise. */
int gt_state_get(const gt_cache *c, uint8_t *data, size_t size);

/* The engine holds what `s` says, and waits for gt_begin. GT_E_ARGUMENT, GT_E_TOKEN: it does not fit, nothing was
 * changed. GT_E_SAVED: libllama did not take it; history and caches are empty then. */
int gt_state_restore(gt_engine *e, const gt_state *s);

#endif
