# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""The one door to csrc: turns arguments into C, releases the GIL around one call, maps the return code."""

# ---- scan: GGUF headers (csrc/scan.h) ----

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t

cdef extern from "scan.h" nogil:
    enum: SCAN_OK, SCAN_MAX_DIMS
    ctypedef struct scan_t:
        uint64_t pos, at, needed, number
    ctypedef struct scan_range:
        uint64_t begin, end
    ctypedef struct scan_counts:
        uint32_t version
        uint64_t n_tensors, n_keys
    ctypedef struct scan_kv:
        scan_range name, value
        uint32_t type
        int32_t is_array
        uint64_t count
    ctypedef struct scan_tensor_t:
        scan_range name
        uint32_t n_dims, type
        uint64_t dims[4]
        uint64_t offset
    void scan_init(scan_t *s, const uint8_t *data, uint64_t size)
    int scan_begin(scan_t *s, scan_counts *out)
    int scan_key(scan_t *s, scan_kv *out)
    int scan_tensor(scan_t *s, scan_tensor_t *out)
    int scan_strings(const uint8_t *data, uint64_t size, uint64_t count, uint64_t *starts)


class ScanError(Exception):
    """A header that scan.c refused: code (scan.h), at (byte offset), needed (bytes, when short), number."""

    def __init__(self, code, at, needed, number):
        super().__init__(code, at, needed, number)
        self.code, self.at, self.needed, self.number = code, at, needed, number


cdef int _checked(scan_t *s, int code) except -1:
    if code != SCAN_OK:
        raise ScanError(code, s.at, s.needed, s.number)
    return 0


def scan_header(const uint8_t[::1] data not None):
    """(version, keys, tensors, end of the header). Each key: (name range, type, is array, count, value range);
    each tensor: (name range, dims, type, offset). Ranges are (begin, end) in `data`. Raises ScanError."""
    cdef scan_t s
    cdef scan_counts n
    cdef scan_kv kv
    cdef scan_tensor_t t
    cdef uint64_t i
    cdef const uint8_t *start = &data[0] if data.shape[0] else NULL
    scan_init(&s, start, <uint64_t>data.shape[0])
    _checked(&s, scan_begin(&s, &n))
    keys, tensors = [], []
    for i in range(n.n_keys):
        _checked(&s, scan_key(&s, &kv))
        name = (kv.name.begin, kv.name.end)
        keys.append((name, kv.type, kv.is_array != 0, kv.count, (kv.value.begin, kv.value.end)))
    for i in range(n.n_tensors):
        _checked(&s, scan_tensor(&s, &t))
        dims = (t.dims[0], t.dims[1], t.dims[2], t.dims[3])[: t.n_dims]
        tensors.append(((t.name.begin, t.name.end), dims, t.type, t.offset))
    return n.version, keys, tensors, s.pos


def string_starts(const uint8_t[::1] data not None, uint64_t[::1] starts not None):
    """Fills starts[0…count] as scan.h's scan_strings does; ValueError where data is not count whole strings."""
    cdef const uint8_t *start = &data[0] if data.shape[0] else NULL
    if scan_strings(start, <uint64_t>data.shape[0], <uint64_t>(starts.shape[0] - 1), &starts[0]) != SCAN_OK:
        raise ValueError("not whole strings")


cdef extern from "merges.h" nogil:
    ctypedef struct merges_t:
        const uint8_t *data
        const uint64_t *starts
        uint32_t count
        uint32_t *table
        uint64_t slots
        uint32_t fault
    int merges_find(merges_t *m, uint16_t *split)


def find_merges(const uint8_t[::1] data not None, const uint64_t[::1] starts not None,
                uint32_t[::1] table not None, uint16_t[::1] split not None):
    """(code, rank at fault) of merges.h's merges_find: fills split[count], with table as working memory."""
    cdef merges_t m
    cdef int code
    if split.shape[0] == 0:
        return 0, 0
    m.data, m.starts, m.count = &data[0], &starts[0], <uint32_t>split.shape[0]
    m.table, m.slots = &table[0], <uint64_t>table.shape[0]
    with nogil:
        code = merges_find(&m, &split[0])
    return code, m.fault

# ---- end of scan ----

