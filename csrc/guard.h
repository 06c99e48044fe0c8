/* The calls into libllama that can throw. A C++ exception ends here, as GT_E_EXCEPTION. */
#ifndef GT_GUARD_H
#define GT_GUARD_H

#include "llama_api.h"

#ifdef __cplusplus
extern "C" {
#endif

/* llama_decode, then llama_synchronize: llama_decode's code or GT_E_EXCEPTION. */
int gt_guard_decode(struct llama_context *ctx, llama_batch batch);

/* The logits of batch row i; NULL when there are none. */
float *gt_guard_logits(struct llama_context *ctx, int32_t i);

int gt_guard_apply(struct llama_sampler *sampler, llama_token_data_array *candidates);
int gt_guard_accept(struct llama_sampler *sampler, int32_t token);
int gt_guard_reset(struct llama_sampler *sampler);

/* With `data` the memory's contents are zeroed too. */
int gt_guard_clear(llama_memory_t memory, bool data);

/* 1 when positions from `pos` on were removed, 0 when the memory refuses, or GT_E_EXCEPTION. */
int gt_guard_remove(llama_memory_t memory, int32_t pos);

/* Of sequence 0's state, whole or in part (GT_STATE_…): its size, bytes written, bytes read; 0 on failure. */
size_t gt_guard_state_size(struct llama_context *ctx, uint32_t flags);
size_t gt_guard_state_get(struct llama_context *ctx, uint8_t *data, size_t size, uint32_t flags);
size_t gt_guard_state_set(struct llama_context *ctx, const uint8_t *data, size_t size, uint32_t flags);

#ifdef __cplusplus
}
#endif
#endif
