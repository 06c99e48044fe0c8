#include "scan.h"

#include <string.h>

static const uint8_t SIZES[SCAN_N_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

static uint64_t load(const uint8_t *p, int n) {
    uint64_t v = 0;
    for (int i = n; i-- > 0;) v = v << 8 | p[i];
    return v;
}

static int fail(scan_t *s, int code, uint64_t at, uint64_t number) {
    s->at = at;
    s->number = number;
    return code;
}

/* Makes sure that n more bytes are there. pos <= size always holds, so nothing here can wrap. */
static int want(scan_t *s, uint64_t n) {
    if (n <= s->size - s->pos) return SCAN_OK;
    s->needed = s->pos > UINT64_MAX - n ? UINT64_MAX : s->pos + n;
    return fail(s, SCAN_SHORT, s->pos, n);
}

static int take(scan_t *s, int bytes, uint64_t *out) {
    int rc = want(s, (uint64_t)bytes);
    if (rc) return rc;
    *out = load(s->data + s->pos, bytes);
    s->pos += (uint64_t)bytes;
    return SCAN_OK;
}

static int take_string(scan_t *s, uint64_t cap, scan_range *out) {
    uint64_t at = s->pos, n;
    int rc = take(s, 8, &n);
    if (rc) return rc;
    if (n > cap) return fail(s, SCAN_STRING, at, n);
    if ((rc = want(s, n))) return rc;
    out->begin = s->pos;
    out->end = s->pos += n;
    return SCAN_OK;
}

void scan_init(scan_t *s, const uint8_t *data, uint64_t size) {
    memset(s, 0, sizeof *s);
    s->data = data;
    s->size = size;
}

int scan_begin(scan_t *s, scan_counts *out) {
    uint64_t v;
    int rc = want(s, 4);
    uint64_t seen = s->size < 4 ? s->size : 4;
    if (seen && memcmp(s->data, "GGUF", (size_t)seen)) return fail(s, SCAN_MAGIC, 0, 0);
    if (rc) return rc;
    s->pos = 4;
    if ((rc = take(s, 4, &v))) return rc;
    if (v && !(v & 0xFFFF)) return fail(s, SCAN_ENDIAN, 4, v);
    if (v != 2 && v != 3) return fail(s, SCAN_VERSION, 4, v);
    out->version = (uint32_t)v;
    if ((rc = take(s, 8, &out->n_tensors))) return rc;
    if (out->n_tensors > SCAN_MAX_TENSORS) return fail(s, SCAN_TENSORS, 8, out->n_tensors);
    if ((rc = take(s, 8, &out->n_keys))) return rc;
    if (out->n_keys > SCAN_MAX_KEYS) return fail(s, SCAN_KEYS, 16, out->n_keys);
    return SCAN_OK;
}

static int take_type(scan_t *s, uint32_t *out) {
    uint64_t at = s->pos, v;
    int rc = take(s, 4, &v);
    if (rc) return rc;
    if (v >= SCAN_N_TYPES) return fail(s, SCAN_TYPE, at, v);
    *out = (uint32_t)v;
    return SCAN_OK;
}

static int take_array(scan_t *s, scan_kv *out) {
    uint64_t at = s->pos;
    int rc = take_type(s, &out->type);
    if (rc) return rc;
    if (out->type == SCAN_ARR) return fail(s, SCAN_NESTED, at, 0);
    out->is_array = 1;
    at = s->pos;
    if ((rc = take(s, 8, &out->count))) return rc;
    uint64_t each = out->type == SCAN_STR ? 8 : SIZES[out->type]; /* the least that one element takes */
    uint64_t most = out->type == SCAN_STR ? SCAN_MAX_STRINGS : UINT64_MAX / each;
    if (out->count > most) return fail(s, SCAN_ARRAY, at, out->count);
    if ((rc = want(s, out->count * each))) return rc;
    out->value.begin = s->pos;
    if (out->type == SCAN_STR) {
        scan_range text;
        for (uint64_t i = 0; i < out->count; i++)
            if ((rc = take_string(s, SCAN_MAX_STRING, &text))) return rc;
    } else {
        s->pos += out->count * each;
    }
    out->value.end = s->pos;
    return SCAN_OK;
}

int scan_key(scan_t *s, scan_kv *out) {
    uint64_t at = s->pos;
    memset(out, 0, sizeof *out);
    int rc = take_string(s, SCAN_MAX_NAME, &out->name);
    if (rc) return rc;
    if (out->name.begin == out->name.end) return fail(s, SCAN_EMPTY, at, 0);
    if ((rc = take_type(s, &out->type))) return rc;
    if (out->type == SCAN_ARR) return take_array(s, out);
    out->count = 1;
    if (out->type == SCAN_STR) return take_string(s, SCAN_MAX_STRING, &out->value);
    if ((rc = want(s, SIZES[out->type]))) return rc;
    out->value.begin = s->pos;
    out->value.end = s->pos += SIZES[out->type];
    return SCAN_OK;
}

int scan_tensor(scan_t *s, scan_tensor_t *out) {
    uint64_t v, at;
    memset(out, 0, sizeof *out);
    int rc = take_string(s, SCAN_MAX_NAME, &out->name);
    if (rc) return rc;
    at = s->pos;
    if ((rc = take(s, 4, &v))) return rc;
    if (v > SCAN_MAX_DIMS) return fail(s, SCAN_DIMS, at, v);
    out->n_dims = (uint32_t)v;
    for (uint32_t i = 0; i < out->n_dims; i++)
        if ((rc = take(s, 8, &out->dims[i]))) return rc;
    if ((rc = take(s, 4, &v))) return rc;
    out->type = (uint32_t)v;
    return take(s, 8, &out->offset);
}

int scan_strings(const uint8_t *data, uint64_t size, uint64_t count, uint64_t *starts) {
    uint64_t pos = 0;
    for (uint64_t i = 0; i < count; i++) {
        if (size - pos < 8) return SCAN_SHORT;
        uint64_t n = load(data + pos, 8);
        pos += 8;
        if (n > size - pos) return SCAN_SHORT;
        starts[i] = pos;
        pos += n;
    }
    starts[count] = pos + 8;
    return pos == size ? SCAN_OK : SCAN_SHORT;
}
