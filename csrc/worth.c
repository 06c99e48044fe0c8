#include "worth.h"

#define HORIZON 32.0f /* rounds for which a source that has caught up is expected to draft */
#define HOPE 1.02f    /* what must be in reach, against λ */
#define HOPEFUL 0.9f  /* chance of each proposal for which the best length is looked for */

static const gt_forecast *forecast(const gt_pace *p, int32_t kind, int32_t depth) {
    return &p->forecast[kind][gt_odds_depth(depth)];
}

float gt_chance(const gt_pace *p, const gt_draft *d, int32_t i) {
    return gt_odds_chance(&p->learned.odds[d->kind[i]], d->sure[i], i);
}

gt_hand gt_look(const gt_pace *p, const gt_draft *d) {
    gt_hand h = {1.0f, 0.0f, -p->price[1], 0};
    for (int32_t i = 0; i < d->n && i < p->n_max; i++) {
        h.chance *= gt_chance(p, d, i);
        h.tokens += h.chance;
        if (h.tokens - p->price[i + 2] > h.worth) {
            h.worth = h.tokens - p->price[i + 2];
            h.best = i + 1;
        }
    }
    return h;
}

float gt_fee(const gt_pace *p, int32_t kind, int32_t lag) {
    return p->rate * gt_learned_draft(&p->learned, kind, lag, false);
}

float gt_lateness(const gt_pace *p, int32_t kind, int32_t lag) {
    return lag > 1 ? gt_fee(p, kind, lag) - gt_fee(p, kind, 1) : 0.0f;
}

/* For each way that the next proposal may turn out: the best number of further ones, or what is in hand. */
float gt_worth_on(const gt_pace *p, int32_t kind, const gt_hand *h, int32_t n, int32_t lag, int32_t limit) {
    const gt_forecast *next = forecast(p, kind, n);
    float each = lag > 0 ? gt_fee(p, kind, 1) : 0.0f, all = -gt_fee(p, kind, lag);
    for (int b = 0; b < GT_ODDS_LEVELS; b++) {
        float chance = h->chance * next->chance[b], tokens = h->tokens + chance, top = h->worth;
        for (int32_t k = n + 1; k <= limit; k++) {
            float now = tokens - p->price[k + 1] - each * (float)(k - n - 1);
            if (now > top) top = now;
            chance *= forecast(p, kind, k)->mean;
            tokens += chance;
        }
        all += next->share[b] * top;
    }
    return all;
}

float gt_worth_fresh(const gt_pace *p, int32_t kind, int32_t lag, int32_t limit) {
    gt_hand none = {1.0f, 0.0f, -p->price[1], 0};
    float foreseen = gt_worth_on(p, kind, &none, 0, 1, limit) + p->learned.surplus[kind];
    return foreseen - gt_lateness(p, kind, lag) / HORIZON;
}

int32_t gt_hoped_length(const gt_pace *p, int32_t kind, float lambda, bool costly, int32_t limit) {
    float each = costly ? gt_learned_draft(&p->learned, kind, 1, true) : 0.0f;
    float chance = 1.0f, tokens = 1.0f, top = 0.0f;
    int32_t best = 0;
    bool hope = false;
    for (int32_t k = 1; k <= limit; k++) {
        tokens += chance *= HOPEFUL;
        if (!p->allowed[k + 1]) continue;
        float us = gt_cost_of(&p->learned.verify, k + 1, true) + each * (float)k;
        hope = hope || (float)(k + 1) > HOPE * lambda * us;
        if (tokens <= top * us) continue;
        top = tokens / us;
        best = k;
    }
    return hope ? best : 0;
}

float gt_loss_of(const gt_pace *p, int32_t kind, int32_t k) {
    float chance = 1.0f, tokens = 1.0f;
    for (int32_t i = 0; i < k; i++) tokens += chance *= forecast(p, kind, i)->mean;
    return gt_fee(p, kind, 1) * (float)k + p->price[k + 1] - tokens;
}

int32_t gt_checked_length(const gt_pace *p, const gt_draft *d, int32_t n) {
    float chance = 1.0f, tokens = 0.0f, checked = 0.0f, least = GT_NEVER, cost = GT_NEVER;
    int32_t best = 0;
    for (int32_t i = 0; i < n; i++) {
        checked += chance;
        chance *= gt_chance(p, d, i);
        tokens += chance;
        float loss = p->price[i + 2] - p->price[1] - tokens;
        if ((float)(i + 2) <= HOPE * p->price[i + 2] || loss / checked >= least) continue;
        least = loss / checked;
        cost = loss;
        best = i + 1;
    }
    return cost <= p->rate * p->learned.bank ? best : 0;
}
