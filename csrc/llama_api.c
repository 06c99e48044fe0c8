#include "llama_api.h"

gt_api gt_llama;

static const struct {
    const char *library, *name;
} table[] = {
#define GT_ENTRY(lib, ret, name, args) {lib, #name},
    GT_API(GT_ENTRY)
#undef GT_ENTRY
};

static const gt_struct_field fields[] = {
#define GT_SIZE(type) {#type, "sizeof", (int32_t)sizeof(type)}
#define GT_OFFSET(type, field) {#type, #field, (int32_t)offsetof(type, field)}
    GT_SIZE(llama_batch),
    GT_OFFSET(llama_batch, n_tokens),
    GT_OFFSET(llama_batch, token),
    GT_OFFSET(llama_batch, embd),
    GT_OFFSET(llama_batch, pos),
    GT_OFFSET(llama_batch, n_seq_id),
    GT_OFFSET(llama_batch, seq_id),
    GT_OFFSET(llama_batch, logits),
    GT_SIZE(llama_token_data),
    GT_OFFSET(llama_token_data, id),
    GT_OFFSET(llama_token_data, logit),
    GT_OFFSET(llama_token_data, p),
    GT_SIZE(llama_token_data_array),
    GT_OFFSET(llama_token_data_array, data),
    GT_OFFSET(llama_token_data_array, size),
    GT_OFFSET(llama_token_data_array, selected),
    GT_OFFSET(llama_token_data_array, sorted),
};

int32_t gt_api_count(void) { return (int32_t)(sizeof table / sizeof table[0]); }
const char *gt_api_name(int32_t i) { return table[i].name; }
const char *gt_api_library(int32_t i) { return table[i].library; }

int32_t gt_struct_fields(const gt_struct_field **first) {
    *first = fields;
    return (int32_t)(sizeof fields / sizeof fields[0]);
}

void gt_api_set(const uintptr_t *addresses) {
    int i = 0;
#define GT_SET(lib, ret, name, args) gt_llama.name = (ret(*) args)addresses[i++];
    GT_API(GT_SET)
#undef GT_SET
}

bool gt_api_ready(void) { return gt_llama.llama_decode != NULL; }
