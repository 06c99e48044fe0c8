/* Which two tokens each token of a ranked byte-pair vocabulary was merged from.

   For token r, byte-pair encoding with the tokens of lower rank alone leaves its parts; where two are left, they are
   the pair whose merge made it. (The first 256 and unreachable tokens have none.) */
#ifndef GGUFTOOLS_MERGES_H
#define GGUFTOOLS_MERGES_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MERGES_MAX_TOKEN 512 /* bytes; longer tokens are refused */

enum { MERGES_OK = 0, MERGES_LONG = -1, MERGES_TABLE = -2, MERGES_TWICE = -3 };

typedef struct {
    const uint8_t *data;    /* all tokens */
    const uint64_t *starts; /* [count + 1]: token i is data[starts[i]] … data[starts[i + 1] - 8), as in scan.h */
    uint32_t count;         /* tokens, in order of rank */
    uint32_t *table;        /* [slots], zeroed: working memory */
    uint64_t slots;         /* a power of two, at least twice count */
    uint32_t fault;         /* after an error: the rank at fault */
} merges_t;

/* Fills split[count]: bytes of the left part, 0 where there is no pair. MERGES_TWICE: two tokens are equal. */
int merges_find(merges_t *m, uint16_t *split);

#ifdef __cplusplus
}
#endif
#endif
