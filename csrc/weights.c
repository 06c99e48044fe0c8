#include "weights.h"

#include <string.h>

#include "wide.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define HALVES_IN_HARDWARE
#include <cpuid.h>
#include <immintrin.h>
#endif

/* Numbers are widened into a buffer that stays in the nearest cache, then narrowed from there. Whole numbers stand for
 * the bits of floats wherever that is enough, so most of it holds whatever the floating-point mode is. */
enum { SPAN = 1024, BLOCK = 32, Q8_0_BYTES = 2 + BLOCK, Q4_0_BYTES = 2 + BLOCK / 2 };

static const uint32_t INFINITE = 0x7F800000u;

static inline float as_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t as_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* The largest magnitude among 16-bit numbers: of numbers without sign the bits grow with the value. */
GT_WIDE(int32_t, peak_16, (const uint16_t *x, int32_t n), (x, n)) {
    int16_t peak = 0;
    for (int32_t i = 0; i < n; i++) {
        int16_t size = (int16_t)(x[i] & 0x7FFF);
        peak = size > peak ? size : peak;
    }
    return peak;
}

GT_WIDE(uint32_t, peak_32, (const uint32_t *x, int32_t n), (x, n)) {
    int32_t peak = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t size = (int32_t)(x[i] & 0x7FFFFFFFu);
        peak = size > peak ? size : peak;
    }
    return (uint32_t)peak;
}

GT_WIDE(int, widen_bf16, (const uint16_t *x, uint32_t *out, int32_t n), (x, out, n)) {
    for (int32_t i = 0; i < n; i++) out[i] = (uint32_t)x[i] << 16;
    return 0;
}

/* Subnormal halves are whole steps of 2^-24; infinities and NaNs keep their bits. */
GT_WIDE(int, widen_f16, (const uint16_t *x, uint32_t *out, int32_t n), (x, out, n)) {
    for (int32_t i = 0; i < n; i++) {
        uint32_t size = x[i] & 0x7FFFu, sign = (uint32_t)(x[i] & 0x8000u) << 16;
        uint32_t normal = (size << 13) + (112u << 23);
        uint32_t special = (size << 13) + (224u << 23);
        uint32_t small = as_bits((float)(int32_t)size * 0x1p-24f);
        uint32_t bits = size >= 0x7C00u ? special : normal;
        out[i] = sign | (size < 0x0400u ? small : bits);
    }
    return 0;
}

/* Below the smallest normal half, adding 0.5 rounds to whole steps of 2^-24: that is a float's step there. */
GT_WIDE(int, narrow_f16, (const uint32_t *x, uint16_t *out, int32_t n), (x, out, n)) {
    for (int32_t i = 0; i < n; i++) {
        uint32_t size = x[i] & 0x7FFFFFFFu, sign = x[i] >> 16 & 0x8000u;
        uint32_t normal = (size - (112u << 23) + 0x0FFFu + (size >> 13 & 1u)) >> 13;
        uint32_t small = as_bits(as_float(size) + 0.5f) - as_bits(0.5f);
        out[i] = (uint16_t)(sign | (size < 113u << 23 ? small : normal));
    }
    return 0;
}

#ifdef HALVES_IN_HARDWARE

static int has_f16c(void) {
    static int known; /* asked once: the answer never changes, so a race does no harm */
    unsigned a, b, c, d;
    if (!known) known = __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) ? 1 : -1;
    return known > 0;
}

/* The same bits as narrow_f16, three times as fast. */
static __attribute__((target("avx2,f16c"))) int32_t narrow_f16c(const uint32_t *x, uint16_t *out, int32_t n) {
    int32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 wide = _mm256_castsi256_ps(_mm256_loadu_si256((const __m256i *)(const void *)(x + i)));
        __m128i half = _mm256_cvtps_ph(wide, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        _mm_storeu_si128((__m128i *)(void *)(out + i), half);
    }
    return i;
}

#endif

static void halves(const uint32_t *x, uint16_t *out, int32_t n) {
    int32_t done = 0;
#ifdef HALVES_IN_HARDWARE
    if (has_f16c()) done = narrow_f16c(x, out, n);
#endif
    if (done < n) narrow_f16(x + done, out + done, n - done);
}

GT_WIDE(int, narrow_bf16, (const uint32_t *x, uint16_t *out, int32_t n), (x, out, n)) {
    for (int32_t i = 0; i < n; i++) out[i] = (uint16_t)((x[i] + 0x7FFFu + (x[i] >> 16 & 1u)) >> 16);
    return 0;
}

static inline float inverse(float d) {
    float id = d != 0.0f ? 1.0f / d : 0.0f;
    return (as_bits(id) & INFINITE) == INFINITE ? 0.0f : id; /* then each product would be infinite or NaN */
}

static inline void put_scale(float d, uint8_t *out) {
    uint32_t bits = as_bits(d);
    uint16_t half;
    narrow_f16_plain(&bits, &half, 1);
    memcpy(out, &half, sizeof half);
}

GT_WIDE(int, pack_q8_0, (const uint32_t *x, uint8_t *out, int32_t n_blocks), (x, out, n_blocks)) {
    for (int32_t b = 0; b < n_blocks; b++, x += BLOCK, out += Q8_0_BYTES) {
        int32_t peak = 0;
        for (int i = 0; i < BLOCK; i++) {
            int32_t size = (int32_t)(x[i] & 0x7FFFFFFFu);
            peak = size > peak ? size : peak;
        }
        float d = as_float((uint32_t)peak) / 127.0f, id = inverse(d);
        put_scale(d, out);
        int8_t quants[BLOCK];
        for (int i = 0; i < BLOCK; i++) {
            float v = as_float(x[i]) * id;
            int32_t whole = (int32_t)v; /* towards zero */
            float rest = v - (float)whole;
            quants[i] = (int8_t)(whole + (rest >= 0.5f) - (rest <= -0.5f));
        }
        memcpy(out + 2, quants, BLOCK);
    }
    return 0;
}

