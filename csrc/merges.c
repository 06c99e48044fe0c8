#include "merges.h"

#include <string.h>

#define NONE UINT32_MAX

static const uint8_t *token(const merges_t *m, uint32_t rank, uint32_t *length) {
    *length = (uint32_t)(m->starts[rank + 1] - 8 - m->starts[rank]);
    return m->data + m->starts[rank];
}

/* The slot that holds these bytes, or the empty one where they belong. */
static uint64_t slot(const merges_t *m, const uint8_t *bytes, uint32_t length) {
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (uint32_t i = 0; i < length; i++) hash = (hash ^ bytes[i]) * 0x100000001b3u;
    hash ^= hash >> 29;
    for (;; hash++) {
        uint64_t at = hash & (m->slots - 1);
        if (!m->table[at]) return at;
        uint32_t n;
        const uint8_t *other = token(m, m->table[at] - 1, &n);
        if (n == length && !memcmp(other, bytes, n)) return at;
    }
}

static uint32_t rank_of(const merges_t *m, const uint8_t *bytes, uint32_t length) {
    uint32_t entry = m->table[slot(m, bytes, length)];
    return entry ? entry - 1 : NONE;
}

/* Byte-pair encoding of one token with the ranks in the table; the left part's bytes when two parts are left, else 0. */
static uint16_t split_one(const merges_t *m, const uint8_t *bytes, uint32_t length) {
    uint32_t edge[MERGES_MAX_TOKEN + 1], pair[MERGES_MAX_TOKEN]; /* parts begin at edge[i]; pair[i]: rank of i with i + 1 */
    uint32_t parts = length;
    for (uint32_t i = 0; i <= length; i++) edge[i] = i;
    for (uint32_t i = 0; i + 1 < length; i++) pair[i] = rank_of(m, bytes + i, 2);
    while (parts > 2) {
        uint32_t best = 0;
        for (uint32_t i = 1; i + 1 < parts; i++)
            if (pair[i] < pair[best]) best = i;
        if (pair[best] == NONE) return 0;
        memmove(edge + best + 1, edge + best + 2, (parts - best - 1) * sizeof *edge);
        memmove(pair + best, pair + best + 1, (parts - best - 2) * sizeof *pair);
        parts--;
        if (best + 1 < parts) pair[best] = rank_of(m, bytes + edge[best], edge[best + 2] - edge[best]);
        if (best > 0) pair[best - 1] = rank_of(m, bytes + edge[best - 1], edge[best + 1] - edge[best - 1]);
    }
    return parts == 2 ? (uint16_t)edge[1] : 0;
}

int merges_find(merges_t *m, uint16_t *split) {
    if (m->slots < 2 * (uint64_t)m->count || (m->slots & (m->slots - 1))) return MERGES_TABLE;
    for (uint32_t rank = 0; rank < m->count; rank++) {
        uint32_t length;
        const uint8_t *bytes = token(m, rank, &length);
        m->fault = rank;
        if (length > MERGES_MAX_TOKEN) return MERGES_LONG;
        split[rank] = split_one(m, bytes, length);
        uint64_t at = slot(m, bytes, length);
        if (m->table[at]) return MERGES_TWICE;
        m->table[at] = rank + 1;
    }
    return MERGES_OK;
}
