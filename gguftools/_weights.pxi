# Part of _native.pyx: numbers of weights from one type to another (csrc/weights.h).

cdef extern from "weights.h" nogil:
    enum: GT_F32, GT_F16, GT_BF16
    enum: GT_WEIGHTS_OK, GT_WEIGHTS_NOT_FINITE, GT_WEIGHTS_TOO_LARGE
    int64_t gt_weights_bytes(int32_t type, int64_t n)
    int gt_weights_check(const void *x, int32_t type, int64_t n)
    int gt_weights_recode(const void *x, int32_t from_, void *out, int32_t to, int64_t n)

NOT_FINITE = GT_WEIGHTS_NOT_FINITE
TOO_LARGE = GT_WEIGHTS_TOO_LARGE


cdef int64_t _numbers(const uint8_t[::1] data, int32_t type) except -1:
    """How many numbers of a plain type lie there, in whole and aligned."""
    cdef int64_t size = 4 if type == GT_F32 else 2
    if type not in (GT_F32, GT_F16, GT_BF16) or data.shape[0] % size:
        raise ValueError("not whole numbers of a plain type")
    if data.shape[0] and <uintptr_t>&data[0] % <uintptr_t>size:
        raise ValueError("not aligned")
    return data.shape[0] // size


def check_weights(const uint8_t[::1] data not None, int32_t type):
    """0, or NOT_FINITE where numbers of a plain type hold a NaN or an infinity."""
    cdef int64_t n = _numbers(data, type)
    cdef int code = GT_WEIGHTS_OK
    if n:
        with nogil:
            code = gt_weights_check(&data[0], type, n)
    return code


def recode_weights(const uint8_t[::1] data not None, int32_t source, uint8_t[::1] out not None, int32_t goal):
    """0, NOT_FINITE or TOO_LARGE: numbers of a plain type become `out` of type `goal`, which must have their size."""
    cdef int64_t n = _numbers(data, source)
    cdef int code = GT_WEIGHTS_OK
    if gt_weights_bytes(goal, n) != out.shape[0]:
        raise ValueError("out has another size")
    if n:
        if <uintptr_t>&out[0] % (4 if goal == GT_F32 else 2):
            raise ValueError("not aligned")
        with nogil:
            code = gt_weights_recode(&data[0], source, &out[0], goal, n)
    return code
