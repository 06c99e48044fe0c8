# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""The one door to csrc: turns arguments into C, releases the GIL around one call, maps the return code."""

include "_scan.pxi"

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
        likeliest. Raises EngineError when the request did not ask."""
        cdef gt_engine *e = self.alive()
        if e.logprobs.n_top < 0:
            raise EngineError(GT_E_STATE)
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
include "_weights.pxi"
