#include "accept.h"

#include <stdlib.h>
#include <string.h>

#include "foreign.h"

bool gt_picker_is_native(const gt_picker *p) { return !p->how.sampler && !p->how.grammar; }

static bool draws(const gt_picker *p) { return gt_picker_is_native(p) && p->how.chain.temperature > 0.0f; }

bool gt_picker_keeps(const gt_picker *p) { return draws(p) && (p->how.rule == GT_REJECT || p->how.compares); }

int gt_picker_init(gt_picker *p, int32_t n_vocab, int32_t own_vocab, int32_t n_guesses) {
    p->n_vocab = n_vocab;
    p->own_vocab = own_vocab;
    p->n_guesses = n_guesses;
    p->candidates = malloc((size_t)n_vocab * sizeof *p->candidates);
    p->guesses = calloc((size_t)n_guesses + 1, sizeof *p->guesses);
    if (!p->candidates || !p->guesses) return GT_E_MEMORY;
    int code = gt_work_init(&p->work, own_vocab);
    return code ? code : gt_counts_init(&p->counts, n_vocab, 0);
}

static void row_free(gt_row *r) {
    free(r->kept_ids);
    free(r->kept_x);
    memset(r, 0, sizeof *r);
}

static int row_init(gt_row *r, int32_t room) {
    row_free(r);
    r->kept_ids = malloc((size_t)room * sizeof *r->kept_ids);
    r->kept_x = malloc((size_t)room * sizeof *r->kept_x);
    return r->kept_ids && r->kept_x ? GT_OK : GT_E_MEMORY;
}

void gt_picker_free(gt_picker *p) {
    free(p->candidates);
    row_free(&p->row);
    for (int32_t i = 0; p->guesses && i <= p->n_guesses; i++) row_free(&p->guesses[i]);
    free(p->guesses);
    gt_work_free(&p->work);
    gt_counts_free(&p->counts);
    memset(p, 0, sizeof *p);
}

/* Memory for the target's row and one guess; for all guesses of a round where they are kept, whole rows included. */
static int make_room(gt_picker *p) {
    int32_t room = gt_chain_room(&p->how.chain, p->own_vocab);
    if (room == 1 && gt_picker_keeps(p)) room = p->own_vocab;
    int32_t n = gt_picker_keeps(p) ? p->n_guesses : 0;
    bool larger = room > p->room;
    int code = larger ? row_init(&p->row, room) : GT_OK;
    for (int32_t i = 0; !code && i <= n; i++)
        if (larger || !p->guesses[i].kept_x) code = row_init(&p->guesses[i], larger ? room : p->room);
    if (!code && larger) p->room = room;
    return code;
}

int gt_picker_begin(gt_picker *p, const gt_sampling *how, const int32_t *prompt, int32_t n_prompt) {
    p->how = *how;
    if (!gt_picker_is_native(p)) return gt_foreign_begin(p, prompt, n_prompt, how->last_n);
    p->counts.last_n = gt_chain_penalizes(&how->chain) ? how->last_n : 0;
    gt_counts_begin(&p->counts, prompt, n_prompt);
    p->n_counted = n_prompt;
    return make_room(p);
}

void gt_picker_count(gt_picker *p, const int32_t *ids, int32_t n) {
    if (!gt_picker_is_native(p)) return;
    while (p->n_counted < n) gt_counts_push(&p->counts, ids, ++p->n_counted);
    while (p->n_counted > n) gt_counts_pop(&p->counts, ids, p->n_counted--);
}

static double smaller(double a, double b) { return a < b ? a : b; }

/* Σ min(p, q), over the ids of p. */
static double overlap(gt_row *p, gt_row *q) {
    double sum = 0.0;
    for (int32_t i = 0; i < p->n; i++) {
        int32_t id = p->ids ? p->ids[i] : i;
        if (id >= 0) sum += smaller(gt_row_probability(p, id), gt_row_probability(q, id));
    }
    return sum;
}

/* What each rule would accept here: p of q's largest for match, whether the same noise draws the same for coupled. */
static void compare(gt_picker *p, gt_row *q, gt_noise noise, int32_t drawn) {
    int32_t top = q->ids ? q->ids[q->top] : q->top;
    p->scores.places++;
    p->scores.accepted[GT_MATCH] += gt_row_probability(&p->row, top);
    p->scores.accepted[GT_COUPLED] += gt_row_draw(q, noise) == drawn;
    p->scores.accepted[GT_REJECT] += overlap(&p->row, q);
}

/* p is in p->row. */
static int32_t drawn(gt_picker *p, int32_t place, int32_t proposal, int32_t guess) {
    gt_noise noise = gt_noise_at(p->how.seed, place);
    gt_row *q = guess >= 0 && gt_picker_keeps(p) ? &p->guesses[guess] : NULL;
    if (q && p->how.compares) compare(p, q, noise, gt_row_draw(&p->row, noise));
    if (!q || p->how.rule != GT_REJECT) return gt_row_draw(&p->row, noise);
    if (gt_row_accepts(&p->row, q, proposal, gt_noise_uniform(noise, GT_NOISE_ACCEPTS))) return proposal;
    return gt_row_residual(&p->row, q, noise, p->work.floats, p->n_vocab);
}

static int native(gt_picker *p, float *logits, int32_t place, int32_t proposal, int32_t guess, int32_t *token) {
    float best;
    if (!draws(p)) {
        *token = gt_argmax(logits, p->n_vocab, &best);
        return *token < 0 ? GT_E_LOGITS : GT_OK;
    }
    int code = gt_chain_row(&p->how.chain, logits, p->n_vocab, NULL, &p->work, &p->row);
    if (!code) *token = drawn(p, place, proposal, guess);
    return code;
}

int gt_pick(gt_picker *p, float *logits, int32_t place, int32_t proposal, int32_t guess, int32_t *token) {
    if (!logits) return GT_E_NO_LOGITS;
    if (!gt_picker_is_native(p)) return gt_foreign_pick(p, logits, token);
    gt_penalize(&p->counts, &p->how.chain, logits, p->n_vocab, NULL);
    int code = native(p, logits, place, proposal, guess, token);
    gt_unpenalize(&p->counts, logits, p->n_vocab, NULL);
    return code;
}