# ---- engine: the verify loop (csrc/engine.h) ----

include "_callback.pxi"

from array import array
from enum import IntEnum
from libc.stdlib cimport free, malloc
from libc.string cimport memset


class Rewind(IntEnum):
    """How a context's memory can be cut back (csrc/cache.h)."""

    ANY = 0
    BOUNDED = 1
    CHECKPOINT = 2
    NONE = 3


class EngineError(RuntimeError):
    """A call failed; `code` is llama_decode's or one of CODES."""

    def __init__(self, code):
        name, meaning = CODES.get(code, (f"llama_decode {code}", "llama_decode failed"))
        super().__init__(f"{name}: {meaning}")
        self.code = code


class NativeCancelled(Exception):
    """The engine was cancelled; what it holds is valid."""


cdef dict _codes():
    cdef const char *name
    cdef const char *meaning
    cdef int value, i = 0
    codes = {}
    while True:
        value = gt_code(i, &name, &meaning)
        if name == NULL:
            return codes
        codes[value] = (name.decode(), meaning.decode())
        i += 1


cdef dict _structs():
    cdef const gt_struct_field *fields
    structs = {}
    for i in range(gt_struct_fields(&fields)):
        structs.setdefault(fields[i].type.decode(), {})[fields[i].field.decode()] = fields[i].value
    return structs


AUTO = GT_AUTO
KINDS = ("model", "ngram", "head")  # enum gt_kind
RULES = ("match", "coupled", "reject")  # enum gt_rule
CODES = _codes()
STRUCTS = _structs()
API = tuple((gt_api_library(i).decode(), gt_api_name(i).decode()) for i in range(gt_api_count()))


def set_api(addresses):
    """Fills the function table: one address per entry of API, in its order."""
    cdef uintptr_t table[64]
    values = [int(a) for a in addresses]
    if len(values) != gt_api_count() or len(values) > 64 or not all(values):
        raise ValueError(f"{gt_api_count()} addresses are needed, none of them 0")
    for i, value in enumerate(values):
        table[i] = value
    gt_api_set(table)


def has_api():
    """Whether set_api was called."""
    return gt_api_ready()


cdef int _check(int code) except -1:
    if getattr(_kept, "error", None) is not None:
        raise_kept()
    if code == GT_CANCELLED:
        raise NativeCancelled()
    if code != GT_OK:
        raise EngineError(code)
    return 0


