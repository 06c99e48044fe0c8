#include "rewind.h"

#include <stdlib.h>

#include "guard.h"

#define SPARE 64 /* tokens that a failed batch may cost where no checkpoint is needed otherwise */

/* Whether a token at position n finds all that its sliding windows show. A window's layers drop what lies behind
 * it whenever they need room, and a loaded state holds nothing of that; what they still hold has no gaps. */
static bool window_allows(const gt_cache *c, int32_t n) {
    if (c->n_swa == 0) return true;
    int32_t oldest = gt_llama.llama_memory_seq_pos_min(c->memory, 0);
    return oldest == 0 || oldest <= n - c->n_swa + 1;
}

static bool can_remove(const gt_cache *c, int32_t n) {
    switch (c->p.rewind) {
    case GT_REWIND_ANY: return window_allows(c, n);
    /* Snapshots reach back to the last batch's first token, and only once. */
    case GT_REWIND_BOUNDED: return c->n - n <= c->p.bound && c->n - n < c->n_last;
    default: return false;
    }
}

/* The cache holds n tokens now. A checkpoint from beyond them is of tokens that may be others by then. */
static void shrink(gt_cache *c, int32_t n) {
    c->n = n;
    c->n_last = c->n_rows = 0;
    if (c->saved_n > n) c->saved_n = -1;
}

static int removed(gt_cache *c, int32_t n) {
    int done = gt_guard_remove(c->memory, n);
    if (done != 1) return done < 0 ? done : GT_E_NO_REWIND;
    shrink(c, n);
    return GT_OK;
}

/* The recurrent part comes from the checkpoint; what attention layers hold beyond it is removed. */
static int restored(gt_cache *c) {
    int32_t n = c->saved_n;
    if (gt_guard_state_set(c->p.ctx, c->saved, c->saved_size, GT_STATE_PARTIAL_ONLY) != c->saved_size)
        return GT_E_NO_REWIND;
    int code = removed(c, n);
    if (code) return code;
    return gt_llama.llama_memory_seq_pos_max(c->memory, 0) + 1 == n ? GT_OK : GT_E_NO_REWIND;
}

int gt_cache_cut(gt_cache *c, int32_t n) {
    if (n >= c->n) return GT_OK;
    if (n > 0 && can_remove(c, n) && removed(c, n) == GT_OK) return GT_OK;
    if (c->saved_n > 0 && c->saved_n <= n && restored(c) == GT_OK) return GT_OK;
    return gt_cache_clear(c, c->base);
}

/* A memory that needs a state and gives none is not asked again: nothing will be speculated on it. */
static int no_state(gt_cache *c) {
    if (c->p.rewind == GT_REWIND_CHECKPOINT) c->p.rewind = GT_REWIND_NONE;
    return GT_E_NO_REWIND;
}

int gt_cache_save(gt_cache *c) {
    if (c->p.rewind != GT_REWIND_BOUNDED && c->p.rewind != GT_REWIND_CHECKPOINT) return GT_OK;
    if (c->n == 0 || c->saved_n == c->n) return GT_OK;
    c->saved_n = -1;
    size_t size = gt_guard_state_size(c->p.ctx, GT_STATE_PARTIAL_ONLY);
    if (size > c->saved_room) {
        uint8_t *room = realloc(c->saved, size);
        if (!room) return GT_E_MEMORY;
        c->saved = room;
        c->saved_room = size;
    }
    if (size == 0 || gt_guard_state_get(c->p.ctx, c->saved, size, GT_STATE_PARTIAL_ONLY) != size) return no_state(c);
    c->saved_size = size;
    c->saved_n = c->n;
    return GT_OK;
}

int gt_cache_may_cut(gt_cache *c, int32_t k) {
    if (k < 1) return GT_OK;
    if (c->p.rewind != GT_REWIND_BOUNDED || k > c->p.bound) return gt_cache_save(c);
    if (c->saved_n < 0 || c->n - c->saved_n >= SPARE) gt_cache_save(c); /* without one there is more to decode */
    return GT_OK;
}

/* Attention keeps what was there before. A recurrent state that was touched half-way is worth nothing, whatever its
 * position says. */
static bool kept(gt_cache *c, int code) {
    int32_t n = gt_llama.llama_memory_seq_pos_max(c->memory, 0) + 1, keep = n < c->n ? n : c->n;
    bool untouched = code == GT_NO_SLOT || code == GT_BAD_BATCH;
    if (c->p.rewind != GT_REWIND_ANY) return untouched && n == c->n;
    if (keep <= 0 || !window_allows(c, keep)) return false;
    if (n > keep) return removed(c, keep) == GT_OK;
    shrink(c, keep);
    return true;
}

void gt_cache_recover(gt_cache *c, int code) {
    c->n_last = 0;
    if (kept(c, code)) return;
    if (c->saved_n > 0 && c->saved_n <= c->n && restored(c) == GT_OK) return;
    gt_cache_clear(c, c->base);
}

int32_t gt_cache_speculates(const gt_cache *c, int32_t n) {
    if (c->p.rewind == GT_REWIND_NONE) return 0;
    return c->p.rewind == GT_REWIND_BOUNDED && n > c->p.bound ? c->p.bound : n;
}
