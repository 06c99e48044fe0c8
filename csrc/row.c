#include "row.h"

#include <string.h>

#include "wide.h"

enum { SPAN = 1024 }; /* entries whose probabilities are worked on together */

typedef struct drawing {
    const gt_row *row;
    gt_noise noise;
    double best; /* the largest log weight + noise so far, and whose it is */
    int32_t id;
    double farthest; /* ids that would have to gain more than -farthest were looked at already */
} drawing;

static int32_t id_at(const gt_row *r, int32_t i) { return r->ids ? r->ids[i] : i; }

/* Logarithm of exp((x - best) · scale). */
static double log_weight(const gt_row *r, float x) { return ((double)x - r->best) * r->scale; }

static void try_one(drawing *d, int32_t i) {
    int32_t id = id_at(d->row, i);
    double log_w = log_weight(d->row, d->row->x[i]);
    if (!(log_w > -INFINITY)) return;
    double score = log_w + gt_noise_gumbel(d->noise, id);
    if (score > d->best || d->id < 0) {
        d->best = score;
        d->id = id;
    }
}

/* A uniform v gives at most -log(v): to gain -reach, v must be below exp(reach). No larger first 32 bits can. */
static uint32_t bits_within(double reach) {
    double most = exp(reach) * 4294967296.0 + 1.0;
    return most < 4294967295.0 ? (uint32_t)most : UINT32_MAX;
}

/* No less than that, without an exponential: for whole blocks. */
static uint32_t bits_about(double reach) {
    if (reach >= 0.0) return UINT32_MAX;
    return UINT32_MAX >> (reach > -20.0 ? (int)(reach * -1.4426) : 28); /* log2(e) is 1.44269 */
}

/* The bits of n ids, ids[j] or first + j; returns whether any is within the limit. */
GT_WIDE(bool, hash, (gt_noise noise, const int32_t *ids, int32_t first, int32_t n, uint32_t limit, uint32_t *bits),
        (noise, ids, first, n, limit, bits)) {
    uint32_t any = 0;
    if (ids)
        for (int32_t j = 0; j < n; j++) bits[j] = gt_noise_bits(noise, (uint32_t)ids[j]);
    else
        for (int32_t j = 0; j < n; j++) bits[j] = gt_noise_bits(noise, (uint32_t)(first + j));
    for (int32_t j = 0; j < n; j++) any |= bits[j] <= limit;
    return any;
}

/* Only ids whose noise could lift them above the best so far are looked at one by one: few of a block, mostly none. */
static void try_block(drawing *d, int32_t start, int32_t n) {
    const gt_row *r = d->row;
    uint32_t bits[GT_BLOCK];
    double reach = log_weight(r, gt_block_max(r->x + start, n)) - d->best;
    if (reach < d->farthest) return;
    uint32_t limit = bits_about(reach);
    if (!hash(d->noise, r->ids ? r->ids + start : NULL, start, n, limit, bits)) return;
    for (int32_t j = 0; j < n; j++)
        if (bits[j] <= limit && bits[j] <= bits_within(log_weight(r, r->x[start + j]) - d->best))
            try_one(d, start + j);
}

/* The ids of GT_BLOCK following bits; returns whether any is below n. */
GT_WIDE(bool, unhash, (gt_noise noise, uint32_t first, uint32_t n, uint32_t *id), (noise, first, n, id)) {
    uint32_t any = 0;
    for (uint32_t j = 0; j < GT_BLOCK; j++) id[j] = gt_noise_id(noise, first + j);
    for (uint32_t j = 0; j < GT_BLOCK; j++) any |= id[j] < n;
    return any;
}

/* Of a large vocabulary most ids are so unlikely that only very much noise could lift them. Which ids have that much
 * is the hash undone: 2^32 exp(-13) numbers instead of one per id, of which hardly any is an id of the row. */
static void try_noisiest(drawing *d) {
    const uint32_t n_bits = 9728; /* a multiple of GT_BLOCK, and bits from here on give less than 13 */
    uint32_t n = (uint32_t)d->row->n, id[GT_BLOCK];
    for (uint32_t start = 0; start < n_bits; start += GT_BLOCK) {
        if (!unhash(d->noise, start, n, id)) continue;
        for (uint32_t j = 0; j < GT_BLOCK; j++)
            if (id[j] < n) try_one(d, (int32_t)id[j]);
    }
    d->farthest = -13.0;
}

