# Part of _native.pyx: drafts copied from the text (csrc/ngram.h).

cdef extern from "draft.h" nogil:
    ctypedef struct ngram_draft "gt_draft":
        int32_t *ids
        float *sure
        uint8_t *kind
        int32_t n, max

cdef extern from "ngram.h" nogil:
    int GT_NGRAM_LOOKS, GT_NGRAM_LONGEST
    ctypedef struct gt_ngram:
        int32_t n, n_max, matched
    int gt_ngram_init(gt_ngram *g, int32_t n_max, const uint8_t *eog)
    void gt_ngram_free(gt_ngram *g)
    int gt_ngram_update(gt_ngram *g, const int32_t *ids, int32_t n, int32_t shared)
    int32_t gt_ngram_next(gt_ngram *g, ngram_draft *draft)

NGRAM_LOOKS, NGRAM_LONGEST = GT_NGRAM_LOOKS, GT_NGRAM_LONGEST


cdef class Ngram:
    """Drafts copied from a text of at most n_max tokens; csrc/ngram.h is the manual. eog: one byte per id."""

    cdef gt_ngram g
    cdef object eog

    def __cinit__(self, int32_t n_max, bytes eog=None):
        self.eog = eog
        _check(gt_ngram_init(&self.g, n_max, <const uint8_t *>eog if eog is not None else NULL))

    def __dealloc__(self):
        gt_ngram_free(&self.g)

    def update(self, const int32_t[::1] ids, int32_t shared):
        """The text is now `ids`, of which the first `shared` are as at the last update. Raises EngineError."""
        cdef int32_t n = <int32_t>ids.shape[0]
        cdef const int32_t *first = &ids[0] if n > 0 else NULL
        cdef int code
        with nogil:
            code = gt_ngram_update(&self.g, first, n, shared)
        _check(code)

    def next(self, int32_t n_max, proposed=()):
        """(ids, sure) of at most n_max - len(proposed) tokens that may follow the text and `proposed`."""
        cdef int32_t n = len(proposed), size = n_max if n_max > n else n
        cdef int32_t[::1] ids = array("i", [*proposed, *[0] * (size - n + 1)])
        cdef float[::1] sure = array("f", bytes(4 * size + 4))
        cdef uint8_t[::1] kind = bytearray(size + 1)
        cdef ngram_draft draft
        draft.ids, draft.sure, draft.kind, draft.n, draft.max = &ids[0], &sure[0], &kind[0], n, n_max
        with nogil:
            gt_ngram_next(&self.g, &draft)
        return list(ids[n : draft.n]), list(sure[n : draft.n])

    @property
    def matched(self):
        """Tokens of the text's end that the last draft's source had in common with it; 0 without a draft."""
        return self.g.matched
