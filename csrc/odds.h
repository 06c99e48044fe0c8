/* The chance that a proposal is accepted, given that those before it were: learned per source, from what its own
 * probability and the depth say.
 *
 * The log odds are a sum: an offset, a slope times the log odds of the source's own probability, and what its bucket and
 * the depth add. Each term is a belief with a variance; an outcome moves all four by the rule of the extended Kalman
 * filter, those most that are least certain. Variances grow a little with every outcome: the past is forgotten slowly. */
#ifndef GT_ODDS_H
#define GT_ODDS_H

#include <stdbool.h>
#include <stdint.h>

#include "draft.h"

#define GT_ODDS_BUCKETS 12 /* of the source's log odds */
#define GT_ODDS_DEPTHS 6   /* 0, 1, 2 …, 4 …, 8 …, 16 … */
#define GT_ODDS_LEVELS 8   /* of the source's own probability, for forecasts */

typedef struct gt_belief {
    float mean;
    float variance;
} gt_belief;

typedef struct gt_odds {
    gt_belief offset;
    gt_belief slope;
    gt_belief bucket[GT_ODDS_BUCKETS];
    gt_belief depth[GT_ODDS_DEPTHS];
    float share[GT_ODDS_DEPTHS][GT_ODDS_LEVELS]; /* of the proposals of late: how sure how many were; sum 1 */
    float seen[GT_ODDS_DEPTHS];                  /* how many these were, as far as it matters */
} gt_odds;

/* A proposal that is yet to be made. */
typedef struct gt_forecast {
    float share[GT_ODDS_LEVELS];  /* how likely it is of which level */
    float chance[GT_ODDS_LEVELS]; /* and its chance then */
    float mean;                   /* of the chance */
} gt_forecast;

void gt_odds_init(gt_odds *o, enum gt_kind kind);

/* The chance of a proposal of which its source was so sure; depth counts from 0. */
float gt_odds_chance(const gt_odds *o, float sure, int32_t depth);

void gt_odds_learn(gt_odds *o, float sure, int32_t depth, bool accepted);

/* A proposal was made at this depth, verified or not; weight, in [0, 1]: the chance that all before it are accepted. */
void gt_odds_seen(gt_odds *o, float sure, int32_t depth, float weight);

/* The next proposal at the depths that gt_odds_depth counts as the same. */
gt_forecast gt_odds_forecast(const gt_odds *o, int depth);
int gt_odds_depth(int32_t depth);

/* The text has changed: old outcomes tell less about it, and how sure the source was of the last one nothing. */
void gt_odds_loosen(gt_odds *o);

/* Whether these numbers, read from somewhere, may be used. */
bool gt_odds_valid(const gt_odds *o);

#endif
