# Part of _native.pyx: selection over rows of logits (csrc/select.h, noise.h, row.h, chain.h).

cdef extern from "select.h" nogil:
    int32_t gt_argmax(const float *logits, int32_t n, float *best)
    float gt_softmax_best(const float *logits, int32_t n, float best)
    void gt_log_softmax(const float *logits, int32_t n, const int32_t *ids, int32_t n_ids, float *out)
    int32_t gt_top_log_softmax(const float *logits, int32_t n, int32_t k, llama_token_data *out)

cdef extern from "noise.h" nogil:
    enum: GT_NOISE_ACCEPTS
    ctypedef struct gt_noise:
        uint32_t before
    uint32_t gt_noise_id(gt_noise n, uint32_t bits)
    gt_noise gt_noise_at(uint64_t seed, int64_t position)
    double gt_noise_uniform(gt_noise n, int32_t id)
    double gt_noise_gumbel(gt_noise n, int32_t id)

cdef extern from "chain.h" nogil:
    ctypedef struct gt_row:
        const float *x
        const int32_t *ids
        int32_t n
        int32_t *kept_ids
        float *kept_x
    int32_t gt_row_draw(const gt_row *r, gt_noise noise)
    double gt_row_probability(gt_row *r, int32_t id)
    bint gt_row_accepts(gt_row *p, gt_row *q, int32_t id, double uniform)
    int32_t gt_row_residual(gt_row *p, gt_row *q, gt_noise noise, float *weights, int32_t n_vocab)
    void gt_row_own(gt_row *r, float *x)
    ctypedef struct gt_counts:
        int32_t *count
    ctypedef struct gt_work:
        float *floats
    int gt_counts_init(gt_counts *c, int32_t n_vocab, int32_t last_n)
    void gt_counts_free(gt_counts *c)
    int gt_work_init(gt_work *w, int32_t n)
    void gt_work_free(gt_work *w)
    void gt_counts_begin(gt_counts *c, const int32_t *ids, int32_t n)
    void gt_counts_push(gt_counts *c, const int32_t *ids, int32_t n)
    void gt_counts_pop(gt_counts *c, const int32_t *ids, int32_t n)
    bint gt_chain_penalizes(const gt_chain *c)
    void gt_penalize(gt_counts *counts, const gt_chain *c, float *logits, int32_t n, const int32_t *to_own)
    void gt_unpenalize(const gt_counts *counts, float *logits, int32_t n, const int32_t *to_own)
    int32_t gt_chain_room(const gt_chain *c, int32_t n)
    int gt_chain_row(const gt_chain *c, float *logits, int32_t n, const int32_t *to_target, const gt_work *w,
                     gt_row *row)


def argmax(const float[::1] logits not None):
    """(the first index of the largest, its softmax probability); (-1, 0) when nothing is above minus infinity."""
    cdef float best = 0
    cdef int32_t n = <int32_t>logits.shape[0], at
    with nogil:
        at = gt_argmax(&logits[0], n, &best)
    return at, gt_softmax_best(&logits[0], n, best) if at >= 0 else 0.0


def log_softmax(const float[::1] logits not None, ids):
    """Log probabilities of these ids. Raises IndexError."""
    cdef const int32_t[::1] wanted = array("i", ids)
    cdef float[::1] out = array("f", bytes(4 * max(1, len(wanted))))
    cdef int32_t i
    for i in wanted:
        if not 0 <= i < logits.shape[0]:
            raise IndexError(i)
    if wanted.shape[0]:
        gt_log_softmax(&logits[0], <int32_t>logits.shape[0], &wanted[0], <int32_t>wanted.shape[0], &out[0])
    return list(out[: wanted.shape[0]])


def top_log_softmax(const float[::1] logits not None, int32_t k):
    """(id, log probability) of the k likeliest, of equal ones the lower id first."""
    cdef llama_token_data *out = <llama_token_data *>malloc(max(1, k) * sizeof(llama_token_data))
    if out == NULL:
        raise MemoryError()
    cdef int32_t n = gt_top_log_softmax(&logits[0], <int32_t>logits.shape[0], k, out)
    found = [(out[i].id, out[i].p) for i in range(n)]
    free(out)
    return found