cdef class Engine:
    """One target context and, maybe, one draft context, owned until close(). csrc/engine.h is the manual.

    One call at a time (EngineError "called out of order" otherwise); cancel() from any thread. A closed engine raises
    ValueError. The contexts must outlive close().
    """

    cdef gt_engine *engine
    cdef int32_t *out
    cdef uint8_t *flags
    cdef bint busy

    def __init__(self, uintptr_t target, uintptr_t draft=0, *, int32_t n_vocab, int32_t n_ctx, int32_t n_batch,
                 int32_t n_ubatch, int32_t draft_n_vocab=0, int32_t draft_n_ctx=0, int32_t draft_n_batch=0,
                 int32_t draft_n_ubatch=0, int32_t n_draft_max=16, const uint8_t[::1] eog,
                 const int32_t[::1] to_draft=None, const int32_t[::1] to_target=None, int32_t rewind=0,
                 int32_t rewind_bound=0, int32_t draft_rewind=0, int32_t draft_rewind_bound=0):
        cdef gt_engine_params p
        if self.engine != NULL:
            raise ValueError("the engine is set up already")
        if n_vocab < 1 or eog.shape[0] != n_vocab or n_draft_max < 0:
            raise EngineError(GT_E_ARGUMENT)
        if to_draft is not None and to_draft.shape[0] != n_vocab:
            raise EngineError(GT_E_ARGUMENT)
        if to_target is not None and (draft_n_vocab < 1 or to_target.shape[0] != draft_n_vocab):
            raise EngineError(GT_E_ARGUMENT)
        p.target = _params(target, n_vocab, n_ctx, n_batch, n_ubatch, rewind, rewind_bound)
        p.draft = _params(draft, draft_n_vocab, draft_n_ctx, draft_n_batch, draft_n_ubatch, draft_rewind,
                          draft_rewind_bound)
        p.n_draft_max = n_draft_max
        p.eog = &eog[0]
        p.to_draft = p.to_target = NULL
        if to_draft is not None:
            p.to_draft = &to_draft[0]
        if to_target is not None:
            p.to_target = &to_target[0]
        self.out = <int32_t *>malloc((n_draft_max + 1) * sizeof(int32_t))
        self.flags = <uint8_t *>malloc(n_draft_max + 1)
        if self.out == NULL or self.flags == NULL:
            raise MemoryError()
        _check(gt_engine_new(&p, &self.engine))

    def __dealloc__(self):
        gt_engine_free(self.engine, False)
        free(self.out)
        free(self.flags)

    cdef gt_engine *alive(self) except NULL:
        if self.engine == NULL:
            raise ValueError("the engine is closed")
        if self.busy:
            raise EngineError(GT_E_STATE)
        return self.engine

    def begin(self, tokens, *, uintptr_t sampler=0, uintptr_t grammar=0, int32_t preselect=0, chain=None,
              int32_t n_penalty=0, uint64_t seed=0, rule="match", bint compares=False, bint lazy=False,
              int32_t logprobs=-1):
        """Starts a request; returns how many prompt tokens the target's cache holds already.

        chain: (temperature, top_k, top_p, min_p, repeat, frequency, presence), used without sampler and grammar;
        None: the largest logit. n_penalty: tokens that penalties look back on. rule: one of RULES. compares, lazy,
        logprobs (alternatives of each token, -1: none are noted): see csrc/accept.h, engine.h and logprobs.h.
        """
        cdef gt_engine *e = self.alive()
        cdef gt_sampling how
        cdef int32_t reused = 0
        cdef int code
        cdef const int32_t[::1] prompt = array("i", tokens)
        cdef int32_t n = <int32_t>prompt.shape[0]
        if n < 1 or not -1 <= logprobs <= GT_LOGPROBS_MOST:
            raise EngineError(GT_E_ARGUMENT)
        cdef const int32_t *ids = &prompt[0]
        memset(&how, 0, sizeof(how))
        how.sampler, how.grammar = <llama_sampler *>sampler, <llama_sampler *>grammar
        how.preselect, how.last_n, how.seed = preselect, n_penalty, seed
        how.rule, how.compares = RULES.index(rule), compares
        values = chain or (0.0, 0, 1.0, 0.0, 1.0, 0.0, 0.0)
        how.chain.temperature, how.chain.top_k, how.chain.top_p, how.chain.min_p = values[:4]
        how.chain.repeat, how.chain.frequency, how.chain.presence = values[4:]
        e.logprobs.n_top = logprobs
        self.busy = True
        with nogil:
            code = gt_begin(e, ids, n, &how, lazy, &reused)
        self.busy = False
        _check(code)
        return reused

    def prefill(self):
        """Decodes one chunk of the prompt; (done, total) in tokens over both models, complete when equal."""
        cdef gt_engine *e = self.alive()
        cdef int64_t done = 0, total = 0
        cdef int code
        self.busy = True
        with nogil:
            code = gt_prefill(e, &done, &total)
        self.busy = False
        _check(code)
        return done, total

    def step(self, int32_t n_draft, float p_min, int32_t max_tokens):
        """One round: a list of (id, from_draft); empty when the context is full or the request has ended.
        n_draft AUTO: as many proposals as are found worth it."""
        cdef gt_engine *e = self.alive()
        cdef int32_t n = 0
        cdef int code
        self.busy = True
        with nogil:
            code = gt_step(e, n_draft, p_min, max_tokens, self.out, self.flags, &n)
        self.busy = False
        _check(code)
        return [(self.out[i], self.flags[i] != 0) for i in range(n)]

    def logprobs(self, int32_t i):
        """Of the i-th token that the last step emitted: its log probability and [(id, log probability)] of the
        likeliest; None when the request did not ask."""
        cdef gt_engine *e = self.alive()
        if e.logprobs.n_top < 0:
            return None
        cdef llama_token_data *top = e.logprobs.top + i * GT_LOGPROBS_MOST
        return e.logprobs.own[i], [(top[k].id, top[k].p) for k in range(e.logprobs.n_top)]

    def measure(self, double seconds):
        """Learns what batches cost, before the first request and for about so long; both caches are empty then."""
        cdef gt_engine *e = self.alive()
        cdef int64_t budget = <int64_t>(seconds * 1e6)
        cdef int code
        self.busy = True
        with nogil:
            code = gt_measure(e, budget)
        self.busy = False
        _check(code)

    def set_widths(self, widths):
        """The batch sizes that AUTO may verify, and 1; none: all."""
        cdef const int32_t[::1] some = array("i", widths)
        gt_pace_widths(&self.alive().pace, &some[0] if len(some) else NULL, <int32_t>len(some))

    @property
    def learned(self):
        """What AUTO has learned, as numbers that another engine of the same models can be given."""
        cdef float[::1] out = array("f", bytes(4 * GT_LEARNED_FLOATS))
        gt_pace_save(&self.alive().pace, &out[0])
        return list(out)

    @learned.setter
    def learned(self, numbers):
        cdef const float[::1] some = array("f", numbers)
        if len(some) == 0 or not gt_pace_load(&self.alive().pace, &some[0], <int32_t>len(some)):
            raise ValueError("these numbers are not what was learned")

    @property
    def rate(self):
        """Tokens per second that AUTO expects; 0 before it has measured."""
        return gt_pace_rate(&self.alive().pace)

    @property
    def scores(self):
        """Places that were compared, and the share of them that each rule accepts: {rule: share}."""
        cdef gt_scores scores = self.alive().picker.scores
        n = max(scores.places, 1)
        return scores.places, {rule: scores.accepted[i] / n for i, rule in enumerate(RULES)}

    def truncate(self, int32_t n):
        """Cuts the history to n tokens and ends the request; the caches follow."""
        _check(gt_truncate(self.alive(), n))

    def cancel(self):
        """Stops a running call before its next decode, on the CPU inside it; stays until clear_cancel()."""
        if self.engine != NULL:
            gt_cancel(self.engine, True)

    def clear_cancel(self):
        """Takes a cancel back."""
        if self.engine != NULL:
            gt_cancel(self.engine, False)

    def set_draft(self, bint model, bint ngram=False):
        """Turns the draft model and the n-grams on or off."""
        gt_set_source(self.alive(), GT_KIND_MODEL, model)
        gt_set_source(self.alive(), GT_KIND_NGRAM, ngram)

    @property
    def history(self):
        """All tokens of prompt and answer so far."""
        cdef gt_engine *e = self.alive()
        return [e.history[i] for i in range(e.n_history)]

    @property
    def n_history(self):
        return self.alive().n_history

    @property
    def cached(self):
        """Tokens that the target's and the draft's cache hold; the draft's may be of a window."""
        cdef gt_engine *e = self.alive()
        return e.target.n, e.model.cache.n

    @property
    def counters(self):
        """Counts and microseconds since the engine was made (gt_counters in csrc/engine.h)."""
        cdef dict found = gt_read_counters(self.alive())
        by_kind = {name: dict(zip(KINDS, found[name])) for name in ("n_draft", "n_accepted")}
        return {**found, **{name: sum(kinds.values()) for name, kinds in by_kind.items()}, "by_kind": by_kind}

    @property
    def draft_failed(self):
        """The code that switched the draft off for this request; 0 when nothing did."""
        return self.alive().failed[GT_KIND_MODEL]

    def close(self):
        """Lets go of both contexts, which must still be alive. Twice is fine."""
        if self.busy:
            raise EngineError(GT_E_STATE)
        gt_engine_free(self.engine, True)
        self.engine = NULL


cdef gt_cache_params _params(uintptr_t ctx, int32_t n_vocab, int32_t n_ctx, int32_t n_batch, int32_t n_ubatch,
                             int32_t rewind, int32_t bound):
    cdef gt_cache_params p
    memset(&p, 0, sizeof(p))
    p.ctx = <llama_context *>ctx
    p.n_vocab = n_vocab
    p.n_ctx = n_ctx
    p.n_batch = n_batch
    p.n_ubatch = n_ubatch
    p.rewind = rewind
    p.bound = bound
    return p


include "_select.pxi"
include "_ngram.pxi"
include "_pace.pxi"
include "_state.pxi"
