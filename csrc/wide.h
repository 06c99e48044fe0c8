/* Loops that compilers vectorise, compiled twice: for any processor, and for AVX2 where compiler and processor have
 * it, which is asked as the program runs. Not for FMA: so both give the same bits.
 *
 *     GT_WIDE(float, name, (const float *x, int32_t n), (x, n)) { … }    defines name(x, n); nothing in it may be void
 */
#ifndef GT_WIDE_H
#define GT_WIDE_H

#if defined(__x86_64__) && defined(__GNUC__)

#define GT_WIDE(type, name, parameters, arguments)                                                    \
    static inline __attribute__((always_inline)) type name##_plain parameters;                        \
    static __attribute__((target("avx2"))) type name##_avx2 parameters { return name##_plain arguments; } \
    static type name parameters {                                                                     \
        return __builtin_cpu_supports("avx2") ? name##_avx2 arguments : name##_plain arguments;       \
    }                                                                                                 \
    static inline __attribute__((always_inline)) type name##_plain parameters

#else

#define GT_WIDE(type, name, parameters, arguments) static type name parameters

#endif
#endif
