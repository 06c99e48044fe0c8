#include "chain.h"

#include <float.h>

/* ---- what is kept, given candidates ---- */

/* top-p over candidates that top-k sorted, in llama.cpp's own float arithmetic: its borders are ours. */
static int32_t top_p_sorted(llama_token_data *c, int32_t n, float top_p) {
    float sum = 0.0f, reached = 0.0f;
    for (int32_t i = 0; i < n; i++) sum += c[i].p = expf(c[i].logit - c[0].logit);
    for (int32_t i = 0; i < n; i++) {
        reached += c[i].p / sum;
        if (reached >= top_p) return i + 1;
    }
    return n;
}

static int32_t min_p_sorted(const llama_token_data *c, int32_t n, float min_p) {
    float bound = c[0].logit + logf(min_p);
    int32_t i = 1;
    while (i < n && c[i].logit >= bound) i++;
    return i;
}

static void swap(llama_token_data *a, llama_token_data *b) {
    llama_token_data held = *a;
    *a = *b;
    *b = held;
}

/* Puts a middling candidate where it belongs in [low, high), the stronger before it; returns where, their mass. */
static int32_t partition(llama_token_data *c, int32_t low, int32_t high, double *mass) {
    llama_token_data *first = c + low, *middle = c + low + (high - low) / 2, *last = c + high - 1;
    if (gt_weaker(first, middle)) swap(first, middle);
    if (gt_weaker(middle, last)) swap(middle, last);
    if (gt_weaker(first, middle)) swap(first, middle);
    swap(middle, last);
    int32_t at = low;
    *mass = 0.0;
    for (int32_t i = low; i < high - 1; i++) {
        if (!gt_weaker(last, &c[i])) continue;
        *mass += c[i].p;
        swap(&c[at++], &c[i]);
    }
    swap(&c[at], last);
    return at;
}

static void sort_few(llama_token_data *c, int32_t n) {
    for (int32_t i = 1; i < n; i++)
        for (int32_t j = i; j > 0 && gt_weaker(&c[j - 1], &c[j]); j--) swap(&c[j - 1], &c[j]);
}

/* How many of the strongest have the mass `goal` together; they come first afterwards. Sorts only around that border. */
static int32_t strongest(llama_token_data *c, int32_t n, double goal) {
    enum { FEW = 16 };
    int32_t low = 0, high = n;
    while (high - low > FEW) {
        double mass;
        int32_t at = partition(c, low, high, &mass);
        if (mass >= goal) {
            high = at;
            continue;
        }
        goal -= mass + c[at].p;
        low = at + 1;
        if (goal <= 0.0) return low;
    }
    sort_few(c + low, high - low);
    while (low < high && goal > 0.0) goal -= c[low++].p;
    return low;
}

/* ---- what is kept, given a row ---- */

static bool truncates(const gt_chain *c, int32_t n) {
    return (c->top_k > 0 && c->top_k < n) || c->top_p < 1.0f || c->min_p > 0.0f;
}

/* A temperature whose inverse is no float is as good as 0. */
static bool is_greedy(const gt_chain *c) { return !(c->temperature > 1.0f / FLT_MAX); }

/* Those in [low, high) into out, with exp(logit - best) in .p, and the sum of it. */
static int32_t collect(const gt_row *r, const float *peaks, float low, float high, llama_token_data *out, double *mass) {
    int32_t n = 0;
    *mass = 0.0;
    for (int32_t start = 0; start < r->n; start += GT_BLOCK) {
        if (!(peaks[start / GT_BLOCK] >= low)) continue;
        int32_t end = r->n - start < GT_BLOCK ? r->n : start + GT_BLOCK;
        for (int32_t i = start; i < end; i++) {
            if (!(r->x[i] >= low && r->x[i] < high)) continue;
            llama_token_data d = {i, r->x[i], expf(r->x[i] - r->best)};
            *mass += d.p;
            out[n++] = d;
        }
    }
    return n;
}

/* How deep below the best min-p lets a logit lie. */
static float deepest(const gt_chain *c) {
    float depth = c->min_p > 0.0f ? -logf(c->min_p) : 80.0f; /* exp(-80): no total can tell it from nothing */
    return depth > 0.0f ? depth : 0.0f;
}

/* top-p and min-p of a whole row: ring by ring below the best, until they hold the mass or all that min-p allows. */
static int32_t nucleus(const gt_chain *c, const gt_row *r, const gt_work *w) {
    const float first = 4.0f, limit = deepest(c);
    double ring, mass = 0.0, goal = INFINITY;
    int32_t n = 0;
    if (c->top_p < 1.0f) goal = c->top_p * gt_exp_sum(r->x, r->n, r->best, 1.0f);
    for (int32_t start = 0; start < r->n; start += GT_BLOCK)
        w->floats[start / GT_BLOCK] = gt_block_max(r->x + start, r->n - start < GT_BLOCK ? r->n - start : GT_BLOCK);
    float high = INFINITY;
    for (float depth = c->top_p < 1.0f ? first : limit;; depth *= 1.35f) {
        float low = r->best - (depth < limit ? depth : limit);
        int32_t more = collect(r, w->floats, low, high, w->candidates + n, &ring);
        if (mass + ring >= goal)
            return n + strongest(w->candidates + n, more, goal > mass ? goal - mass : FLT_MIN);
        n += more;
        mass += ring;
        high = low;
        if (depth >= limit) return n;
    }
}

static int32_t candidates(const gt_chain *c, const gt_row *r, const gt_work *w) {
    if (c->top_k < 1 || c->top_k >= r->n) return nucleus(c, r, w);
    int32_t n = gt_top_k(r->x, r->n, c->top_k, w->candidates);
    if (c->top_p < 1.0f) n = top_p_sorted(w->candidates, n, c->top_p);
    return c->min_p > 0.0f ? min_p_sorted(w->candidates, n, c->min_p) : n;
}

static void keep(gt_row *r, const llama_token_data *c, int32_t n, const int32_t *to_target) {
    int32_t top = 0, kept = 0;
    for (int32_t i = 0; i < n; i++) {
        if (!(c[i].logit > -INFINITY)) continue;
        r->kept_ids[kept] = to_target ? to_target[c[i].id] : c[i].id;
        r->kept_x[kept] = c[i].logit;
        if (c[i].id == r->top) top = kept;
        kept++;
    }
    r->ids = r->kept_ids;
    r->x = r->kept_x;
    r->n = kept;
    r->top = top;
}

int32_t gt_chain_room(const gt_chain *c, int32_t n) {
    if (is_greedy(c)) return 1;
    if (c->top_k > 0 && c->top_k < n) return c->top_k;
    return truncates(c, n) ? n : 1; /* 1: an infinite logit is kept alone */
}

int gt_chain_row(const gt_chain *c, float *logits, int32_t n, const int32_t *to_target, const gt_work *w, gt_row *row) {
    for (int32_t i = 0; to_target && i < n; i++) logits[i] = to_target[i] < 0 ? -INFINITY : logits[i];
    row->x = logits;
    row->ids = to_target;
    row->n = n;
    row->total = 0.0;
    row->scale = 1.0f;
    row->top = gt_argmax(logits, n, &row->best);
    if (row->top < 0) return GT_E_LOGITS;
    if (is_greedy(c) || row->best == INFINITY) {
        llama_token_data one = {row->top, 0.0f, 1.0f};
        keep(row, &one, 1, to_target);
        row->best = 0.0f;
        return GT_OK;
    }
    row->scale = 1.0f / c->temperature;
    if (truncates(c, n)) keep(row, w->candidates, candidates(c, row, w), to_target);
    return GT_OK;
}
