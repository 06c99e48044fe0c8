"""What _native.pyx sees of csrc/engine.h and csrc/llama_api.h."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uintptr_t

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
    ctypedef struct gt_picker:
        llama_sampler *sampler
        llama_sampler *grammar
        int32_t preselect
    ctypedef struct gt_counters:
        int64_t n_draft
        int64_t n_accepted
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
    ctypedef struct gt_model:
        gt_cache cache
    ctypedef struct gt_source:
        pass
    ctypedef struct gt_engine:
        gt_cache target
        gt_model model
        gt_source *source
        int32_t *history
        int32_t n_history
        int draft_failed
    int gt_engine_new(const gt_engine_params *p, gt_engine **out)
    void gt_engine_free(gt_engine *e, bint release)
    int gt_begin(gt_engine *e, const int32_t *prompt, int32_t n_prompt, const gt_picker *picker,
                 int32_t n_penalty, int32_t *reused)
    int gt_prefill(gt_engine *e, int64_t *done, int64_t *total)
    int gt_step(gt_engine *e, int32_t n_draft, float p_min, int32_t max_tokens, int32_t *out,
                uint8_t *from_draft, int32_t *n)
    int gt_truncate(gt_engine *e, int32_t n)
    void gt_cancel(gt_engine *e, bint on)
    void gt_set_draft(gt_engine *e, bint on)
    gt_counters gt_read_counters(const gt_engine *e)
    int gt_code(int i, const char **name, const char **meaning)
    int GT_OK
    int GT_CANCELLED
    int GT_E_ARGUMENT
    int GT_E_STATE
