#include "copier.h"

static int copier_begin(gt_source *s, gt_history h, int32_t shared) {
    return gt_ngram_update(&((gt_copier *)s)->ngram, h.ids, h.n, shared);
}

static int copier_next(gt_source *s, gt_history h, gt_draft *d) {
    (void)h; /* the last update's */
    gt_ngram_next(&((gt_copier *)s)->ngram, d);
    return GT_OK;
}

/* A history that goes on, or is cut, is otherwise as it was. */
static int copier_rewind(gt_source *s, gt_history h) {
    gt_ngram *g = &((gt_copier *)s)->ngram;
    return gt_ngram_update(g, h.ids, h.n, h.n < g->n ? h.n : g->n);
}

static int copier_observe(gt_source *s, gt_history h, int32_t n_agreed) {
    (void)n_agreed;
    return copier_rewind(s, h);
}

int gt_copier_init(gt_copier *c, int32_t n_ctx, const uint8_t *eog) {
    static const gt_source functions = {
        copier_begin, NULL, NULL, NULL, copier_next, copier_observe, copier_rewind,
    };
    c->source = functions;
    return gt_ngram_init(&c->ngram, n_ctx, eog);
}

void gt_copier_free(gt_copier *c) { gt_ngram_free(&c->ngram); }
