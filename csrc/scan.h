/* Walks the header of a GGUF (version 2 or 3) in a byte buffer: magic, counts, keys, tensor table.

   The caller drives: scan_begin once, scan_key n_keys times, scan_tensor n_tensors times; each call returns SCAN_OK
   or a negative code, after which `at` says where the fault lies and the walk is over. Nothing is allocated or
   copied: names and values are given as ranges of the buffer, and no byte outside it is ever read. Integers are
   little endian on every host, as the format has them. What the values mean is the caller's business. */
#ifndef GGUFTOOLS_SCAN_H
#define GGUFTOOLS_SCAN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SCAN_OK = 0,
    SCAN_SHORT = -1,       /* the buffer ends first: `needed` bytes would let the failing read pass */
    SCAN_MAGIC = -2,       /* does not begin with "GGUF" */
    SCAN_ENDIAN = -3,      /* the version reads as a big-endian number */
    SCAN_VERSION = -4,     /* neither 2 nor 3: `number` */
    SCAN_KEYS = -5,        /* more than SCAN_MAX_KEYS: `number` */
    SCAN_TENSORS = -6,     /* more than SCAN_MAX_TENSORS: `number` */
    SCAN_STRING = -7,      /* a string longer than its cap: `number` */
    SCAN_EMPTY = -8,       /* an empty key */
    SCAN_TYPE = -9,        /* no value type of GGUF: `number` */
    SCAN_NESTED = -10,     /* an array of arrays, which llama.cpp does not read either */
    SCAN_ARRAY = -11,      /* an array of more elements than can be, or of more strings than the cap: `number` */
    SCAN_DIMS = -12        /* more than SCAN_MAX_DIMS dimensions: `number` */
};

/* Caps, checked before anything is read. Real files: ~100 keys, ~2,000 tensors, templates below 100 kB. */
#define SCAN_MAX_KEYS 65536
#define SCAN_MAX_TENSORS 65536
#define SCAN_MAX_NAME 65535            /* bytes of a key's or tensor's name; the format's own limit for keys */
#define SCAN_MAX_STRING (16u << 20)    /* bytes of a string value or of one string in an array */
#define SCAN_MAX_STRINGS (1u << 22)    /* strings in one array; the largest vocabularies have 2^18 */
#define SCAN_MAX_DIMS 4

/* GGUF's value types. */
enum {
    SCAN_U8, SCAN_I8, SCAN_U16, SCAN_I16, SCAN_U32, SCAN_I32, SCAN_F32, SCAN_BOOL,
    SCAN_STR, SCAN_ARR, SCAN_U64, SCAN_I64, SCAN_F64, SCAN_N_TYPES
};

typedef struct {
    const uint8_t *data; /* the buffer */
    uint64_t size;       /* its bytes */
    uint64_t pos;        /* the next byte to read; after the last call the end of the header, unpadded */
    uint64_t at;         /* after an error: offset of the item at fault */
    uint64_t needed;     /* after SCAN_SHORT: see there */
    uint64_t number;     /* after an error: the offending number, where the code names one */
} scan_t;

typedef struct {
    uint64_t begin, end; /* a range of the buffer */
} scan_range;

typedef struct {
    uint32_t version;
    uint64_t n_tensors, n_keys;
} scan_counts;

typedef struct {
    scan_range name;
    scan_range value;  /* a scalar's bytes, a string's text, an array's content */
    uint32_t type;     /* value type; an array's element type */
    int32_t is_array;
    uint64_t count;    /* elements of an array, else 1 */
} scan_kv;

typedef struct {
    scan_range name;
    uint32_t n_dims, type;         /* ggml type id, unchecked */
    uint64_t dims[SCAN_MAX_DIMS];  /* fastest first; only n_dims are set */
    uint64_t offset;               /* from the start of the data section, unchecked */
} scan_tensor_t;

void scan_init(scan_t *s, const uint8_t *data, uint64_t size);
int scan_begin(scan_t *s, scan_counts *out);
int scan_key(scan_t *s, scan_kv *out);
int scan_tensor(scan_t *s, scan_tensor_t *out);

/* Fills starts[0…count] for the content of a string array: text i is [starts[i], starts[i+1] - 8), because the
   8 bytes of the next length lie between; starts[count] is size + 8. Returns SCAN_OK, or SCAN_SHORT where
   the content is not `count` whole strings. */
int scan_strings(const uint8_t *data, uint64_t size, uint64_t count, uint64_t *starts);

#ifdef __cplusplus
}
#endif
#endif
