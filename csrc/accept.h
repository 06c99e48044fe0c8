/* How tokens are drawn from the target's rows, and whether a proposal is kept.
 *
 * match:   a token is drawn from the target's row; a proposal is kept while it equals what was drawn. Exact for any
 *          proposals. coupled is the same on this side; the draft draws with the same noise (guess.h).
 * reject:  a model's proposal x ~ q is kept with probability min(1, p(x) / q(x)), else one is drawn from the positive
 *          part of p - q. All other proposals go by match.
 *
 * Noise is named by the seed and the token's place in the history, so but for `reject` the text of a seed is the same
 * with any draft and with none. Chains that are not ours, and grammars, go through libllama's samplers, by match. */
#ifndef GT_ACCEPT_H
#define GT_ACCEPT_H

#include "chain.h"
#include "codes.h"
#include "llama_api.h"

enum gt_rule { GT_MATCH = 0, GT_COUPLED = 1, GT_REJECT = 2, GT_RULES = 3 };

/* What a request wishes. */
typedef struct gt_sampling {
    struct llama_sampler *sampler; /* libllama's chain; NULL: `chain` */
    struct llama_sampler *grammar; /* NULL: none; never part of the chain */
    int32_t preselect;             /* the sampler begins with top-k of this k, so it is handed only these; 0: all */
    gt_chain chain;
    int32_t last_n;                /* tokens that penalties look back on */
    uint64_t seed;
    int32_t rule;                  /* enum gt_rule */
    bool compares;                 /* keep account of what each rule accepts: gt_picker.scores */
} gt_sampling;

/* Places where a model's proposal was verified, and how many each rule accepts of them on average. */
typedef struct gt_scores {
    int64_t places;
    double accepted[GT_RULES];
} gt_scores;

typedef struct gt_picker {
    gt_sampling how;
    int32_t n_vocab, own_vocab;   /* of the target; the larger one of both models */
    llama_token_data *candidates; /* n_vocab entries, for libllama's samplers */
    gt_work work;
    gt_counts counts;             /* of the first n_counted tokens */
    int32_t n_counted;
    gt_row row;                   /* the target's */
    gt_row *guesses;              /* the draft's, one for each proposal of a round */
    int32_t n_guesses;
    int32_t room;                 /* entries of each row's memory */
    gt_scores scores;             /* since the engine was made */
} gt_picker;

/* What does not change with requests. own_vocab: the larger vocabulary of both models. GT_E_MEMORY. */
int gt_picker_init(gt_picker *p, int32_t n_vocab, int32_t own_vocab, int32_t n_guesses);
void gt_picker_free(gt_picker *p);

/* A new request with that prompt; allocates when its chain needs more room than any before. GT_E_MEMORY. */
int gt_picker_begin(gt_picker *p, const gt_sampling *how, const int32_t *prompt, int32_t n_prompt);

/* Penalties count the first n tokens of the history from now on; ids holds all that were counted so far. */
void gt_picker_count(gt_picker *p, const int32_t *ids, int32_t n);

/* Draws the token at `place` of the history from a row of n_vocab logits; with libllama's samplers, they are told so,
 * exactly once. proposal: what stands to be verified there, -1: nothing; guess: its number where a draft's row is kept,
 * else -1. On any error nothing counts as emitted. GT_E_LOGITS, GT_E_SAMPLER, GT_E_GRAMMAR, GT_E_EXCEPTION. */
int gt_pick(gt_picker *p, float *logits, int32_t place, int32_t proposal, int32_t guess, int32_t *token);

/* Whether this request's draws are ours. */
bool gt_picker_is_native(const gt_picker *p);

/* Whether the draft's rows are kept until they are verified. */
bool gt_picker_keeps(const gt_picker *p);

#endif
