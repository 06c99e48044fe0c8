#include "guard.h"

#include "codes.h"

namespace {

template <typename Call> int guarded(Call call) {
    try {
        return call();
    } catch (...) {
        return GT_E_EXCEPTION;
    }
}

template <typename Call> size_t guarded_size(Call call) {
    try {
        return call();
    } catch (...) {
        return 0;
    }
}

} // namespace

int gt_guard_decode(struct llama_context *ctx, llama_batch batch) {
    return guarded([&] {
        int code = gt_llama.llama_decode(ctx, batch);
        if (code == 0) gt_llama.llama_synchronize(ctx);
        return code;
    });
}

float *gt_guard_logits(struct llama_context *ctx, int32_t i) {
    try {
        return gt_llama.llama_get_logits_ith(ctx, i);
    } catch (...) {
        return nullptr;
    }
}

int gt_guard_apply(struct llama_sampler *sampler, llama_token_data_array *candidates) {
    return guarded([&] { return gt_llama.llama_sampler_apply(sampler, candidates), GT_OK; });
}

int gt_guard_accept(struct llama_sampler *sampler, int32_t token) {
    return guarded([&] { return gt_llama.llama_sampler_accept(sampler, token), GT_OK; });
}

int gt_guard_reset(struct llama_sampler *sampler) {
    return guarded([&] { return gt_llama.llama_sampler_reset(sampler), GT_OK; });
}

int gt_guard_clear(llama_memory_t memory, bool data) {
    return guarded([&] { return gt_llama.llama_memory_clear(memory, data), GT_OK; });
}

int gt_guard_remove(llama_memory_t memory, int32_t pos) {
    return guarded([&] { return gt_llama.llama_memory_seq_rm(memory, 0, pos, -1) ? 1 : 0; });
}

size_t gt_guard_state_size(struct llama_context *ctx, uint32_t flags) {
    return guarded_size([&] { return gt_llama.llama_state_seq_get_size_ext(ctx, 0, flags); });
}

size_t gt_guard_state_get(struct llama_context *ctx, uint8_t *data, size_t size, uint32_t flags) {
    return guarded_size([&] { return gt_llama.llama_state_seq_get_data_ext(ctx, data, size, 0, flags); });
}

size_t gt_guard_state_set(struct llama_context *ctx, const uint8_t *data, size_t size, uint32_t flags) {
    return guarded_size([&] { return gt_llama.llama_state_seq_set_data_ext(ctx, data, size, 0, flags); });
}
