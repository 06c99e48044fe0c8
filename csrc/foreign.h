/* Draws by libllama's own samplers: chains that are not ours, and grammars. */
#ifndef GT_FOREIGN_H
#define GT_FOREIGN_H

#include "accept.h"

/* Both samplers start afresh, the chain sees the last n tokens of the prompt. */
int gt_foreign_begin(gt_picker *p, const int32_t *prompt, int32_t n_prompt, int32_t n);

/* As gt_pick, by match. */
int gt_foreign_pick(gt_picker *p, const float *logits, int32_t *token);

#endif
