/* What pace has learned of a pair of models on a machine: costs, acceptance, and how fast it went of late. */
#ifndef GT_LEARNED_H
#define GT_LEARNED_H

#include "cost.h"
#include "odds.h"

#define GT_LEARNED_VERSION 1

/* Floats alone, so that it can be kept as an array of GT_LEARNED_FLOATS of them. */
typedef struct gt_learned {
    float version;
    gt_cost verify;          /* target batches, by width */
    gt_cost draft[GT_KINDS]; /* draft batches, by tokens */
    gt_odds odds[GT_KINDS];
    float surplus[GT_KINDS]; /* tokens by which rounds that this source began were worth more than foreseen */
    float tokens;  /* of a round of late, probes apart */
    float us;      /* and its time, over verify.drift */
    float bank;    /* microseconds that probes may lose */
    float granted; /* 1: the first probes have had their advance */
} gt_learned;

#define GT_LEARNED_FLOATS ((int32_t)(sizeof(gt_learned) / sizeof(float)))

void gt_learned_init(gt_learned *l);

/* Expected microseconds of one plain token; 0 before the first measurement. */
float gt_learned_plain(const gt_learned *l);

/* Expected microseconds of a draft batch. While none was measured a token is taken to cost half of a plain one, by the
 * hopeful a tenth. */
float gt_learned_draft(const gt_learned *l, int32_t kind, int32_t n, bool hopeful);

/* λ: the best tokens per microsecond of late, that of no draft included; 0 while that is not known. */
float gt_learned_rate(const gt_learned *l);

/* A round that was not a probe was expected to give so many tokens in so many microseconds. */
void gt_learned_round(gt_learned *l, float tokens, float us);

/* Refused, and l as it was: another count of numbers, another version, numbers out of range. */
bool gt_learned_load(gt_learned *l, const float *in, int32_t n);

#endif
