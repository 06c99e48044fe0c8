#include "odds.h"

#include <math.h>
#include <string.h>

#define SURE_LEAST 0.01f /* more extreme claims of a source count as these */
#define SURE_MOST 0.998f
#define CHANCE_LEAST 0.005f
#define CHANCE_MOST 0.998f
#define BUCKET_FIRST -3.0f /* log odds where the second bucket begins, and the width of all but the outermost */
#define BUCKET_WIDTH 0.75f
#define MEAN_MOST 8.0f
#define SEEN_FIRST 5.0f /* proposals that the first shares stand for */
#define SEEN_MOST 25.0f /* and as many as those of late are */

/* A belief's variance before anything is known, and what each outcome adds to it. */
typedef struct prior {
    float variance, growth;
} prior;
static const prior offset_prior = {0.5f, 0.0004f}, slope_prior = {0.05f, 0.0001f}, bucket_prior = {0.15f, 0.0002f},
                   depth_prior = {0.1f, 0.0002f};

/* Of a source's own probability. */
static const float levels[GT_ODDS_LEVELS] = {0.05f, 0.2f, 0.4f, 0.6f, 0.75f, 0.87f, 0.95f, 0.99f};

static float clamp(float x, float low, float high) { return x > low ? (x < high ? x : high) : low; }

static float log_odds(float sure) {
    float p = clamp(sure, SURE_LEAST, SURE_MOST);
    return logf(p / (1.0f - p));
}

static int bucket_of(float x) {
    return (int)clamp((x - BUCKET_FIRST) / BUCKET_WIDTH + 1.0f, 0.0f, (float)(GT_ODDS_BUCKETS - 1));
}

int gt_odds_depth(int32_t depth) {
    int i = 0;
    for (; depth > 0 && i + 1 < GT_ODDS_DEPTHS; depth >>= 1) i++;
    return i;
}

static void belief_init(gt_belief *b, int n, float mean, float variance) {
    for (int i = 0; i < n; i++) b[i].mean = mean, b[i].variance = variance;
}

/* All levels alike: a source that was unsure of the last text is not written off before it has seen this one. */
static void see_anew(gt_odds *o) {
    for (int d = 0; d < GT_ODDS_DEPTHS; d++) {
        o->seen[d] = SEEN_FIRST;
        for (int i = 0; i < GT_ODDS_LEVELS; i++) o->share[d][i] = 1.0f / GT_ODDS_LEVELS;
    }
}

void gt_odds_init(gt_odds *o, enum gt_kind kind) {
    memset(o, 0, sizeof *o);
    /* A repetition is no promise of another; a model knows what it knows. */
    belief_init(&o->offset, 1, kind == GT_KIND_NGRAM ? -0.5f : 0.0f, offset_prior.variance);
    belief_init(&o->slope, 1, 1.0f, slope_prior.variance);
    belief_init(o->bucket, GT_ODDS_BUCKETS, 0.0f, bucket_prior.variance);
    belief_init(o->depth, GT_ODDS_DEPTHS, 0.0f, depth_prior.variance);
    see_anew(o);
}

float gt_odds_chance(const gt_odds *o, float sure, int32_t depth) {
    float x = log_odds(sure);
    float y = o->offset.mean + o->slope.mean * x + o->bucket[bucket_of(x)].mean + o->depth[gt_odds_depth(depth)].mean;
    return clamp(1.0f / (1.0f + expf(-y)), CHANCE_LEAST, CHANCE_MOST);
}

static void move(gt_belief *b, const prior *of, float x, float gain, float error, float information) {
    float step = b->variance * x * gain;
    b->mean = clamp(b->mean + step * error, -MEAN_MOST, MEAN_MOST);
    b->variance = clamp(b->variance - step * x * b->variance * information + of->growth, of->growth, of->variance);
}

void gt_odds_learn(gt_odds *o, float sure, int32_t depth, bool accepted) {
    float x = log_odds(sure), p = gt_odds_chance(o, sure, depth);
    float information = p * (1.0f - p), error = (accepted ? 1.0f : 0.0f) - p;
    gt_belief *bucket = &o->bucket[bucket_of(x)], *at = &o->depth[gt_odds_depth(depth)];
    float total = o->offset.variance + o->slope.variance * x * x + bucket->variance + at->variance;
    float gain = 1.0f / (1.0f + information * total);
    move(&o->offset, &offset_prior, 1.0f, gain, error, information);
    move(&o->slope, &slope_prior, x, gain, error, information);
    move(bucket, &bucket_prior, 1.0f, gain, error, information);
    move(at, &depth_prior, 1.0f, gain, error, information);
    o->slope.mean = clamp(o->slope.mean, 0.0f, 2.0f); /* a source more sure of a token is never worth less */
}

void gt_odds_seen(gt_odds *o, float sure, int32_t depth, float weight) {
    int i = 0, at = gt_odds_depth(depth);
    o->seen[at] = clamp(o->seen[at] + weight, SEEN_FIRST, SEEN_MOST);
    float *share = o->share[at], part = weight / o->seen[at];
    while (i + 2 < GT_ODDS_LEVELS && sure > levels[i + 1]) i++;
    float upper = clamp((sure - levels[i]) / (levels[i + 1] - levels[i]), 0.0f, 1.0f);
    for (int j = 0; j < GT_ODDS_LEVELS; j++) share[j] *= 1.0f - part;
    share[i] += part * (1.0f - upper); /* between two levels */
    share[i + 1] += part * upper;
}

gt_forecast gt_odds_forecast(const gt_odds *o, int depth) {
    gt_forecast f = {.mean = 0.0f};
    for (int i = 0; i < GT_ODDS_LEVELS; i++) {
        f.share[i] = o->share[depth][i];
        f.chance[i] = gt_odds_chance(o, levels[i], depth ? 1 << (depth - 1) : 0);
        f.mean += f.share[i] * f.chance[i];
    }
    return f;
}

void gt_odds_loosen(gt_odds *o) {
    o->offset.variance = clamp(o->offset.variance + 0.1f, 0.0f, offset_prior.variance);
    see_anew(o);
}

static bool beliefs_valid(const gt_belief *b, int n) {
    for (int i = 0; i < n; i++)
        if (!(fabsf(b[i].mean) <= MEAN_MOST && b[i].variance >= 0.0f && b[i].variance <= 1.0f)) return false;
    return true;
}

static bool shares_valid(const float *share) {
    float sum = 0.0f;
    for (int i = 0; i < GT_ODDS_LEVELS; i++) {
        if (!(share[i] >= 0.0f && share[i] <= 1.01f)) return false;
        sum += share[i];
    }
    return fabsf(sum - 1.0f) < 0.01f;
}

bool gt_odds_valid(const gt_odds *o) {
    bool fine = true;
    for (int d = 0; d < GT_ODDS_DEPTHS; d++) fine = fine && shares_valid(o->share[d]) && o->seen[d] >= SEEN_FIRST && o->seen[d] <= SEEN_MOST;
    return fine && beliefs_valid(&o->offset, 1) && beliefs_valid(&o->slope, 1) &&
           beliefs_valid(o->bucket, GT_ODDS_BUCKETS) && beliefs_valid(o->depth, GT_ODDS_DEPTHS);
}
