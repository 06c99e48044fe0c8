#include "worth.h"

#include <string.h>

#define MARGIN 0.01f     /* tokens by which one plan must beat the next: what a round costs that nobody measures */
#define KEEP 0.05f       /* of a round's tokens, that another width must gain, where widths are few */
#define SAVED 0.01f      /* of all time, for probes */
#define REINVESTED 0.1f  /* and of what drafting has gained */
#define ADVANCE 4.0f     /* plain tokens that the first probes may lose */
#define REQUEST 0.75f    /* those that a request starts with */
#define BANK_MOST 20.0f  /* and the most that is saved */
#define PLAIN_EVERY 100  /* rounds after which one without a draft tells what that costs now, */
#define PLAIN_SOON 10    /* sooner while as few have told */
#define PLAIN_FEW 6.0f   /* as these */
#define SURPLUS 0.1f     /* what a round counts in a source's surplus */
#define BEHIND 3.0f      /* plain tokens by which a request may fall behind; from there on drafts must promise more, */
#define CAUTION 0.1f     /* by this for each */

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
    p->learned.bank = REQUEST * gt_learned_plain(&p->learned);
    p->ahead = smaller(p->ahead, 0.0f);
    p->learned.tokens = 0.0f; /* λ begins anew: the last text's may be out of reach */
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

static void set_prices(gt_pace *p, bool hopeful) {
    int32_t known = gt_cost_known(&p->learned.verify);
    for (int32_t w = 1; w <= p->n_max + 1; w++)
        p->price[w] = p->allowed[w] ? p->rate * gt_cost_of(&p->learned.verify, w, hopeful && w <= known + 1) : GT_NEVER;
}

static void prepare(gt_pace *p, uint32_t on) {
    p->spent = 0.0f;
    p->goal = 0;
    p->probe = false;
    p->rate = gt_learned_rate(&p->learned);
    float behind = -p->rate * p->ahead - BEHIND;
    p->margin = MARGIN + (behind > 0.0f ? CAUTION * behind : 0.0f);
    set_prices(p, false);
    for (int kind = 0; kind < GT_KINDS; kind++)
        for (int d = 0; d < GT_ODDS_DEPTHS && is_on(on, kind); d++)
            p->forecast[kind][d] = gt_odds_forecast(&p->learned.odds[kind], d);
}

bool gt_pace_hopeless(const gt_pace *p, int32_t kind) {
    if (kind < 0 || kind >= GT_KINDS) return true;
    float lambda = gt_learned_rate(&p->learned);
    return lambda > 0.0f && !gt_hoped_length(p, kind, lambda, kind != GT_KIND_NGRAM, p->n_max);
}

/* Whether a round's loss has been saved up, in which this source drafts although that does not pay. As long as the
 * width that can be hoped for is unknown its length is given, so that known widths double. To catch up for one round
 * alone would be a waste, so as much again must be there for those that follow. */
static bool probe(gt_pace *p, int32_t kind, int32_t lag, int32_t limit) {
    int32_t known = gt_cost_known(&p->learned.verify), k = 2 * known - 1;
    int32_t hoped = gt_hoped_length(p, kind, p->rate, true, limit);
    if (hoped < 1) return false;
    while (k < hoped && !p->allowed[k + 1]) k++;
    k = hoped < known ? 0 : k < hoped ? k : hoped;
    float loss = k ? gt_loss_of(p, kind, k) : -p->price[1] - gt_worth_fresh(p, kind, 1, limit);
    if (loss + 2.0f * gt_lateness(p, kind, lag) > p->rate * p->learned.bank) return false;
    p->goal = k;
    return p->probe = true;
}

/* A source that costs begins. Of the lengths that nobody has tried those are tried from now on that may do better. */
static void start(gt_pace *p, int32_t kind, int32_t limit) {
    p->foreseen = gt_worth_fresh(p, kind, 1, limit) - p->learned.surplus[kind];
    set_prices(p, true);
}

static int32_t from_nothing(gt_pace *p, uint32_t on, const int32_t lag[GT_KINDS], int32_t limit) {
    int32_t best = GT_PACE_NONE, kind;
    float top = p->margin - p->price[1];
    p->foreseen = GT_NEVER;
    for (kind = 0; kind < GT_KINDS; kind++)
        if (is_on(on, kind) && lag[kind] < 1 && gt_hoped_length(p, kind, p->rate, false, limit)) return kind;
    for (kind = 0; kind < GT_KINDS; kind++) {
        if (!is_on(on, kind) || lag[kind] < 1) continue;
        float now = gt_worth_fresh(p, kind, lag[kind], limit);
        if (now <= top) continue;
        top = now;
        best = kind;
    }
    for (kind = 0; best == GT_PACE_NONE && kind < GT_KINDS; kind++)
        if (is_on(on, kind) && lag[kind] > 0 && probe(p, kind, lag[kind], limit)) best = kind;
    if (best != GT_PACE_NONE) start(p, best, limit);
    return best;
}

