#include "pace.h"

#include <string.h>

#define NEVER 1e30f      /* the price of a width that is not allowed */
#define MARGIN 0.01f     /* tokens by which one plan must beat the next: what a round costs that nobody measures */
#define KEEP 0.05f       /* of a round's tokens, that another width must gain, where widths are few */
#define SAVED 0.01f      /* of all time, for probes */
#define REINVESTED 0.1f /* and of what drafting has gained */
#define ADVANCE 3.5f     /* plain tokens that the first probes may lose */
#define REQUEST 0.75f    /* those that a request may start with */
#define BANK_MOST 20.0f  /* and the most that is saved */
#define PLAIN_EVERY 100  /* rounds after which one without a draft tells what that costs now */
#define SURPLUS 0.1f     /* what a round counts in a source's surplus */
#define HORIZON 32.0f    /* rounds for which a source that has caught up is expected to draft */
#define BEHIND_MOST 3.0f /* plain tokens by which a request may fall behind: then nothing drafts until it has caught up */
#define HOPE 1.02f       /* what must be in reach for a probe, against λ */
#define HOPEFUL 0.9f     /* chance of each proposal for which a probe looks for the best length */

/* A draft in hand. */
typedef struct hand {
    float chance; /* that all of it is accepted */
    float tokens; /* expected of it */
    float worth;  /* of its best part */
    int32_t best; /* that part's length */
} hand;

static float smaller(float a, float b) { return a < b ? a : b; }

static bool is_on(uint32_t on, int32_t kind) { return kind >= 0 && kind < GT_KINDS && (on >> kind & 1u); }

static int32_t limit_of(const gt_pace *p, const gt_draft *d) { return d->max < p->n_max ? d->max : p->n_max; }

void gt_pace_init(gt_pace *p, int32_t n_max) {
    memset(p, 0, sizeof *p);
    gt_learned_init(&p->learned);
    p->n_max = n_max < 0 ? 0 : n_max < GT_PACE_MAX ? n_max : GT_PACE_MAX;
    gt_pace_widths(p, NULL, 0);
}

void gt_pace_widths(gt_pace *p, const int32_t *widths, int32_t n) {
    p->few_widths = n > 0;
    memset(p->allowed, n < 1, sizeof p->allowed);
    p->allowed[1] = 1;
    for (int32_t i = 0; i < n; i++)
        if (widths[i] > 0 && widths[i] <= GT_PACE_MAX + 1) p->allowed[widths[i]] = 1;
}

void gt_pace_request(gt_pace *p) {
    p->learned.bank = smaller(p->learned.bank, REQUEST * gt_learned_plain(&p->learned));
    p->ahead = smaller(p->ahead, 0.0f);
    for (int i = 0; i < GT_KINDS; i++) gt_odds_loosen(&p->learned.odds[i]);
}

void gt_pace_verified(gt_pace *p, int32_t width, int64_t us) {
    gt_cost_measured(&p->learned.verify, width, (float)us);
    p->since_plain = width > 1 ? p->since_plain + 1 : 0;
}

void gt_pace_drafted(gt_pace *p, int32_t kind, int32_t n, int64_t us) {
    if (kind < 0 || kind >= GT_KINDS) return;
    gt_cost_measured(&p->learned.draft[kind], n, (float)us);
    p->spent += gt_learned_draft(&p->learned, kind, n, false);
}

float gt_pace_rate(const gt_pace *p) { return 1e6f * gt_learned_rate(&p->learned); }

/* What `lag` tokens to decode cost, in tokens at λ, and what they cost more than one. */
static float fee(const gt_pace *p, int32_t kind, int32_t lag) { return p->rate * gt_learned_draft(&p->learned, kind, lag, false); }

static float lateness(const gt_pace *p, int32_t kind, int32_t lag) {
    return lag > 1 ? fee(p, kind, lag) - fee(p, kind, 1) : 0.0f;
}

