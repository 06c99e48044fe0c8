#include "ngram.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* An earlier end and how many tokens before it equal those before the present end. */
typedef struct source {
    int32_t end, length;
} source;

static const int32_t sizes[GT_NGRAM_CHAINS] = {4, 2, 1};

int gt_ngram_init(gt_ngram *g, int32_t n_max, const uint8_t *eog) {
    size_t buckets = 64;
    memset(g, 0, sizeof *g);
    if (n_max < 1 || n_max > INT32_MAX / 2) return GT_E_ARGUMENT;
    while (buckets < (size_t)n_max) buckets *= 2;
    bool ok = (g->text = calloc((size_t)n_max, sizeof *g->text)) != NULL;
    for (int i = 0; i < GT_NGRAM_CHAINS; i++) {
        gt_ngram_chain *c = &g->chains[i];
        c->size = sizes[i];
        ok = (c->newest = calloc(buckets, sizeof *c->newest)) != NULL && ok;
        ok = (c->older = calloc((size_t)n_max + 1, sizeof *c->older)) != NULL && ok;
    }
    g->mask = (uint32_t)(buckets - 1);
    g->n_max = n_max;
    g->eog = eog;
    if (!ok) gt_ngram_free(g);
    return ok ? GT_OK : GT_E_MEMORY;
}

void gt_ngram_free(gt_ngram *g) {
    for (int i = 0; i < GT_NGRAM_CHAINS; i++) {
        free(g->chains[i].newest);
        free(g->chains[i].older);
    }
    free(g->text);
    memset(g, 0, sizeof *g);
}

/* Where a chain's group that ends at `end` is found. */
static uint32_t bucket(const gt_ngram *g, const gt_ngram_chain *c, int32_t end) {
    uint32_t hash = 0;
    for (int32_t i = end - c->size; i < end; i++) {
        hash = (hash ^ (uint32_t)g->text[i]) * 0x9E3779B1u;
        hash ^= hash >> 15;
    }
    return hash & g->mask;
}

static void push(gt_ngram *g, int32_t id) {
    g->text[g->n++] = id;
    for (int i = 0; i < GT_NGRAM_CHAINS; i++) {
        gt_ngram_chain *c = &g->chains[i];
        if (g->n < c->size) continue;
        uint32_t at = bucket(g, c, g->n);
        c->older[g->n] = c->newest[at];
        c->newest[at] = g->n;
    }
}

/* The newest end is the first of its chains, so taking it out is one step for each. */
static void cut(gt_ngram *g, int32_t n) {
    for (; g->n > n; g->n--)
        for (int i = 0; i < GT_NGRAM_CHAINS; i++) {
            gt_ngram_chain *c = &g->chains[i];
            if (g->n >= c->size) c->newest[bucket(g, c, g->n)] = c->older[g->n];
        }
}

int gt_ngram_update(gt_ngram *g, const int32_t *ids, int32_t n, int32_t shared) {
    if (n < 0 || n > g->n_max) return GT_E_CONTEXT;
    if (shared > n) shared = n;
    if (shared < 0) shared = 0;
    if (shared < g->n) g->distance = 0;
    cut(g, shared);
    while (g->n < n) push(g, ids[g->n]);
    return GT_OK;
}

static int32_t match(const gt_ngram *g, int32_t end) {
    int32_t most = end < GT_NGRAM_LONGEST ? end : GT_NGRAM_LONGEST, length = 0;
    while (length < most && g->text[end - 1 - length] == g->text[g->n - 1 - length]) length++;
    return length;
}

/* Earlier ends that match, at most GT_NGRAM_LOOKS + 1. The one that the last draft was copied from comes first, since
 * a chain may have left it behind; then those of the largest groups that are found, the newest first. */
static int32_t find(const gt_ngram *g, source *found) {
    int32_t n = 0, longest = 0, followed = g->distance > 0 ? g->n - g->distance : 0;
    if (followed > 0 && (longest = match(g, followed)) > 0) {
        source s = {followed, longest};
        found[n++] = s;
    }
    for (int i = 0; i < GT_NGRAM_CHAINS; i++) {
        const gt_ngram_chain *c = &g->chains[i];
        int32_t looks = GT_NGRAM_LOOKS;
        for (int32_t end = g->n < c->size ? 0 : c->older[g->n]; end > 0 && looks > 0; end = c->older[end], looks--) {
            source s = {end, match(g, end)};
            if (s.length < c->size || end == followed) continue; /* another group in the same bucket, or known */
            found[n++] = s;
            if (s.length > longest) longest = s.length;
        }
        if (longest >= c->size) break;
    }
    return n;
}

/* Keeps the ends that go on with `id`, moved past it, and returns how sure they make it. */
static float agree(const gt_ngram *g, int32_t id, int32_t longest, source *found, int32_t *n) {
    int32_t kept = 0, others = 0, same = 0;
    for (int32_t i = 0; i < *n; i++) {
        bool agrees = g->text[found[i].end] == id;
        if (found[i].length >= longest - found[i].length) {
            same += agrees;
            others += !agrees;
        }
        if (!agrees) continue;
        found[kept].end = found[i].end + 1;
        found[kept++].length = found[i].length + 1;
    }
    *n = kept;
    float yes = (float)longest * (float)same;
    return yes / (yes + 2.0f * (float)(1 + others));
}

static bool ends(const gt_ngram *g, int32_t id) { return g->eog && g->eog[id]; }

/* Copies from the longest of the ends found, the first of equal ones. */
static void copy(gt_ngram *g, source *found, int32_t n, gt_draft *draft) {
    source best = found[0];
    for (int32_t i = 1; i < n; i++)
        if (found[i].length > best.length) best = found[i];
    g->distance = g->n - best.end;
    g->matched = best.length;
    for (int32_t at = g->n; draft->n < draft->max && at < g->n_max; at++) {
        int32_t id = g->text[best.end++];
        draft->ids[draft->n] = id;
        draft->sure[draft->n] = agree(g, id, best.length++, found, &n);
        draft->kind[draft->n++] = GT_KIND_NGRAM;
        g->text[at] = id;
        if (ends(g, id)) break;
    }
}

int32_t gt_ngram_next(gt_ngram *g, gt_draft *draft) {
    source found[GT_NGRAM_LOOKS + 1];
    int32_t history = g->n, before = draft->n;
    g->matched = 0;
    if (draft->n >= draft->max || draft->n >= g->n_max - g->n) return 0;
    if (draft->n > 0 && ends(g, draft->ids[draft->n - 1])) return 0;
    for (int32_t i = 0; i < draft->n; i++) push(g, draft->ids[i]);
    int32_t n = find(g, found);
    if (n > 0) copy(g, found, n, draft);
    cut(g, history);
    return draft->n - before;
}
