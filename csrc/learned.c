#include "learned.h"

#include <string.h>

/* Plain tokens' time of a draft token that was never measured, and of each further one of its batch, over that. */
#define DRAFT_CAUTIOUS 0.5f
#define DRAFT_HOPEFUL 0.1f
#define DRAFT_BATCHED 0.3f
#define LATELY 0.08f /* what a round counts */
#define PLAIN_FIRST 3.0f /* plain tokens that tell how long they take: one may be off by far */
#define MOST 1e13f

void gt_learned_init(gt_learned *l) {
    memset(l, 0, sizeof *l);
    l->version = GT_LEARNED_VERSION;
    gt_cost_init(&l->verify);
    for (int i = 0; i < GT_KINDS; i++) {
        gt_cost_init(&l->draft[i]);
        gt_odds_init(&l->odds[i], (enum gt_kind)i);
    }
}

float gt_learned_plain(const gt_learned *l) { return gt_cost_of(&l->verify, 1, false); }

float gt_learned_draft(const gt_learned *l, int32_t kind, int32_t n, bool hopeful) {
    if (n < 1) return 0.0f;
    float us = gt_cost_of(&l->draft[kind], n, hopeful);
    if (us > 0.0f) return us;
    return gt_learned_plain(l) * (hopeful ? DRAFT_HOPEFUL : DRAFT_CAUTIOUS) * (1.0f + DRAFT_BATCHED * (float)(n - 1));
}

float gt_learned_rate(const gt_learned *l) {
    float plain = gt_learned_plain(l), us = l->us * l->verify.drift;
    if (gt_cost_count(&l->verify, 1) < PLAIN_FIRST) return 0.0f;
    return l->tokens * plain > us ? l->tokens / us : 1.0f / plain;
}

void gt_learned_round(gt_learned *l, float tokens, float us) {
    if (l->tokens <= 0.0f) {
        l->tokens = 1.0f;
        l->us = gt_learned_plain(l) / l->verify.drift;
    }
    l->tokens += (tokens - l->tokens) * LATELY;
    l->us += (us / l->verify.drift - l->us) * LATELY;
}

static bool within(float x, float low, float high) { return x >= low && x <= high; }

static bool valid(const gt_learned *l) {
    bool fine = l->version == GT_LEARNED_VERSION && gt_cost_valid(&l->verify);
    for (int i = 0; i < GT_KINDS; i++) {
        fine = fine && gt_cost_valid(&l->draft[i]) && gt_odds_valid(&l->odds[i]);
        fine = fine && within(l->surplus[i], -1e3f, 1e3f);
    }
    fine = fine && within(l->tokens, 0.0f, 1e3f) && within(l->us, 0.0f, MOST) && (l->us > 0.0f || l->tokens <= 0.0f);
    return fine && within(l->bank, -MOST, MOST) && within(l->granted, 0.0f, 1.0f);
}

bool gt_learned_load(gt_learned *l, const float *in, int32_t n) {
    gt_learned read;
    if (n != GT_LEARNED_FLOATS) return false;
    memcpy(&read, in, sizeof read);
    if (!valid(&read)) return false;
    *l = read;
    return true;
}
