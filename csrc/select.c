#include "select.h"

#include <math.h>
#include <string.h>

/* Independent lanes let a compiler keep the order of float operations and still use vectors. */
enum { LANES = 16, BLOCK = 1024 };

static float block_max(const float *x, int32_t n) {
    float lane[LANES], best = -INFINITY;
    int32_t i = 0;
    for (int j = 0; j < LANES; j++) lane[j] = -INFINITY;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
    for (; i < n; i++) best = x[i] > best ? x[i] : best;
    for (int j = 0; j < LANES; j++) best = lane[j] > best ? lane[j] : best;
    return best;
}

static int32_t block_size(int32_t n, int32_t start, int32_t size) { return n - start < size ? n - start : size; }

int32_t gt_argmax(const float *logits, int32_t n, float *best) {
    int32_t block = -1;
    *best = -INFINITY;
    for (int32_t i = 0; i < n; i += BLOCK) {
        float m = block_max(logits + i, block_size(n, i, BLOCK));
        if (m > *best) {
            *best = m;
            block = i;
        }
    }
    if (block < 0) return -1;
    while (logits[block] != *best) block++;
    return block;
}

/* Heap order: the root is the weakest kept candidate, of equal ones the highest id. */
static bool weaker(const llama_token_data *a, const llama_token_data *b) {
    return a->logit < b->logit || (a->logit == b->logit && a->id > b->id);
}

static void sift_down(llama_token_data *heap, int32_t n, int32_t i) {
    llama_token_data moved = heap[i];
    for (;;) {
        int32_t child = 2 * i + 1;
        if (child >= n) break;
        if (child + 1 < n && weaker(&heap[child + 1], &heap[child])) child++;
        if (!weaker(&heap[child], &moved)) break;
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
    enum { STRIDE = 64 };
    if (k > n) k = n;
    if (k < 1) return 0;
    for (int32_t i = 0; i < k; i++) out[i] = datum(logits, i);
    for (int32_t i = k / 2 - 1; i >= 0; i--) sift_down(out, k, i);
    for (int32_t start = k; start < n; start += STRIDE) {
        int32_t size = block_size(n, start, STRIDE);
        if (!(block_max(logits + start, size) > out[0].logit)) continue;
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

/* exp(x) for x <= 0: 2^t with t split into a whole part, put into the exponent bits, and a rest in [-0.5, 0.5] whose
 * power is a Taylor polynomial of degree 5 (error 3e-6). Below -87 the result is about 1e-38, which is as good as 0. */
static inline float exp_negative(float x) {
    const float round = 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number in the low bits */
    float t = (x > -87.0f ? x : -87.0f) * 1.44269504f;
    float shifted = t + round;
    float r = (t - (shifted - round)) * 0.69314718f;
    float power = 1.0f + r * (1.0f + r * (0.5f + r * (1.0f / 6 + r * (1.0f / 24 + r * (1.0f / 120)))));
    int32_t whole, bits;
    memcpy(&whole, &shifted, sizeof whole);
    memcpy(&bits, &power, sizeof bits);
    bits += (int32_t)((uint32_t)whole << 23);
    memcpy(&power, &bits, sizeof power);
    return power;
}

float gt_softmax_best(const float *logits, int32_t n, float best) {
    double total = 0.0;
    for (int32_t start = 0; start < n; start += BLOCK) {
        const float *x = logits + start;
        int32_t size = block_size(n, start, BLOCK), i = 0;
        float lane[LANES] = {0};
        for (; i + LANES <= size; i += LANES)
            for (int j = 0; j < LANES; j++) lane[j] += exp_negative(x[i + j] - best);
        for (; i < size; i++) lane[0] += exp_negative(x[i] - best);
        for (int j = 0; j < LANES; j++) total += lane[j];
    }
    return (float)(1.0 / total);
}
