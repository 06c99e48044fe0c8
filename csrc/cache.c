#include "cache.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "guard.h"
#include "rewind.h"

static bool aborted(void *flag) { return *(gt_flag *)flag != 0; }

static int32_t smaller(int32_t a, int32_t b) { return a < b ? a : b; }
static int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }

static int batch_init(gt_cache *c) {
    llama_batch *b = &c->batch;
    size_t room = (size_t)c->room;
    b->token = malloc(room * sizeof *b->token);
    b->pos = malloc(room * sizeof *b->pos);
    b->n_seq_id = malloc(room * sizeof *b->n_seq_id);
    b->seq_id = malloc(room * sizeof *b->seq_id);
    b->logits = malloc(room * sizeof *b->logits);
    if (!b->token || !b->pos || !b->n_seq_id || !b->seq_id || !b->logits) return GT_E_MEMORY;
    for (size_t i = 0; i < room; i++) {
        b->n_seq_id[i] = 1;
        b->seq_id[i] = &c->sequence;
    }
    return GT_OK;
}

int gt_cache_init(gt_cache *c, const gt_cache_params *p, gt_flag *cancel) {
    memset(c, 0, sizeof *c);
    if (!p->ctx || p->n_vocab < 1 || p->n_ctx < 1 || p->n_batch < 1 || p->n_ubatch < 1) return GT_E_ARGUMENT;
    if (p->rewind < GT_REWIND_ANY || p->rewind > GT_REWIND_NONE || p->bound < 0) return GT_E_ARGUMENT;
    c->p = *p;
    c->p.n_ubatch = smaller(p->n_ubatch, p->n_batch);
    c->p.n_out = smaller(p->n_out, p->n_batch);
    c->room = larger(c->p.n_ubatch, c->p.n_out);
    c->cancel = cancel;
    c->saved_n = -1;
    int code = batch_init(c);
    if (code) return code;
    c->memory = gt_llama.llama_get_memory(p->ctx);
    if (!c->memory) return GT_E_ARGUMENT;
    c->n_swa = gt_llama.llama_model_n_swa(gt_llama.llama_get_model(p->ctx));
    gt_llama.llama_set_abort_callback(p->ctx, aborted, (void *)cancel);
    return gt_cache_clear(c, 0);
}

void gt_cache_free(gt_cache *c, bool release) {
    if (release && c->memory) gt_llama.llama_set_abort_callback(c->p.ctx, NULL, NULL);
    free(c->batch.token);
    free(c->batch.pos);
    free(c->batch.n_seq_id);
    free(c->batch.seq_id);
    free(c->batch.logits);
    free(c->saved);
    memset(c, 0, sizeof *c);
}

int gt_cache_clear(gt_cache *c, int32_t base) {
    c->n = c->n_last = c->n_rows = 0;
    c->base = base;
    c->saved_n = -1;
    bool data = c->foreign; /* a NaN outlives a mere reset: libllama multiplies what is unused by zero */
    c->foreign = false;
    return gt_guard_clear(c->memory, data);
}

/* Fills the batch; what would end the process inside libllama is refused here. */
static int fill(gt_cache *c, const int32_t *ids, int32_t count, int32_t n_out) {
    llama_batch *b = &c->batch;
    if (count < 1 || count > c->room || count > c->p.n_batch || n_out > c->p.n_out || n_out > count) return GT_E_BATCH;
    if (count > c->p.n_ctx - c->n) return GT_E_CONTEXT;
    for (int32_t i = 0; i < count; i++) {
        int32_t id = ids[i];
        if (c->p.map) id = id >= 0 && id < c->p.n_map ? c->p.map[id] : -1;
        if (id < 0 || id >= c->p.n_vocab) return GT_E_TOKEN;
        b->token[i] = id;
        b->pos[i] = c->n + i;
        b->logits[i] = i >= count - n_out;
    }
    b->n_tokens = count;
    return GT_OK;
}

int gt_cache_decode(gt_cache *c, const int32_t *ids, int32_t count, int32_t n_out) {
    if (*c->cancel) return GT_CANCELLED;
    c->n_rows = 0;
    int code = fill(c, ids, count, n_out);
    if (code) return code;
    if (gt_llama.llama_memory_seq_pos_max(c->memory, 0) + 1 != c->n) {
        gt_cache_clear(c, c->base);
        return GT_E_POSITION;
    }
    int64_t start = gt_llama.llama_time_us();
    code = gt_guard_decode(c->p.ctx, c->batch);
    c->us += gt_llama.llama_time_us() - start;
    c->n_decodes++;
    if (code) {
        gt_cache_recover(c, code);
        return code;
    }
    c->n += count;
    c->n_last = c->n_batch = count;
    c->n_rows = n_out;
    return GT_OK;
}

int gt_cache_chunk(gt_cache *c, const int32_t *ids, int32_t goal) {
    return gt_cache_decode(c, ids + c->n, smaller(goal - c->n, c->p.n_ubatch), 0);
}

float *gt_cache_logits(const gt_cache *c, int32_t i) {
    if (i < 0 || i >= c->n_rows) return NULL;
    return gt_guard_logits(c->p.ctx, c->n_batch - c->n_rows + i);
}
