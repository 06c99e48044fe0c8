"""What _native.pyx sees of csrc/engine.h and csrc/llama_api.h."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t

cdef extern from "llama_api.h" nogil:
    ctypedef struct gt_struct_field:
        const char *type
        const char *field
        int32_t value
    int32_t gt_api_count()
    const char *gt_api_name(int32_t i)
    const char *gt_api_library(int32_t i)
    int32_t gt_struct_fields(const gt_struct_field **first)
    void gt_api_set(const uintptr_t *addresses)
    bint gt_api_ready()
    struct llama_context:
        pass
    struct llama_sampler:
        pass

cdef extern from "chain.h" nogil:
    ctypedef struct llama_token_data:
        int32_t id
        float logit
        float p
    ctypedef struct gt_chain:
        float temperature
        int32_t top_k
        float top_p
        float min_p
        float repeat
        float frequency
        float presence

cdef extern from "pace.h" nogil:
    enum: GT_KINDS, GT_PACE_MAX, GT_PACE_NONE, GT_LEARNED_FLOATS, GT_ODDS_DEPTHS
    ctypedef struct gt_draft:
        int32_t *ids
        float *sure
        uint8_t *kind
        int32_t n, max, left
    void gt_draft_cut(gt_draft *d, int32_t n)
    ctypedef struct gt_cost:
        float drift
    ctypedef struct gt_odds:
        pass
    ctypedef struct gt_learned:
        gt_cost verify
        gt_odds odds[3]
        float bank
    ctypedef struct gt_pace:
        gt_learned learned
        int32_t n_max
        bint probe
    void gt_pace_init(gt_pace *p, int32_t n_max)
    void gt_pace_widths(gt_pace *p, const int32_t *widths, int32_t n)
    void gt_pace_request(gt_pace *p)
    void gt_pace_verified(gt_pace *p, int32_t width, int64_t us)
    void gt_pace_drafted(gt_pace *p, int32_t kind, int32_t n, int64_t us)
    int32_t gt_pace_begin(gt_pace *p, gt_draft *d, uint32_t on, const int32_t *lag)
    int32_t gt_pace_more(gt_pace *p, gt_draft *d, uint32_t on, const int32_t *lag)
    int32_t gt_pace_length(gt_pace *p, const gt_draft *d)
    void gt_pace_outcome(gt_pace *p, const gt_draft *d, int32_t n_agreed, bint ended)
    float gt_pace_rate(const gt_pace *p)
    bint gt_pace_hopeless(const gt_pace *p, int32_t kind)
    void gt_pace_save(const gt_pace *p, float *out)
    bint gt_pace_load(gt_pace *p, const float *values, int32_t n)
    float gt_learned_draft(const gt_learned *l, int32_t kind, int32_t n, bint hopeful)
    float gt_cost_of(const gt_cost *c, int32_t n, bint hopeful)
    float gt_odds_chance(const gt_odds *o, float sure, int32_t depth)

cdef extern from "engine.h" nogil:
    ctypedef struct gt_cache_params:
        llama_context *ctx
        int32_t n_vocab
        int32_t n_ctx
        int32_t n_batch
        int32_t n_ubatch
        int32_t rewind
        int32_t bound
    ctypedef struct gt_engine_params:
        gt_cache_params target
        gt_cache_params draft
        int32_t n_draft_max
        const uint8_t *eog
        const int32_t *to_draft
        const int32_t *to_target
    ctypedef struct gt_sampling:
        llama_sampler *sampler
        llama_sampler *grammar
        int32_t preselect
        gt_chain chain
        int32_t last_n
        uint64_t seed
        int32_t rule
        bint compares
    ctypedef struct gt_scores:
        int64_t places
        double accepted[3]
    ctypedef struct gt_picker:
        gt_scores scores
    enum: GT_LOGPROBS_MOST
    ctypedef struct gt_logprobs:
        int32_t n_top
        float *own
        llama_token_data *top
    ctypedef struct gt_counters:
        int64_t n_draft[3]
        int64_t n_accepted[3]
        int64_t verify_steps
        int64_t target_decodes
        int64_t draft_decodes
        int64_t target_us
        int64_t draft_us
        int64_t select_us
        int64_t total_us
    ctypedef struct gt_cache:
        gt_cache_params p
        int32_t n
        int32_t base
        void *memory
    ctypedef struct gt_model:
        gt_cache cache
    ctypedef struct gt_engine:
        gt_cache target
        gt_model model
        gt_pace pace
        gt_picker picker
        gt_logprobs logprobs
        int32_t *history
        int32_t n_history
        int failed[3]
    int gt_engine_new(const gt_engine_params *p, gt_engine **out)
    void gt_engine_free(gt_engine *e, bint release)
    int gt_begin(gt_engine *e, const int32_t *prompt, int32_t n_prompt, const gt_sampling *how, bint lazy,
                 int32_t *reused)
    int gt_prefill(gt_engine *e, int64_t *done, int64_t *total)
    int gt_step(gt_engine *e, int32_t n_draft, float p_min, int32_t max_tokens, int32_t *out,
                uint8_t *from_draft, int32_t *n)
    int gt_truncate(gt_engine *e, int32_t n)
    void gt_cancel(gt_engine *e, bint on)
    void gt_set_source(gt_engine *e, int kind, bint on)
    gt_counters gt_read_counters(const gt_engine *e)
    int gt_code(int i, const char **name, const char **meaning)
    int GT_OK
    int GT_CANCELLED
    int GT_E_ARGUMENT
    int GT_E_STATE
    int GT_E_TOKEN
    enum: GT_AUTO, GT_KIND_MODEL, GT_KIND_NGRAM, GT_KIND_HEAD

cdef extern from "measure.h" nogil:
    int gt_measure(gt_engine *e, int64_t budget_us)
