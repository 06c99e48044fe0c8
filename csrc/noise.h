/* Noise that a seed, a position and a token id name: the same number whoever asks, in whatever order.
 *
 * One 64-bit hash per (seed, position) makes a key; under a key, ids are hashed with 32-bit operations alone, which
 * compilers vectorise. The hash of ids is a bijection of 32-bit numbers and can be undone: the few ids with very much
 * noise are found by asking which ids have the bits 0, 1, 2, … */
#ifndef GT_NOISE_H
#define GT_NOISE_H

#include <math.h>
#include <stdint.h>

/* Tokens' ids are not negative: these name a position's other draws. */
enum { GT_NOISE_ACCEPTS = -1, GT_NOISE_RESIDUAL = -2 };

typedef struct gt_noise {
    uint32_t before, between; /* the key: into an id's bits first, and again half way */
} gt_noise;

/* Finaliser of splitmix64 (Steele, Lea and Flood 2014). */
static inline uint64_t gt_noise_mix64(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Each step has an inverse; multipliers of the last two from Wellons' search for small bias ("lowbias32"). */
static inline uint32_t gt_noise_half(uint32_t x) {
    x *= 0x9e3779b1u;
    return x ^ (x >> 15);
}

static inline uint32_t gt_noise_mix32(uint32_t x) {
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

static inline uint32_t gt_noise_unhalf(uint32_t x) {
    x ^= (x >> 15) ^ (x >> 30);
    return x * 0xe8b2f51u;
}

static inline uint32_t gt_noise_unmix32(uint32_t x) {
    x = (x ^ (x >> 16)) * 0x43021123u;
    x = (x ^ (x >> 15) ^ (x >> 30)) * 0x1d69e2a5u;
    return x ^ (x >> 16);
}

static inline gt_noise gt_noise_at(uint64_t seed, int64_t position) {
    uint64_t stream = gt_noise_mix64(seed + 0x9e3779b97f4a7c15u);
    uint64_t key = gt_noise_mix64(stream + (uint64_t)position * 0xd1342543de82ef95u);
    gt_noise n = {(uint32_t)key, (uint32_t)(key >> 32)};
    return n;
}

/* The first 32 bits of an id's uniform: bits / 2^32 <= uniform < (bits + 1) / 2^32. */
static inline uint32_t gt_noise_bits(gt_noise n, uint32_t id) {
    return gt_noise_mix32(gt_noise_half(id ^ n.before) ^ n.between);
}

/* The only id with these bits. */
static inline uint32_t gt_noise_id(gt_noise n, uint32_t bits) {
    return gt_noise_unhalf(gt_noise_unmix32(bits) ^ n.between) ^ n.before;
}

/* Uniform in (0, 1), 52 bits and a half. */
static inline double gt_noise_uniform(gt_noise n, int32_t id) {
    uint32_t bits = gt_noise_bits(n, (uint32_t)id);
    uint32_t more = gt_noise_mix32(gt_noise_half(bits ^ n.between) ^ n.before) >> 12;
    return ((double)(((uint64_t)bits << 20) | more) + 0.5) / 4503599627370496.0;
}

/* Standard Gumbel noise of uniform v; at most -log(v), because -log(1 - v) >= v. */
static inline double gt_noise_gumbel(gt_noise n, int32_t id) { return -log(-log1p(-gt_noise_uniform(n, id))); }

#endif