int32_t gt_row_draw(const gt_row *r, gt_noise noise) {
    const int32_t large = 1 << 15; /* below, to hash every id costs less */
    drawing d = {r, noise, -INFINITY, -1, -INFINITY};
    try_one(&d, r->top);
    if (!r->ids && r->n >= large) try_noisiest(&d);
    for (int32_t i = 0; i < r->n; i += GT_BLOCK) try_block(&d, i, r->n - i < GT_BLOCK ? r->n - i : GT_BLOCK);
    return d.id;
}

static double total(gt_row *r) {
    if (r->total == 0.0) r->total = gt_exp_sum(r->x, r->n, r->best, r->scale);
    return r->total;
}

double gt_row_probability(gt_row *r, int32_t id) {
    int32_t i = id;
    if (r->ids)
        for (i = 0; i < r->n && r->ids[i] != id; i++) continue;
    if (id < 0 || i >= r->n || !(r->x[i] > -INFINITY)) return 0.0;
    return exp(log_weight(r, r->x[i])) / total(r);
}

bool gt_row_accepts(gt_row *p, gt_row *q, int32_t id, double uniform) {
    return uniform * gt_row_probability(q, id) < gt_row_probability(p, id);
}

/* Probabilities of n of the row's entries. */
static void probabilities(gt_row *r, int32_t start, int32_t n, float *out) {
    gt_exp(r->x + start, n, r->best, r->scale, (float)(1.0 / total(r)), out);
}

static int32_t size_at(const gt_row *r, int32_t start) { return r->n - start < SPAN ? r->n - start : SPAN; }

/* weights[id] = q(id) */
static void spread(gt_row *q, float *weights) {
    float some[SPAN];
    for (int32_t start = 0; start < q->n; start += SPAN) {
        int32_t n = size_at(q, start);
        probabilities(q, start, n, q->ids ? some : weights + start);
        for (int32_t j = 0; q->ids && j < n; j++)
            if (q->ids[start + j] >= 0) weights[q->ids[start + j]] = some[j];
    }
}

/* weights[id] = max(0, p(id) - weights[id]) for n ids of p. */
static void subtract(gt_row *p, int32_t start, int32_t n, float *weights) {
    float some[SPAN];
    probabilities(p, start, n, some);
    if (!p->ids) {
        float *w = weights + start;
        for (int32_t j = 0; j < n; j++) w[j] = some[j] > w[j] ? some[j] - w[j] : 0.0f;
        return;
    }
    for (int32_t j = 0; j < n; j++) {
        int32_t id = p->ids[start + j];
        if (id >= 0) weights[id] = some[j] > weights[id] ? some[j] - weights[id] : 0.0f;
    }
}

/* The weights of n ids of p, in p's order; `some` has room for them. */
static const float *weights_of(const gt_row *p, int32_t start, int32_t n, const float *weights, float *some) {
    if (!p->ids) return weights + start;
    for (int32_t j = 0; j < n; j++) some[j] = p->ids[start + j] >= 0 ? weights[p->ids[start + j]] : 0.0f;
    return some;
}

/* The id where the running sum of weights passes `left`; -1 when all are 0. */
static int32_t pass(const gt_row *p, const float *weights, double left) {
    float some[SPAN];
    int32_t block = -1, last = 0;
    for (int32_t start = 0; start < p->n; start += SPAN) {
        int32_t n = size_at(p, start);
        float sum = gt_block_sum(weights_of(p, start, n, weights, some), n);
        if (sum > 0.0f) block = start;
        if (left < sum) break;
        left -= sum;
    }
    if (block < 0) return -1;
    const float *w = weights_of(p, block, size_at(p, block), weights, some);
    for (int32_t j = 0; j < size_at(p, block) && left >= 0.0; j++) {
        if (w[j] > 0.0f) last = j;
        left -= w[j];
    }
    return id_at(p, block + last);
}

int32_t gt_row_residual(gt_row *p, gt_row *q, gt_noise noise, float *weights, int32_t n_vocab) {
    float some[SPAN];
    double sum = 0.0;
    memset(weights, 0, (size_t)n_vocab * sizeof *weights);
    spread(q, weights);
    for (int32_t start = 0; start < p->n; start += SPAN) {
        int32_t n = size_at(p, start);
        subtract(p, start, n, weights);
        sum += gt_block_sum(weights_of(p, start, n, weights, some), n);
    }
    int32_t id = pass(p, weights, sum * gt_noise_uniform(noise, GT_NOISE_RESIDUAL));
    return id >= 0 ? id : gt_row_draw(p, noise); /* p = q to the last bit: nothing was to be refused */
}

void gt_row_own(gt_row *r, float *x) {
    if (r->x == r->kept_x) return;
    memcpy(x, r->x, (size_t)r->n * sizeof *x);
    r->x = x;
}
