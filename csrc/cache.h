/* One context and our mirror of what its cache holds: tokens [base, base + n) of the history at positions 0 … n-1,
 * sequence 0. Every decode of the engine goes through gt_cache_decode, which checks before the call all that would
 * end the process inside libllama. */
#ifndef GT_CACHE_H
#define GT_CACHE_H

#include <stdint.h>

#include "codes.h"
#include "llama_api.h"

/* Set by any thread, read before each decode and inside the CPU's graph. */
typedef volatile int32_t gt_flag;

/* How the memory can be cut back. */
enum gt_rewind {
    GT_REWIND_ANY = 0,        /* attention: any cut; with sliding windows where what they show is still there */
    GT_REWIND_BOUNDED = 1,    /* recurrent with snapshots: at most `bound` tokens, inside the last batch */
    GT_REWIND_CHECKPOINT = 2, /* recurrent: back to the state saved by gt_cache_save */
    GT_REWIND_NONE = 3        /* not at all: no speculation */
};

typedef struct gt_cache_params {
    struct llama_context *ctx;
    int32_t n_vocab;
    int32_t n_ctx;      /* positions */
    int32_t n_batch;    /* most tokens of one llama_decode */
    int32_t n_ubatch;   /* most tokens of one prefill chunk */
    int32_t n_out;      /* most rows of logits of one llama_decode */
    int32_t rewind;     /* enum gt_rewind */
    int32_t bound;      /* for GT_REWIND_BOUNDED: tokens */
    const int32_t *map; /* history id → id fed to this model, n_map entries; NULL: the same ids */
    int32_t n_map;
} gt_cache_params;

typedef struct gt_cache {
    gt_cache_params p;
    llama_memory_t memory;
    gt_flag *cancel;
    int32_t n;          /* tokens in the cache */
    int32_t base;       /* index in the history of position 0; above 0 only for a draft's window */
    int32_t n_swa;      /* tokens that a sliding window shows; 0: all layers see all */
    bool foreign;       /* it may hold numbers from a file: they are zeroed when it is cleared */
    int32_t n_last;     /* tokens of the last successful batch; 0 after a cut */
    int32_t n_rows;     /* tokens of the last batch whose logits can be read: the last n_rows */
    int32_t n_batch;    /* tokens of the last batch */
    uint8_t *saved;     /* the state at `saved_n`, `saved_size` of `saved_room` bytes */
    size_t saved_size;
    size_t saved_room;
    int32_t saved_n;    /* -1: none */
    int32_t sequence;   /* 0: what every seq_id points at */
    llama_batch batch;  /* arrays of `room` entries */
    int32_t room;
    int64_t us;         /* time inside llama_decode and llama_synchronize */
    int64_t n_decodes;
} gt_cache;

/* Takes over the context: clears its memory, sets the abort callback. GT_E_MEMORY, GT_E_ARGUMENT. */
int gt_cache_init(gt_cache *c, const gt_cache_params *p, gt_flag *cancel);

/* With `release` the context is still alive and its abort callback is taken off. */
void gt_cache_free(gt_cache *c, bool release);

/* Decodes `count` tokens (history ids) after what is there; the last n_out of them get logits. On failure the cache
 * is cut back to what it held, or less: `n` says what is left. */
int gt_cache_decode(gt_cache *c, const int32_t *ids, int32_t count, int32_t n_out);

/* Decodes one chunk of ids[n … goal), at most n_ubatch tokens; ids starts at the cache's base. */
int gt_cache_chunk(gt_cache *c, const int32_t *ids, int32_t goal);

/* The logits of the i-th of the last batch's rows; NULL when there are none. */
float *gt_cache_logits(const gt_cache *c, int32_t i);

/* Empties the cache; position 0 is then the history's token `base`. */
int gt_cache_clear(gt_cache *c, int32_t base);

#endif