static void set_prices(gt_pace *p, bool hopeful) {
    for (int32_t w = 1; w <= p->n_max + 1; w++)
        p->price[w] = p->allowed[w] ? p->rate * gt_cost_of(&p->learned.verify, w, hopeful) : NEVER;
}

static void prepare(gt_pace *p, uint32_t on) {
    p->spent = 0.0f;
    p->goal = 0;
    p->probe = false;
    p->foreseen = NEVER;
    p->rate = gt_learned_rate(&p->learned);
    set_prices(p, false);
    for (int kind = 0; kind < GT_KINDS; kind++)
        for (int d = 0; d < GT_ODDS_DEPTHS && is_on(on, kind); d++)
            p->forecast[kind][d] = gt_odds_forecast(&p->learned.odds[kind], d);
}

static const gt_forecast *forecast(const gt_pace *p, int32_t kind, int32_t depth) {
    return &p->forecast[kind][gt_odds_depth(depth)];
}

static float chance_of(const gt_pace *p, const gt_draft *d, int32_t i) {
    return gt_odds_chance(&p->learned.odds[d->kind[i]], d->sure[i], i);
}

static hand look(const gt_pace *p, const gt_draft *d) {
    hand h = {1.0f, 0.0f, -p->price[1], 0};
    for (int32_t i = 0; i < d->n && i < p->n_max; i++) {
        h.chance *= chance_of(p, d, i);
        h.tokens += h.chance;
        if (h.tokens - p->price[i + 2] > h.worth) {
            h.worth = h.tokens - p->price[i + 2];
            h.best = i + 1;
        }
    }
    return h;
}

/* What drafting on is worth when n proposals are in hand and the first batch has this fee: for each way that the next
 * proposal may turn out, the best number of further ones, or what is in hand. */
