/* Rows of weights from one number type to another, with the checks that a conversion needs in the same pass.
 *
 * Block types get the bytes that the gguf package's numpy quantizers write on x86, which are those of ggml's reference
 * code: a scale is divided in float32, quants of Q8_0 round half away from zero, of Q4_0 half up. Where the scale is so
 * small that its inverse is infinite, all quants are 0. Numbers are little endian, as the host's own. */
#ifndef GT_WEIGHTS_H
#define GT_WEIGHTS_H

#include <stdint.h>

/* ggml's type ids. */
enum gt_number { GT_F32 = 0, GT_F16 = 1, GT_Q4_0 = 2, GT_Q8_0 = 8, GT_BF16 = 30 };

enum {
    GT_WEIGHTS_OK = 0,
    GT_WEIGHTS_NOT_FINITE = 1, /* a NaN or an infinity is among the numbers */
    GT_WEIGHTS_TOO_LARGE = 2   /* a number, or a block's scale, would become infinite */
};

/* Bytes of n numbers; -1 where the type is none of gt_number, or n no whole blocks. */
int64_t gt_weights_bytes(int32_t type, int64_t n);

/* Whether n numbers of a plain type (F32, F16, BF16), aligned to their size, are all finite. */
int gt_weights_check(const void *x, int32_t type, int64_t n);

/* n numbers of a plain type as another type, rounded to nearest even where that is plain. Both aligned; they must not
 * overlap. To F32 nothing is checked: every number fits. After a code other than GT_WEIGHTS_OK `out` is of no use. */
int gt_weights_recode(const void *x, int32_t from, void *out, int32_t to, int64_t n);

#endif
