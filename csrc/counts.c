/* Penalties of chain.h, and its memory. */
#include <stdlib.h>

#include "chain.h"

static size_t bytes(int32_t n, size_t size) { return (size_t)(n > 0 ? n : 1) * size; }

int gt_counts_init(gt_counts *c, int32_t n_vocab, int32_t last_n) {
    c->n = 0;
    c->last_n = last_n > 0 ? last_n : 0;
    c->count = calloc(1, bytes(n_vocab, sizeof *c->count));
    c->place = malloc(bytes(n_vocab, sizeof *c->place));
    c->ids = malloc(bytes(n_vocab, sizeof *c->ids));
    c->saved = malloc(bytes(n_vocab, sizeof *c->saved));
    if (c->count && c->place && c->ids && c->saved) return GT_OK;
    gt_counts_free(c);
    return GT_E_MEMORY;
}

void gt_counts_free(gt_counts *c) {
    static const gt_counts nothing;
    free(c->count);
    free(c->place);
    free(c->ids);
    free(c->saved);
    *c = nothing;
}

int gt_work_init(gt_work *w, int32_t n) {
    w->candidates = malloc(bytes(n, sizeof *w->candidates));
    w->floats = malloc(bytes(n, sizeof *w->floats));
    if (w->candidates && w->floats) return GT_OK;
    gt_work_free(w);
    return GT_E_MEMORY;
}

void gt_work_free(gt_work *w) {
    free(w->candidates);
    free(w->floats);
    w->candidates = NULL;
    w->floats = NULL;
}

static void add(gt_counts *c, int32_t id) {
    if (c->count[id]++ > 0) return;
    c->place[id] = c->n;
    c->ids[c->n++] = id;
}

static void take(gt_counts *c, int32_t id) {
    if (--c->count[id] > 0) return;
    int32_t last = c->ids[--c->n];
    c->ids[c->place[id]] = last;
    c->place[last] = c->place[id];
}

void gt_counts_begin(gt_counts *c, const int32_t *ids, int32_t n) {
    while (c->n > 0) c->count[c->ids[--c->n]] = 0;
    for (int32_t i = n > c->last_n ? n - c->last_n : 0; i < n; i++) add(c, ids[i]);
}

void gt_counts_push(gt_counts *c, const int32_t *ids, int32_t n) {
    if (c->last_n == 0) return;
    add(c, ids[n - 1]);
    if (n > c->last_n) take(c, ids[n - 1 - c->last_n]);
}

void gt_counts_pop(gt_counts *c, const int32_t *ids, int32_t n) {
    if (c->last_n == 0) return;
    if (n > c->last_n) add(c, ids[n - 1 - c->last_n]);
    take(c, ids[n - 1]);
}

bool gt_chain_penalizes(const gt_chain *c) {
    return c->repeat != 1.0f || c->frequency != 0.0f || c->presence != 0.0f;
}

/* Where a token stands in the row, -1: nowhere. */
static int32_t own(const int32_t *to_own, int32_t id, int32_t n) {
    int32_t i = to_own ? to_own[id] : id;
    return i < n ? i : -1;
}

/* As llama.cpp: a positive logit is divided by `repeat`, any other multiplied. */
void gt_penalize(gt_counts *counts, const gt_chain *c, float *logits, int32_t n, const int32_t *to_own) {
    for (int32_t k = 0; k < counts->n; k++) {
        int32_t id = counts->ids[k], i = own(to_own, id, n);
        if (i < 0) continue;
        float x = counts->saved[k] = logits[i];
        x = x <= 0.0f ? x * c->repeat : x / c->repeat;
        logits[i] = x - ((float)counts->count[id] * c->frequency + c->presence);
    }
}

void gt_unpenalize(const gt_counts *counts, float *logits, int32_t n, const int32_t *to_own) {
    for (int32_t k = counts->n - 1; k >= 0; k--) { /* backwards: of two tokens with one place the first was saved first */
        int32_t i = own(to_own, counts->ids[k], n);
        if (i >= 0) logits[i] = counts->saved[k];
    }
}