/* The first of the largest magnitudes, with its sign, becomes -8. */
GT_WIDE(int, pack_q4_0, (const uint32_t *x, uint8_t *out, int32_t n_blocks), (x, out, n_blocks)) {
    for (int32_t b = 0; b < n_blocks; b++, x += BLOCK, out += Q4_0_BYTES) {
        int32_t peak = 0;
        for (int i = 0; i < BLOCK; i++) {
            int32_t size = (int32_t)(x[i] & 0x7FFFFFFFu);
            peak = size > peak ? size : peak;
        }
        int first = 0;
        while ((int32_t)(x[first] & 0x7FFFFFFFu) != peak) first++;
        float d = as_float(x[first]) / -8.0f, id = inverse(d);
        int32_t hole = d != 0.0f && id == 0.0f; /* an inverse that is infinite: no quant then, not even the middle */
        put_scale(d, out);
        uint8_t quants[BLOCK];
        for (int i = 0; i < BLOCK; i++) {
            float v = as_float(x[i]) * id;
            int32_t whole = (int32_t)(v + 8.5f);
            quants[i] = (uint8_t)(whole > 15 ? 15 : whole);
        }
        for (int i = 0; i < BLOCK / 2; i++)
            out[2 + i] = hole ? 0 : (uint8_t)(quants[i] | quants[i + BLOCK / 2] << 4);
    }
    return 0;
}

static int is_plain(int32_t type) { return type == GT_F32 || type == GT_F16 || type == GT_BF16; }

int64_t gt_weights_bytes(int32_t type, int64_t n) {
    if (type == GT_F32) return 4 * n;
    if (is_plain(type)) return 2 * n;
    if (n % BLOCK != 0) return -1;
    return type == GT_Q8_0 ? n / BLOCK * Q8_0_BYTES : type == GT_Q4_0 ? n / BLOCK * Q4_0_BYTES : -1;
}

static int32_t span(int64_t n) { return n < SPAN ? (int32_t)n : SPAN; }

/* The largest magnitude among numbers of a plain type, as a float's bits; any that is not finite is the largest. */
static uint32_t peak(const void *x, int32_t type, int64_t at, int32_t n) {
    if (type == GT_F32) return peak_32((const uint32_t *)x + at, n);
    uint16_t size = (uint16_t)peak_16((const uint16_t *)x + at, n);
    uint32_t bits = (uint32_t)size << 16;
    if (type == GT_F16) widen_f16(&size, &bits, 1);
    return bits;
}

int gt_weights_check(const void *x, int32_t type, int64_t n) {
    for (int64_t i = 0; i < n; i += SPAN)
        if (peak(x, type, i, span(n - i)) >= INFINITE) return GT_WEIGHTS_NOT_FINITE;
    return GT_WEIGHTS_OK;
}

/* The first magnitude that would become infinite: half a step above the largest number; of a block, its scale. */
static uint32_t limit(int32_t type) {
    switch (type) {
    case GT_F16: return as_bits(65520.0f);
    case GT_BF16: return 0x7F7F8000u;
    case GT_Q8_0: return as_bits(127 * 65520.0f);
    case GT_Q4_0: return as_bits(8 * 65520.0f);
    default: return INFINITE;
    }
}

static void narrow(const uint32_t *x, int32_t to, void *out, int64_t at, int32_t n) {
    uint8_t *bytes = (uint8_t *)out + gt_weights_bytes(to, at);
    switch (to) {
    case GT_F16: halves(x, (uint16_t *)(void *)bytes, n); break;
    case GT_BF16: narrow_bf16(x, (uint16_t *)(void *)bytes, n); break;
    case GT_Q8_0: pack_q8_0(x, bytes, n / BLOCK); break;
    default: pack_q4_0(x, bytes, n / BLOCK); break;
    }
}

/* n numbers from x + at on as float bits: where they lie already, or in `room`. */
static const uint32_t *widened(const void *x, int32_t type, int64_t at, uint32_t *room, int32_t n) {
    if (type == GT_F32) return (const uint32_t *)x + at;
    if (type == GT_F16) widen_f16((const uint16_t *)x + at, room, n);
    else widen_bf16((const uint16_t *)x + at, room, n);
    return room;
}

int gt_weights_recode(const void *x, int32_t from, void *out, int32_t to, int64_t n) {
    uint32_t room[SPAN];
    for (int64_t i = 0; i < n; i += SPAN) {
        int32_t size = span(n - i);
        if (to != GT_F32) {
            uint32_t largest = peak(x, from, i, size);
            if (largest >= INFINITE) return GT_WEIGHTS_NOT_FINITE;
            if (largest >= limit(to)) return GT_WEIGHTS_TOO_LARGE;
            narrow(widened(x, from, i, room, size), to, out, i, size);
            continue;
        }
        uint32_t *goal = (uint32_t *)out + i;
        const uint32_t *bits = widened(x, from, i, goal, size);
        if (bits != goal) memcpy(goal, bits, 4 * (size_t)size);
    }
    return GT_WEIGHTS_OK;
}
