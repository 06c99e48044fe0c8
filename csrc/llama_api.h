/* What the engine needs of libllama: three plain structs and a table of functions.
 *
 * Nothing is linked. Python reads the addresses from the libraries that llama_cpp has loaded and fills the table,
 * so one build of this extension serves every build of llama-cpp-python. The structs are compared with ctypes'
 * idea of them before the first use. */
#ifndef GT_LLAMA_API_H
#define GT_LLAMA_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct llama_context;
struct llama_model;
struct llama_sampler;
typedef struct llama_memory_i *llama_memory_t;

typedef struct llama_batch {
    int32_t n_tokens;
    int32_t *token;    /* n_tokens ids */
    float *embd;       /* NULL here */
    int32_t *pos;      /* n_tokens positions */
    int32_t *n_seq_id; /* 1 each */
    int32_t **seq_id;  /* each points at a 0 */
    int8_t *logits;    /* 1 where logits are wanted */
} llama_batch;

typedef struct llama_token_data {
    int32_t id;
    float logit;
    float p;
} llama_token_data;

typedef struct llama_token_data_array {
    llama_token_data *data;
    size_t size;
    int64_t selected; /* index into data, -1: none */
    bool sorted;      /* by logit, descending */
} llama_token_data_array;

typedef bool (*gt_abort_fn)(void *data);

/* X(library, return type, function, arguments): the table in its order. */
#define GT_API(X)                                                                                                   \
    X("llama", int32_t, llama_decode, (struct llama_context *, llama_batch))                                        \
    X("llama", void, llama_synchronize, (struct llama_context *))                                                   \
    X("llama", float *, llama_get_logits_ith, (struct llama_context *, int32_t))                                    \
    X("llama", llama_memory_t, llama_get_memory, (const struct llama_context *))                                    \
    X("llama", const struct llama_model *, llama_get_model, (const struct llama_context *))                         \
    X("llama", int32_t, llama_model_n_swa, (const struct llama_model *))                                            \
    X("llama", void, llama_memory_clear, (llama_memory_t, bool))                                                    \
    X("llama", bool, llama_memory_seq_rm, (llama_memory_t, int32_t, int32_t, int32_t))                              \
    X("llama", int32_t, llama_memory_seq_pos_min, (llama_memory_t, int32_t))                                        \
    X("llama", int32_t, llama_memory_seq_pos_max, (llama_memory_t, int32_t))                                        \
    X("llama", size_t, llama_state_seq_get_size_ext, (struct llama_context *, int32_t, uint32_t))                   \
    X("llama", size_t, llama_state_seq_get_data_ext, (struct llama_context *, uint8_t *, size_t, int32_t, uint32_t)) \
    X("llama", size_t, llama_state_seq_set_data_ext,                                                                \
      (struct llama_context *, const uint8_t *, size_t, int32_t, uint32_t))                                         \
    X("llama", void, llama_set_abort_callback, (struct llama_context *, gt_abort_fn, void *))                       \
    X("llama", void, llama_sampler_apply, (struct llama_sampler *, llama_token_data_array *))                       \
    X("llama", void, llama_sampler_accept, (struct llama_sampler *, int32_t))                                       \
    X("llama", void, llama_sampler_reset, (struct llama_sampler *))                                                 \
    X("llama", int64_t, llama_time_us, (void))

typedef struct gt_api {
#define GT_FIELD(lib, ret, name, args) ret(*name) args;
    GT_API(GT_FIELD)
#undef GT_FIELD
} gt_api;

/* Flags of llama_state_seq_*_ext: all that the sequence has; its recurrent state and sliding windows alone. */
#define GT_STATE_WHOLE 0u
#define GT_STATE_PARTIAL_ONLY 1u

extern gt_api gt_llama; /* the only global; filled once by gt_api_set */

/* Number of functions; name and library of the i-th. */
int32_t gt_api_count(void);
const char *gt_api_name(int32_t i);
const char *gt_api_library(int32_t i);

/* How this build lays out the shared structs: field "sizeof" is the struct's size, others give their offset. */
typedef struct gt_struct_field {
    const char *type, *field;
    int32_t value;
} gt_struct_field;
int32_t gt_struct_fields(const gt_struct_field **first);

/* Fills the table from gt_api_count() addresses in the table's order. */
void gt_api_set(const uintptr_t *addresses);
bool gt_api_ready(void);

#ifdef __cplusplus
}
#endif
#endif