def noise(seed, int64_t position, ids):
    """(uniform, Gumbel) of each id at a position under a seed; the two of one id belong together."""
    cdef gt_noise n = gt_noise_at(<uint64_t>(seed & 0xFFFFFFFFFFFFFFFF), position)
    return [(gt_noise_uniform(n, i), gt_noise_gumbel(n, i)) for i in ids]


def noise_ids(seed, int64_t position, bits):
    """The ids, of 2^32, whose uniforms begin with these 32 bits."""
    cdef gt_noise n = gt_noise_at(<uint64_t>(seed & 0xFFFFFFFFFFFFFFFF), position)
    return [gt_noise_id(n, i) for i in bits]


cdef gt_chain _chain(float temperature, int32_t top_k, float top_p, float min_p, float repeat, float frequency,
                     float presence):
    cdef gt_chain c
    c.temperature, c.top_k, c.top_p, c.min_p = temperature, top_k, top_p, min_p
    c.repeat, c.frequency, c.presence = repeat, frequency, presence
    return c


cdef class Counts:
    """The newest last_n tokens of a history, for penalties. Tokens must be in 0 … n_vocab."""

    cdef gt_counts counts
    cdef object history
    cdef int32_t n_vocab

    def __cinit__(self, int32_t n_vocab, int32_t last_n):
        if n_vocab < 1:
            raise ValueError("n_vocab")
        self.n_vocab, self.history = n_vocab, array("i")
        _check(gt_counts_init(&self.counts, n_vocab, last_n))

    def __dealloc__(self):
        gt_counts_free(&self.counts)

    def begin(self, ids):
        """A new history."""
        new = array("i", ids)
        if not all(0 <= i < self.n_vocab for i in new):
            raise EngineError(GT_E_TOKEN)
        self.history = new
        cdef const int32_t[::1] view = new
        gt_counts_begin(&self.counts, &view[0] if len(new) else NULL, <int32_t>len(new))

    def push(self, int32_t token):
        """One more token."""
        if not 0 <= token < self.n_vocab:
            raise EngineError(GT_E_TOKEN)
        self.history.append(token)
        cdef const int32_t[::1] view = self.history
        gt_counts_push(&self.counts, &view[0], <int32_t>view.shape[0])

    def pop(self):
        """Takes the newest token off. Raises IndexError."""
        cdef const int32_t[::1] view = array("i", self.history)
        self.history.pop()
        gt_counts_pop(&self.counts, &view[0], <int32_t>view.shape[0])

    def penalize(self, float[::1] logits not None, float repeat=1, float frequency=0, float presence=0,
                 const int32_t[::1] to_own=None):
        """Changes the counted tokens' logits in place."""
        cdef gt_chain c = _chain(1, 0, 1, 0, repeat, frequency, presence)
        if gt_chain_penalizes(&c):
            gt_penalize(&self.counts, &c, &logits[0], <int32_t>logits.shape[0], self.own(to_own))

    def unpenalize(self, float[::1] logits not None, const int32_t[::1] to_own=None):
        """Puts back what the last penalize, with the same counts, has changed."""
        gt_unpenalize(&self.counts, &logits[0], <int32_t>logits.shape[0], self.own(to_own))

    cdef const int32_t *own(self, const int32_t[::1] to_own) except? NULL:
        if to_own is None:
            return NULL
        if to_own.shape[0] != self.n_vocab:
            raise EngineError(GT_E_ARGUMENT)
        return &to_own[0]