int32_t gt_pace_begin(gt_pace *p, gt_draft *d, uint32_t on, const int32_t lag[GT_KINDS]) {
    prepare(p, on);
    d->n = 0;
    bool few = gt_cost_count(&p->learned.verify, 1) < PLAIN_FEW;
    if (p->since_plain >= (few ? PLAIN_SOON : PLAIN_EVERY)) return GT_PACE_NONE;
    return gt_pace_more(p, d, on, lag);
}

/* A free source has proposed: one that costs may go on from there, or begin instead. */
static int32_t after_free(gt_pace *p, gt_draft *d, uint32_t on, const int32_t lag[GT_KINDS], int32_t limit) {
    gt_hand h = gt_look(p, d);
    float top = h.worth + MARGIN;
    int32_t best = GT_PACE_NONE;
    bool instead = false;
    for (int32_t kind = 0; kind < GT_KINDS; kind++) {
        if (!is_on(on, kind) || lag[kind] < 1) continue;
        float onward = gt_worth_on(p, kind, &h, d->n, lag[kind], limit);
        float fresh = gt_worth_fresh(p, kind, lag[kind] - d->n, limit);
        if (onward <= top && fresh <= top) continue;
        instead = fresh > onward;
        top = instead ? fresh : onward;
        best = kind;
    }
    if (!instead) return best;
    d->n = 0;
    start(p, best, limit);
    return best;
}

int32_t gt_pace_more(gt_pace *p, gt_draft *d, uint32_t on, const int32_t lag[GT_KINDS]) {
    int32_t limit = limit_of(p, d);
    if (p->rate <= 0.0f || limit < 1) return GT_PACE_NONE;
    if (d->n < 1) return from_nothing(p, on, lag, limit);
    int32_t last = d->kind[d->n - 1];
    if (p->goal) return is_on(on, last) && d->n < p->goal ? last : GT_PACE_NONE;
    if (lag[last] < 1) return after_free(p, d, on, lag, limit);
    if (!is_on(on, last) || d->n >= limit) return GT_PACE_NONE;
    gt_hand h = gt_look(p, d);
    return gt_worth_on(p, last, &h, d->n, lag[last], limit) > h.worth ? last : GT_PACE_NONE;
}

/* Where widths are few the last one stays until another is clearly better. */
static int32_t steady_length(const gt_pace *p, const gt_draft *d, const gt_hand *h, int32_t n) {
    int32_t last = p->last_width - 1;
    if (!p->few_widths || last < 1 || last > n) return h->best;
    float chance = 1.0f, tokens = 0.0f;
    for (int32_t i = 0; i < last; i++) tokens += chance *= gt_chance(p, d, i);
    return h->worth - (tokens - p->price[last + 1]) < KEEP * (1.0f + tokens) ? last : h->best;
}

static int32_t best_length(gt_pace *p, const gt_draft *d, int32_t n) {
    gt_hand h = gt_look(p, d);
    if (p->foreseen < GT_NEVER) {
        float more = h.worth - p->rate * p->spent - p->foreseen, *surplus = &p->learned.surplus[d->kind[0]];
        *surplus += SURPLUS * (more - *surplus);
    } else if (h.worth + p->price[1] < p->margin)
        h.best = 0;
    if (h.best > 0) {
        if (p->probe) p->learned.bank -= p->spent; /* what was heard is paid for; to verify it is no loss */
        p->probe = false;
        return steady_length(p, d, &h, n);
    }
    if (gt_cost_known(&p->learned.verify) > 1) return 0; /* the next token judges it all the same */
    n = gt_checked_length(p, d, n);
    p->probe = p->probe || n > 0;
    return n;
}

int32_t gt_pace_length(gt_pace *p, const gt_draft *d) {
    int32_t n = d->n < p->n_max ? d->n : p->n_max;
    float chance = 1.0f;
    for (int32_t i = 0; i < n; i++) {
        gt_odds_seen(&p->learned.odds[d->kind[i]], d->sure[i], i, chance);
        chance *= gt_chance(p, d, i);
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

void gt_pace_outcome(gt_pace *p, const gt_draft *d, int32_t n_agreed, bool ended) {
    float expected = 1.0f + gt_look(p, d).tokens;
    int32_t n_accepted = n_agreed < d->n ? n_agreed : d->n, n_judged = d->n + (d->left > 0);
    for (int32_t i = 0; i < n_judged && (i < n_agreed || (i == n_agreed && !ended)); i++)
        gt_odds_learn(&p->learned.odds[d->kind[i]], d->sure[i], i, i < n_agreed);
    account(p, d->n + 1, expected, (float)(n_accepted + 1));
    p->last_width = d->n + 1;
}

void gt_pace_save(const gt_pace *p, float *out) { memcpy(out, &p->learned, sizeof p->learned); }

bool gt_pace_load(gt_pace *p, const float *in, int32_t n) {
    if (!gt_learned_load(&p->learned, in, n)) return false;
    p->ahead = 0.0f;
    return true;
}
