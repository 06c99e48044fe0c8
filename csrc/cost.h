/* What a batch of n tokens costs, learned from measurements of which single ones may be several times too long.
 *
 * Each size has its typical time, which follows the median: of few measurements the least one counts, later ones move it
 * by a small step up or down, however far off they are. All sizes share a drift, which follows faster: when the machine
 * slows down or the context grows, sizes that have not been used for long go with those that are in use. */
#ifndef GT_COST_H
#define GT_COST_H

#include <stdbool.h>
#include <stdint.h>

#define GT_COST_POINTS 26 /* sizes 1 … 16, then two for each doubling up to 512 */

typedef struct gt_cost {
    float us[GT_COST_POINTS];    /* typical microseconds of each size, over drift */
    float count[GT_COST_POINTS]; /* measurements, as far as they matter */
    float drift;                 /* how much slower all is now */
} gt_cost;

void gt_cost_init(gt_cost *c);

/* A batch of n tokens took so long. */
void gt_cost_measured(gt_cost *c, int32_t n, float us);

/* Expected microseconds of a batch of n tokens; 0 when nothing was measured. Sizes never measured lie on lines between
 * those that were; beyond the largest the line goes on. A hopeful answer takes half of these lines' slopes and leaves out
 * what is not known well. */
float gt_cost_of(const gt_cost *c, int32_t n, bool hopeful);

/* Measurements of this size, up to a number that is enough. */
float gt_cost_count(const gt_cost *c, int32_t n);

/* The largest size that is known well (measured three times), or 1. */
int32_t gt_cost_known(const gt_cost *c);

/* Whether these numbers, read from somewhere, may be used. */
bool gt_cost_valid(const gt_cost *c);

#endif
