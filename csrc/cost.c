#include "cost.h"

#include <string.h>

#define FEW 3.0f          /* measurements of which the least counts; with fewer a size is not known well */
#define YOUNG 8.0f        /* with fewer it is not believed against all others */
#define MANY 16.0f        /* from here on each moves a size as little as the last one did */
#define STEP 0.06f        /* over the count: how far one measurement moves its size */
#define DRIFT_STEP 0.03f  /* how far it moves all */
#define DRIFT_MOST 1e3f
#define SPLIT_WORST 1.1f  /* a batch measured a few times is believed to cost little more than smaller ones in its place */
#define US_LEAST 0.5f
#define US_MOST 1e10f

static const int32_t sizes[GT_COST_POINTS] = {1,  2,  3,  4,  5,  6,  7,  8,   9,   10,  11,  12,  13,
                                              14, 15, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512};

static float clamp(float x, float low, float high) { return x < low ? low : x > high ? high : x; }

/* The point nearest to n. */
static int point_at(int32_t n) {
    int i = 0;
    while (i + 1 < GT_COST_POINTS && 2 * n > sizes[i] + sizes[i + 1]) i++;
    return i;
}

void gt_cost_init(gt_cost *c) {
    memset(c, 0, sizeof *c);
    c->drift = 1.0f;
}

static float stepped(float x, bool up, float step) { return up ? x * (1.0f + step) : x / (1.0f + step); }

void gt_cost_measured(gt_cost *c, int32_t n, float us) {
    int i = point_at(n);
    if (n < 1 || !(us < US_MOST)) return;
    float now = clamp(us * (float)sizes[i] / (float)n, US_LEAST, US_MOST) / c->drift;
    bool up = now > c->us[i];
    if (c->count[i] < FEW) {
        if (c->count[i] < 1.0f || !up) c->us[i] = now;
    } else if (now != c->us[i]) {
        c->us[i] = clamp(stepped(c->us[i], up, STEP / c->count[i]), US_LEAST / DRIFT_MOST, US_MOST * DRIFT_MOST);
        c->drift = clamp(stepped(c->drift, up, DRIFT_STEP), 1.0f / DRIFT_MOST, DRIFT_MOST);
    }
    if (c->count[i] < MANY) c->count[i] += 1.0f;
}

/* The first call of a shape may take ten times as long as the next: a young point is bounded by what larger batches
 * take, and smaller ones as often as it takes. */
static float at_point(const gt_cost *c, int i) {
    float us = c->us[i];
    if (c->count[i] >= YOUNG) return us;
    for (int j = 0; j < GT_COST_POINTS; j++) {
        if (c->count[j] < 1.0f || j == i) continue;
        float bound = j > i ? c->us[j] : c->us[j] * SPLIT_WORST * (float)sizes[i] / (float)sizes[j];
        if (bound < us) us = bound;
    }
    return us;
}

/* Beyond the last point: the line through the first and the last, or as many times the only one. */
static float slope_after(const gt_cost *c, int first, int last) {
    if (first == last) return at_point(c, last) / (float)sizes[last];
    float slope = (at_point(c, last) - at_point(c, first)) / (float)(sizes[last] - sizes[first]);
    return slope > 0.0f ? slope : 0.0f;
}

float gt_cost_of(const gt_cost *c, int32_t n, bool hopeful) {
    int first = -1, below = -1, above = -1;
    for (int i = 0; i < GT_COST_POINTS; i++) {
        if (c->count[i] < (hopeful && i > 0 ? FEW : 1.0f)) continue;
        if (first < 0) first = i;
        if (sizes[i] <= n) below = i;
        if (sizes[i] >= n && above < 0) above = i;
    }
    if (first < 0) return 0.0f;
    if (below < 0) return c->drift * at_point(c, first) * (float)n / (float)sizes[first];
    float us = at_point(c, below), slope = 0.0f;
    if (above < 0)
        slope = slope_after(c, first, below);
    else if (above > below)
        slope = (at_point(c, above) - us) / (float)(sizes[above] - sizes[below]);
    return c->drift * (us + slope * (float)(n - sizes[below]) * (hopeful ? 0.5f : 1.0f));
}

float gt_cost_count(const gt_cost *c, int32_t n) { return c->count[point_at(n)]; }

int32_t gt_cost_known(const gt_cost *c) {
    int i = GT_COST_POINTS - 1;
    while (i > 0 && c->count[i] < FEW) i--;
    return sizes[i];
}

bool gt_cost_valid(const gt_cost *c) {
    for (int i = 0; i < GT_COST_POINTS; i++) {
        if (!(c->count[i] >= 0.0f && c->count[i] <= MANY)) return false;
        if (!(c->us[i] >= 0.0f && c->us[i] <= US_MOST * DRIFT_MOST)) return false;
        if (c->count[i] > 0.0f && c->us[i] <= 0.0f) return false;
    }
    return c->drift >= 1.0f / DRIFT_MOST && c->drift <= DRIFT_MOST;
}
