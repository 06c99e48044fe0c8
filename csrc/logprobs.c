#include "logprobs.h"

#include <stdlib.h>
#include <string.h>

#include "select.h"

int gt_logprobs_init(gt_logprobs *l, int32_t n_tokens) {
    size_t n = (size_t)n_tokens;
    l->n_top = -1;
    l->own = malloc(n * sizeof *l->own);
    l->top = malloc(n * GT_LOGPROBS_MOST * sizeof *l->top);
    return l->own && l->top ? GT_OK : GT_E_MEMORY;
}

void gt_logprobs_free(gt_logprobs *l) {
    free(l->own);
    free(l->top);
    memset(l, 0, sizeof *l);
}

void gt_logprobs_note(gt_logprobs *l, int32_t i, const float *logits, int32_t n, int32_t token) {
    if (l->n_top < 0) return;
    gt_log_softmax(logits, n, &token, 1, &l->own[i]);
    if (l->n_top > 0) gt_top_log_softmax(logits, n, l->n_top, l->top + (size_t)i * GT_LOGPROBS_MOST);
}
