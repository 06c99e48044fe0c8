/* The verify loop: propose → verify → accept → rewind, one round a call. The caller drives:
 *
 *   gt_engine_new → gt_begin → gt_prefill until done == total → gt_step until the end → gt_begin …
 *
 * Ids are the target's. All memory is taken at the start; only a checkpoint of a recurrent state may grow.
 * Every function returns a code of codes.h. After any error the engine is usable: caches hold prefixes of the
 * history (or of the draft's window of it), what they lack is decoded again by the next call.
 * One thread at a time, but gt_cancel may come from any.
 *
 * Built with GT_DEBUG the invariants are asserted:
 *   before a verify decode the target's cache holds the history without its last token (I1);
 *   the draft's cache is a prefix of the history (I2);
 *   before each decode the memory's own position equals our mirror (I3, checked always). */
#ifndef GT_ENGINE_H
#define GT_ENGINE_H

#include "cache.h"
#include "copier.h"
#include "logprobs.h"
#include "model.h"
#include "pace.h"

enum { GT_AUTO = -1 }; /* as a number of proposals: what pace finds worth it */

typedef struct gt_counters {
    int64_t n_draft[GT_KINDS];    /* tokens proposed and verified, by source */
    int64_t n_accepted[GT_KINDS]; /* of these, kept */
    int64_t verify_steps;   /* rounds: target decodes that gave tokens, with or without proposals */
    int64_t target_decodes; /* calls of llama_decode, prefill included */
    int64_t draft_decodes;
    int64_t target_us;      /* inside llama_decode and llama_synchronize */
    int64_t draft_us;
    int64_t select_us;      /* drawing tokens from the target's rows */
    int64_t total_us;       /* inside this engine's calls */
} gt_counters;

typedef struct gt_engine_params {
    gt_cache_params target;   /* n_out and map are set by gt_engine_new */
    gt_cache_params draft;    /* ctx NULL: no draft */
    int32_t n_draft_max;      /* most proposals of a round, 0 … n_batch - 1 */
    const uint8_t *eog;       /* target.n_vocab bytes: 1 ends the generation */
    const int32_t *to_draft;  /* target id → id fed to the draft, target.n_vocab entries; NULL: the same ids */
    const int32_t *to_target; /* draft id → target id or -1, draft.n_vocab entries; NULL: the same ids */
} gt_engine_params;

typedef struct gt_engine {
    gt_cache target;
    gt_model model;        /* the draft, when there is one */
    gt_source *sources[GT_KINDS]; /* NULL: none of that kind */
    gt_copier copier;
    gt_pace pace;
    gt_picker picker;
    gt_logprobs logprobs;
    gt_flag *cancel;       /* apart, since an unclosed engine's contexts may outlive it */
    int32_t *history;      /* n_ctx entries; while a round runs, its proposals follow behind */
    int32_t n_history;
    gt_draft draft;        /* this round's */
    int32_t n_draft_max;
    uint8_t *eog;          /* own copies of what the parameters point at */
    int32_t *to_draft;
    int32_t *to_target;
    bool on[GT_KINDS];     /* the caller's wish */
    bool lazy;             /* this request's, see gt_begin */
    int failed[GT_KINDS];  /* code that switched the source off for this request; 0: fine */
    bool ended;            /* an end token was emitted, or the history was truncated: gt_begin comes next */
    int pending;           /* an error found after tokens had been emitted: the next step returns it */
    int64_t total_prefill; /* tokens that this request's prefill decodes */
    gt_counters counters;  /* since the engine was made */
} gt_engine;

/* *out is NULL on failure. A draft that cannot be set up is a failure here. */
int gt_engine_new(const gt_engine_params *p, gt_engine **out);

/* With `release` the contexts are still alive. */
void gt_engine_free(gt_engine *e, bool release);

/* A new request: the history becomes the prompt (1 … n_ctx ids). Both caches are cut to the prefix they share with
 * it, without its last token; *reused tells the target's share. lazy: prefill leaves out a draft that cannot pay. */
int gt_begin(gt_engine *e, const int32_t *prompt, int32_t n_prompt, const gt_sampling *how, bool lazy,
             int32_t *reused);

/* Decodes one chunk of the prompt, the target's first. Complete when *done == *total. */
int gt_prefill(gt_engine *e, int64_t *done, int64_t *total);

/* One round with at most n_draft proposals (GT_AUTO: as pace says): 1 … n_draft + 1 tokens, at most max_tokens, into out (n_draft_max + 1
 * entries), from_draft[i] telling where each is from. *n is 0 only when the context is full, the request has ended, or max_tokens < 1.
 * On an error *n is 0 and the history is as before. */
int gt_step(gt_engine *e, int32_t n_draft, float p_min, int32_t max_tokens, int32_t *out, uint8_t *from_draft,
            int32_t *n);

/* Cuts the history to its first n tokens (1 … n_history) and ends the request. */
int gt_truncate(gt_engine *e, int32_t n);

/* Any thread: stops before the next decode, on the CPU inside it; stays until cleared. */
void gt_cancel(gt_engine *e, bool on);

/* Turns a source (enum gt_kind) on or off. Off, what it holds is left where it is. */
void gt_set_source(gt_engine *e, int kind, bool on);

gt_counters gt_read_counters(const gt_engine *e);

/* Name of a code of codes.h and its meaning; NULL for others. i runs from 0 until *name is NULL. */
int gt_code(int i, const char **name, const char **meaning);

#endif