static float worth(const gt_pace *p, int32_t kind, const hand *h, int32_t n, float first, int32_t limit) {
    const gt_forecast *next = forecast(p, kind, n);
    float each = first > 0.0f ? fee(p, kind, 1) : 0.0f, all = -first;
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

/* The same from nothing, corrected by what came of it before. To catch up is paid once for many rounds. */
static float fresh_worth(const gt_pace *p, int32_t kind, int32_t lag, int32_t limit) {
    hand none = {1.0f, 0.0f, -p->price[1], 0};
    float foreseen = worth(p, kind, &none, 0, fee(p, kind, 1), limit) + p->learned.surplus[kind];
    return foreseen - lateness(p, kind, lag) / HORIZON;
}

/* The length that would be best if acceptance were high and costs as low as can be hoped; 0 when none could pay. */
static int32_t hoped_length(const gt_pace *p, int32_t kind, float lambda, bool costly, int32_t limit) {
    float each = costly ? gt_learned_draft(&p->learned, kind, 1, true) : 0.0f, chance = 1.0f, tokens = 1.0f, top = 0.0f;
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

bool gt_pace_hopeless(const gt_pace *p, int32_t kind) {
    if (kind < 0 || kind >= GT_KINDS) return true;
    float lambda = gt_learned_rate(&p->learned);
    return lambda > 0.0f && !hoped_length(p, kind, lambda, kind != GT_KIND_NGRAM, p->n_max);
}

/* Expected tokens lost by k proposals from nothing, all verified. */
static float loss_of(const gt_pace *p, int32_t kind, int32_t k) {
    float chance = 1.0f, tokens = 1.0f;
    for (int32_t i = 0; i < k; i++) tokens += chance *= forecast(p, kind, i)->mean;
    return fee(p, kind, 1) * (float)k + p->price[k + 1] - tokens;
}

/* Whether a round's loss has been saved up, in which this source drafts although that does not pay. As long as the width
 * that can be hoped for is unknown its length is given, so that known widths double. To catch up for one round alone would
 * be a waste, so as much again must be there for those that follow. */
static bool probe(gt_pace *p, int32_t kind, int32_t lag, int32_t limit) {
    int32_t known = gt_cost_known(&p->learned.verify), k = 2 * known - 1;
    int32_t hoped = hoped_length(p, kind, p->rate, true, limit);
    if (hoped < 1) return false;
    while (k < hoped && !p->allowed[k + 1]) k++;
    k = hoped < known ? 0 : k < hoped ? k : hoped;
    float loss = k ? loss_of(p, kind, k) : -p->price[1] - fresh_worth(p, kind, 1, limit);
    if (loss + 2.0f * lateness(p, kind, lag) > p->rate * p->learned.bank) return false;
    p->goal = k;
    return p->probe = true;
}

static int32_t from_nothing(gt_pace *p, uint32_t on, const int32_t lag[GT_KINDS], int32_t limit) {
    int32_t best = GT_PACE_NONE, kind;
    float top = MARGIN - p->price[1];
    for (kind = 0; kind < GT_KINDS; kind++)
        if (is_on(on, kind) && lag[kind] < 1 && hoped_length(p, kind, p->rate, false, limit)) return kind;
    for (kind = 0; kind < GT_KINDS; kind++) {
        if (!is_on(on, kind) || lag[kind] < 1) continue;
        float now = fresh_worth(p, kind, lag[kind], limit);
        if (now <= top) continue;
        top = now;
        best = kind;
    }
    for (kind = 0; best == GT_PACE_NONE && kind < GT_KINDS; kind++)
        if (is_on(on, kind) && lag[kind] > 0 && probe(p, kind, lag[kind], limit)) best = kind;
    if (best == GT_PACE_NONE) return best;
    p->foreseen = fresh_worth(p, best, 1, limit) - p->learned.surplus[best];
    set_prices(p, true); /* of the lengths that nobody has tried, those are tried that may do better */
    return best;
}

int32_t gt_pace_begin(gt_pace *p, gt_draft *d, uint32_t on, const int32_t lag[GT_KINDS]) {
    prepare(p, on);
    d->n = 0;
    if (p->since_plain >= PLAIN_EVERY || p->ahead < -BEHIND_MOST * gt_learned_plain(&p->learned)) return GT_PACE_NONE;
    return gt_pace_more(p, d, on, lag);
}

/* A free source has proposed: one that costs may go on from there, or begin instead. */
static int32_t after_free(gt_pace *p, gt_draft *d, uint32_t on, const int32_t lag[GT_KINDS], int32_t limit) {
    hand h = look(p, d);
    float top = h.worth + MARGIN;
    int32_t best = GT_PACE_NONE;
    bool instead = false;
    for (int32_t kind = 0; kind < GT_KINDS; kind++) {
        if (!is_on(on, kind) || lag[kind] < 1) continue;
        float onward = worth(p, kind, &h, d->n, fee(p, kind, lag[kind]), limit);
        float fresh = fresh_worth(p, kind, lag[kind] - d->n, limit);
        if (onward <= top && fresh <= top) continue;
        instead = fresh > onward;
        top = instead ? fresh : onward;
        best = kind;
    }
    if (instead) d->n = 0;
    return best;
}

int32_t gt_pace_more(gt_pace *p, gt_draft *d, uint32_t on, const int32_t lag[GT_KINDS]) {
    int32_t limit = limit_of(p, d);
    if (p->rate <= 0.0f || d->n >= limit) return GT_PACE_NONE;
    if (d->n < 1) return from_nothing(p, on, lag, limit);
    int32_t last = d->kind[d->n - 1];
    if (p->goal) return is_on(on, last) && d->n < p->goal ? last : GT_PACE_NONE;
    if (lag[last] < 1) return after_free(p, d, on, lag, limit);
    if (!is_on(on, last)) return GT_PACE_NONE;
    hand h = look(p, d);
    return worth(p, last, &h, d->n, fee(p, last, lag[last]), limit) > h.worth ? last : GT_PACE_NONE;
}

/* What is in hand does not pay, but telling whether it is right may be cheap enough to learn by. */
static int32_t checked_length(gt_pace *p, const gt_draft *d, int32_t n) {
    float chance = 1.0f, tokens = 0.0f, checked = 0.0f, least = NEVER, cost = NEVER;
    int32_t best = 0;
    for (int32_t i = 0; i < n; i++) {
        checked += chance;
        chance *= chance_of(p, d, i);
        tokens += chance;
        float loss = p->price[i + 2] - p->price[1] - tokens;
        if ((float)(i + 2) <= HOPE * p->price[i + 2] || loss / checked >= least) continue;
        least = loss / checked;
        cost = loss;
        best = i + 1;
    }
    return cost <= p->rate * p->learned.bank ? best : 0;
}

/* Where widths are few the last one stays until another is clearly better. */
static int32_t steady_length(const gt_pace *p, const gt_draft *d, const hand *h, int32_t n) {
    float chance = 1.0f, tokens = 1.0f;
    int32_t last = p->last_width - 1;
    if (!p->few_widths || last < 1 || last > n) return h->best;
    for (int32_t i = 0; i < last; i++) tokens += chance *= chance_of(p, d, i);
    return h->worth - (tokens - 1.0f - p->price[last + 1]) < KEEP * tokens ? last : h->best;
}

static int32_t best_length(gt_pace *p, const gt_draft *d, int32_t n) {
    hand h = look(p, d);
    if (p->foreseen < NEVER) {
        float more = h.worth - p->rate * p->spent - p->foreseen, *surplus = &p->learned.surplus[d->kind[0]];
        *surplus += SURPLUS * (more - *surplus);
    }
    if (h.best > 0) return steady_length(p, d, &h, n);
    n = checked_length(p, d, n);
    p->probe = p->probe || n > 0;
    return n;
}

int32_t gt_pace_length(gt_pace *p, const gt_draft *d) {
    int32_t n = d->n < p->n_max ? d->n : p->n_max;
    float chance = 1.0f;
    for (int32_t i = 0; i < n; i++) {
        gt_odds_seen(&p->learned.odds[d->kind[i]], d->sure[i], i, chance);
        chance *= chance_of(p, d, i);
    }
    if (p->rate <= 0.0f || n < 1) return 0;
    if (!p->goal) return best_length(p, d, n);
    while (n > 0 && !p->allowed[n + 1]) n--;
    return n;
}

/* What was expected makes λ, since it depends less on luck; what came is what probes have cost. */
static void account(gt_pace *p, int32_t width, float expected, float tokens) {
    gt_learned *l = &p->learned;
    float plain = gt_learned_plain(l), us = p->spent + gt_cost_of(&l->verify, width, false);
    if (plain <= 0.0f) return;
    float saved = SAVED * us + (l->granted > 0.0f ? 0.0f : ADVANCE * plain), gained = tokens * plain - us;
    l->granted = 1.0f;
    p->ahead = smaller(p->ahead + saved + gained, BANK_MOST * plain);
    if (!p->probe) {
        gt_learned_round(l, expected, us);
        if (gained > 0.0f) saved += REINVESTED * gained;
    } else if (p->rate > 0.0f) {
        saved += tokens / p->rate - us;
    }
    l->bank = smaller(l->bank + saved, BANK_MOST * plain);
}

void gt_pace_outcome(gt_pace *p, const gt_draft *d, int32_t n_accepted, bool ended) {
    float expected = 1.0f + look(p, d).tokens;
    for (int32_t i = 0; i < d->n && (i < n_accepted || (i == n_accepted && !ended)); i++)
        gt_odds_learn(&p->learned.odds[d->kind[i]], d->sure[i], i, i < n_accepted);
    account(p, d->n + 1, expected, (float)(n_accepted + 1));
    p->last_width = d->n + 1;
}

void gt_pace_save(const gt_pace *p, float *out) { memcpy(out, &p->learned, sizeof p->learned); }

bool gt_pace_load(gt_pace *p, const float *in, int32_t n) {
    if (!gt_learned_load(&p->learned, in, n)) return false;
    p->ahead = 0.0f;
    return true;
}
