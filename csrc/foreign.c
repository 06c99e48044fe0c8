#include "foreign.h"

#include <math.h>

#include "guard.h"
#include "select.h"

int gt_foreign_begin(gt_picker *p, const int32_t *prompt, int32_t n_prompt, int32_t n) {
    int code = GT_OK;
    if (p->how.sampler) code = gt_guard_reset(p->how.sampler);
    if (!code && p->how.grammar) code = gt_guard_reset(p->how.grammar);
    if (!p->how.sampler) return code;
    for (int32_t i = n_prompt > n ? n_prompt - n : 0; !code && i < n_prompt; i++)
        code = gt_guard_accept(p->how.sampler, prompt[i]);
    return code;
}

/* The chain's choice among the candidates in `array`. */
static int chain_selects(gt_picker *p, llama_token_data_array *array, int32_t *token) {
    int code = gt_guard_apply(p->how.sampler, array);
    if (code) return code;
    if (array->selected < 0 || (size_t)array->selected >= array->size) return GT_E_SAMPLER;
    *token = array->data[array->selected].id;
    return *token >= 0 && *token < p->n_vocab ? GT_OK : GT_E_SAMPLER;
}

static int draw(gt_picker *p, const float *logits, int32_t *token) {
    float best;
    llama_token_data_array array = {p->candidates, 0, -1, false};
    if (!p->how.sampler) {
        *token = gt_argmax(logits, p->n_vocab, &best);
        return *token < 0 ? GT_E_LOGITS : GT_OK;
    }
    if (p->how.preselect > 0) {
        array.size = (size_t)gt_top_k(logits, p->n_vocab, p->how.preselect, p->candidates);
        array.sorted = true;
        if (!(array.data[0].logit > -INFINITY)) return GT_E_LOGITS;
    } else {
        array.size = (size_t)p->n_vocab;
        gt_all(logits, p->n_vocab, p->candidates);
    }
    return chain_selects(p, &array, token);
}

/* *allowed: whether the grammar lets `token` follow. */
static int grammar_allows(gt_picker *p, int32_t token, bool *allowed) {
    llama_token_data one = {token, 1.0f, 0.0f};
    llama_token_data_array array = {&one, 1, -1, false};
    int code = gt_guard_apply(p->how.grammar, &array);
    *allowed = one.logit > -INFINITY;
    return code;
}

/* The grammar goes first over the whole vocabulary; what it refuses is not handed on. */
static int draw_within_grammar(gt_picker *p, const float *logits, int32_t *token) {
    llama_token_data_array array = {p->candidates, (size_t)p->n_vocab, -1, false};
    gt_all(logits, p->n_vocab, p->candidates);
    int code = gt_guard_apply(p->how.grammar, &array);
    if (code) return code;
    size_t kept = 0, best = 0;
    for (size_t i = 0; i < array.size; i++) {
        if (!(array.data[i].logit > -INFINITY)) continue;
        array.data[kept] = array.data[i];
        if (array.data[kept].logit > array.data[best].logit) best = kept;
        kept++;
    }
    array.size = kept;
    if (kept == 0) return GT_E_GRAMMAR;
    if (p->how.sampler) return chain_selects(p, &array, token);
    *token = array.data[best].id;
    return GT_OK;
}

int gt_foreign_pick(gt_picker *p, const float *logits, int32_t *token) {
    int code = draw(p, logits, token);
    if (!code && p->how.grammar) {
        bool allowed = false;
        code = grammar_allows(p, *token, &allowed);
        if (!code && !allowed) code = draw_within_grammar(p, logits, token);
        if (!code) code = gt_guard_accept(p->how.grammar, *token);
    }
    if (!code && p->how.sampler) code = gt_guard_accept(p->how.sampler, *token);
    return code;
}
