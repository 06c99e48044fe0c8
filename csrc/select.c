#include "select.h"

#include <math.h>
#include <string.h>

#include "wide.h"

/* Independent lanes let a compiler keep the order of float operations and still use vectors. */
enum { LANES = 32, SPAN = 1024 };

static inline float larger(float a, float b) { return a > b ? a : b; } /* b where a is NaN */

float gt_block_max(const float *x, int32_t n) {
    float lane[LANES];
    for (int j = 0; j < LANES; j++) lane[j] = -INFINITY;
    for (; n >= LANES; n -= LANES, x += LANES)
        for (int j = 0; j < LANES; j++) lane[j] = larger(x[j], lane[j]);
    for (int32_t i = 0; i < n; i++) lane[i] = larger(x[i], lane[i]);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++) lane[j] = larger(lane[j + half], lane[j]);
    return lane[0];
}

float gt_block_sum(const float *x, int32_t n) {
    float lane[LANES] = {0};
    for (; n >= LANES; n -= LANES, x += LANES)
        for (int j = 0; j < LANES; j++) lane[j] += x[j];
    for (int32_t i = 0; i < n; i++) lane[i] += x[i];
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++) lane[j] += lane[j + half];
    return lane[0];
}

static int32_t block_size(int32_t n, int32_t start, int32_t size) { return n - start < size ? n - start : size; }

int32_t gt_argmax(const float *logits, int32_t n, float *best) {
    int32_t block = -1;
    *best = -INFINITY;
    for (int32_t i = 0; i < n; i += SPAN) {
        float m = gt_block_max(logits + i, block_size(n, i, SPAN));
        if (m > *best) {
            *best = m;
            block = i;
        }
    }
    if (block < 0) return -1;
    while (logits[block] != *best) block++;
    return block;
}

/* The heap's root is the weakest kept candidate. */
static void sift_down(llama_token_data *heap, int32_t n, int32_t i) {
    llama_token_data moved = heap[i];
    for (;;) {
        int32_t child = 2 * i + 1;
        if (child >= n) break;
        if (child + 1 < n && gt_weaker(&heap[child + 1], &heap[child])) child++;
        if (!gt_weaker(&heap[child], &moved)) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = moved;
}

static llama_token_data datum(const float *logits, int32_t id) {
    llama_token_data d = {id, logits[id], 0.0f};
    if (d.logit != d.logit) d.logit = -INFINITY;
    return d;
}

int32_t gt_top_k(const float *logits, int32_t n, int32_t k, llama_token_data *out) {
    if (k > n) k = n;
    if (k < 1) return 0;
    for (int32_t i = 0; i < k; i++) out[i] = datum(logits, i);
    for (int32_t i = k / 2 - 1; i >= 0; i--) sift_down(out, k, i);
    for (int32_t start = k; start < n; start += GT_BLOCK) {
        int32_t size = block_size(n, start, GT_BLOCK);
        if (!(gt_block_max(logits + start, size) > out[0].logit)) continue;
        for (int32_t i = start; i < start + size; i++) {
            if (!(logits[i] > out[0].logit)) continue;
            out[0] = datum(logits, i);
            sift_down(out, k, 0);
        }
    }
    for (int32_t last = k - 1; last > 0; last--) {
        llama_token_data weakest = out[0];
        out[0] = out[last];
        out[last] = weakest;
        sift_down(out, last, 0);
    }
    return k;
}

void gt_all(const float *logits, int32_t n, llama_token_data *out) {
    for (int32_t i = 0; i < n; i++) out[i] = datum(logits, i);
}

/* 2^t for t <= 0, relative error below 3e-7: the whole part goes into the exponent's bits, and the rest, at most a
 * half, into a Taylor polynomial. Below -126, and for NaN, it is 2^-126. */
static inline float power_of_2(float t) {
    const float round = 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number in the low bits */
    float in = t > -126.0f ? t : -126.0f;
    float shifted = in + round;
    float r = in - (shifted - round);
    float power = 9.6181291e-3f + r * (1.3333558e-3f + r * 1.5403530e-4f);
    power = 1.0f + r * (6.9314718e-1f + r * (2.4022651e-1f + r * (5.5504109e-2f + r * power)));
    int32_t whole, bits;
    memcpy(&whole, &shifted, sizeof whole);
    memcpy(&bits, &power, sizeof bits);
    bits += (int32_t)((uint32_t)whole << 23);
    memcpy(&power, &bits, sizeof power);
    return power;
}

static float per_octave(float scale) { return scale * 1.44269504f; }

/* Σ 2^((x - best) · octaves) of at most SPAN floats. */
GT_WIDE(float, power_sum, (const float *x, int32_t n, float best, float octaves), (x, n, best, octaves)) {
    float power[SPAN];
    for (int32_t i = 0; i < n; i++) power[i] = power_of_2((x[i] - best) * octaves);
    return gt_block_sum(power, n);
}

double gt_exp_sum(const float *x, int32_t n, float best, float scale) {
    double total = 0.0;
    for (int32_t start = 0; start < n; start += SPAN)
        total += power_sum(x + start, block_size(n, start, SPAN), best, per_octave(scale));
    return total;
}

/* factor · 2^((x - best) · octaves) into out; returns it. */
GT_WIDE(float *, powers, (const float *x, int32_t n, float best, float octaves, float factor, float *out),
        (x, n, best, octaves, factor, out)) {
    for (int32_t i = 0; i < n; i++) {
        float t = (x[i] - best) * octaves;
        out[i] = t > -126.0f ? factor * power_of_2(t) : 0.0f;
    }
    return out;
}

void gt_exp(const float *x, int32_t n, float best, float scale, float factor, float *out) {
    powers(x, n, best, per_octave(scale), factor, out);
}

float gt_softmax_best(const float *logits, int32_t n, float best) {
    return best < INFINITY ? (float)(1.0 / gt_exp_sum(logits, n, best, 1.0f)) : 1.0f;
}

double gt_log_total(const float *logits, int32_t n) {
    float best;
    if (gt_argmax(logits, n, &best) < 0 || best == INFINITY) return best;
    return best + log(gt_exp_sum(logits, n, best, 1.0f));
}

float gt_log_probability(float logit, double log_total) {
    if (!(logit > -INFINITY)) return -INFINITY;
    return logit == INFINITY ? 0.0f : (float)(logit - log_total);
}

void gt_log_softmax(const float *logits, int32_t n, const int32_t *ids, int32_t n_ids, float *out) {
    double log_total = gt_log_total(logits, n);
    for (int32_t i = 0; i < n_ids; i++) out[i] = gt_log_probability(logits[ids[i]], log_total);
}

int32_t gt_top_log_softmax(const float *logits, int32_t n, int32_t k, llama_token_data *out) {
    double log_total = gt_log_total(logits, n);
    k = gt_top_k(logits, n, k, out);
    for (int32_t i = 0; i < k; i++) out[i].p = gt_log_probability(out[i].logit, log_total);
    return k;
}