cdef class Row:
    """What a chain leaves of a row of logits, which stays the caller's: one that is kept whole is not copied.

    to_target: the target's id of each logit, below 0 for none, each at most once.
    """

    cdef gt_row row
    cdef gt_work work
    cdef gt_chain chain
    cdef int32_t n, n_vocab
    cdef const int32_t[::1] to_target
    cdef float[::1] logits

    def __cinit__(self, int32_t n, *, float temperature=1, int32_t top_k=0, float top_p=1, float min_p=0,
                  const int32_t[::1] to_target=None):
        if n < 1 or (to_target is not None and to_target.shape[0] != n):
            raise EngineError(GT_E_ARGUMENT)
        self.n, self.to_target, self.logits = n, to_target, None
        self.n_vocab = n if to_target is None else max(n, max(to_target) + 1)
        self.chain = _chain(temperature, top_k, top_p, min_p, 1, 0, 0)
        cdef size_t room = gt_chain_room(&self.chain, n)
        self.row.kept_ids = <int32_t *>malloc(room * sizeof(int32_t))
        self.row.kept_x = <float *>malloc(room * sizeof(float))
        if self.row.kept_ids == NULL or self.row.kept_x == NULL:
            raise MemoryError()
        _check(gt_work_init(&self.work, self.n_vocab))

    def __dealloc__(self):
        free(self.row.kept_ids)
        free(self.row.kept_x)
        gt_work_free(&self.work)

    def fill(self, float[::1] logits not None):
        """Runs the chain over n logits. Raises EngineError where none is finite; returns self."""
        if logits.shape[0] != self.n:
            raise EngineError(GT_E_ARGUMENT)
        cdef const int32_t *ids = &self.to_target[0] if self.to_target is not None else NULL
        cdef int code
        self.logits = None
        with nogil:
            code = gt_chain_row(&self.chain, &logits[0], self.n, ids, &self.work, &self.row)
        _check(code)
        self.logits = logits
        return self

    cdef gt_row *filled(self) except NULL:
        if self.logits is None:
            raise EngineError(GT_E_STATE)
        return &self.row

    @property
    def kept(self):
        """(id, logit) of those that are left, in no order."""
        cdef gt_row *r = self.filled()
        return [(r.ids[i] if r.ids != NULL else i, r.x[i]) for i in range(r.n)]

    def own(self, float[::1] memory not None):
        """Lets go of the logits, by a copy in `memory` where the row needs them."""
        cdef gt_row *r = self.filled()
        if memory.shape[0] < r.n:
            raise EngineError(GT_E_ARGUMENT)
        gt_row_own(r, &memory[0])
        self.logits = memory

    def draw(self, seed, int64_t position, int32_t count=1):
        """Draws at `count` positions from this one on."""
        cdef gt_row *r = self.filled()
        cdef uint64_t s = <uint64_t>(seed & 0xFFFFFFFFFFFFFFFF)
        cdef int32_t[::1] out = array("i", bytes(4 * max(1, count)))
        cdef int32_t i
        with nogil:
            for i in range(count):
                out[i] = gt_row_draw(r, gt_noise_at(s, position + i))
        return list(out[:count])

    def probability(self, int32_t id):
        """Of an id; 0 for one that is not kept."""
        return gt_row_probability(self.filled(), id)

    def accepts(self, Row q not None, int32_t id, double uniform):
        """Whether `id`, drawn from q, is kept where this row is wanted."""
        return gt_row_accepts(self.filled(), q.filled(), id, uniform)

    def residual(self, Row q not None, seed, int64_t position):
        """A draw from the normalised positive part of this row minus q."""
        if q.n_vocab > self.n_vocab:
            raise EngineError(GT_E_ARGUMENT)
        cdef gt_noise n = gt_noise_at(<uint64_t>(seed & 0xFFFFFFFFFFFFFFFF), position)
        return gt_row_residual(self.filled(), q.filled(), n, self.work.floats, self.n_vocab)

    def reject(self, Row q not None, seed, int64_t position, int32_t count=1):
        """What `reject` emits at `count` positions from this one on: draws from q, kept or replaced."""
        cdef gt_row *p = self.filled()
        cdef gt_row *other = q.filled()
        cdef uint64_t s = <uint64_t>(seed & 0xFFFFFFFFFFFFFFFF)
        cdef int32_t[::1] out = array("i", bytes(4 * max(1, count)))
        cdef int32_t i
        cdef gt_noise n
        if q.n_vocab > self.n_vocab:
            raise EngineError(GT_E_ARGUMENT)
        with nogil:
            for i in range(count):
                n = gt_noise_at(s, position + i)
                out[i] = gt_row_draw(other, n)
                if not gt_row_accepts(p, other, out[i], gt_noise_uniform(n, GT_NOISE_ACCEPTS)):
                    out[i] = gt_row_residual(p, other, n, self.work.floats, self.n_vocab)
        return list(out[:count])
