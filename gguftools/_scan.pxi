# Part of _native.pyx: GGUF headers (csrc/scan.h) and merges (csrc/merges.h).

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t

cdef extern from "scan.h" nogil:
    enum: SCAN_OK, SCAN_MAX_DIMS
    ctypedef struct scan_t:
        uint64_t pos, at, needed, number
    ctypedef struct scan_range:
        uint64_t begin, end
    ctypedef struct scan_counts:
        uint32_t version
        uint64_t n_tensors, n_keys
    ctypedef struct scan_kv:
        scan_range name, value
        uint32_t type
        int32_t is_array
        uint64_t count
    ctypedef struct scan_tensor_t:
        scan_range name
        uint32_t n_dims, type
        uint64_t dims[4]
        uint64_t offset
    void scan_init(scan_t *s, const uint8_t *data, uint64_t size)
    int scan_begin(scan_t *s, scan_counts *out)
    int scan_key(scan_t *s, scan_kv *out)
    int scan_tensor(scan_t *s, scan_tensor_t *out)
    int scan_strings(const uint8_t *data, uint64_t size, uint64_t count, uint64_t *starts)


class ScanError(Exception):
    """A header that scan.c refused: code (scan.h), at (byte offset), needed (bytes, when short), number."""

    def __init__(self, code, at, needed, number):
        super().__init__(code, at, needed, number)
        self.code, self.at, self.needed, self.number = code, at, needed, number


cdef int _checked(scan_t *s, int code) except -1:
    if code != SCAN_OK:
        raise ScanError(code, s.at, s.needed, s.number)
    return 0


def scan_header(const uint8_t[::1] data not None):
    """(version, keys, tensors, end of the header). Each key: (name range, type, is array, count, value range);
    each tensor: (name range, dims, type, offset). Ranges are (begin, end) in `data`. Raises ScanError."""
    cdef scan_t s
    cdef scan_counts n
    cdef scan_kv kv
    cdef scan_tensor_t t
    cdef uint64_t i
    cdef const uint8_t *start = &data[0] if data.shape[0] else NULL
    scan_init(&s, start, <uint64_t>data.shape[0])
    _checked(&s, scan_begin(&s, &n))
    keys, tensors = [], []
    for i in range(n.n_keys):
        _checked(&s, scan_key(&s, &kv))
        name = (kv.name.begin, kv.name.end)
        keys.append((name, kv.type, kv.is_array != 0, kv.count, (kv.value.begin, kv.value.end)))
    for i in range(n.n_tensors):
        _checked(&s, scan_tensor(&s, &t))
        dims = (t.dims[0], t.dims[1], t.dims[2], t.dims[3])[: t.n_dims]
        tensors.append(((t.name.begin, t.name.end), dims, t.type, t.offset))
    return n.version, keys, tensors, s.pos


def string_starts(const uint8_t[::1] data not None, uint64_t[::1] starts not None):
    """Fills starts[0…count] as scan.h's scan_strings does; ValueError where data is not count whole strings."""
    cdef const uint8_t *start = &data[0] if data.shape[0] else NULL
    if scan_strings(start, <uint64_t>data.shape[0], <uint64_t>(starts.shape[0] - 1), &starts[0]) != SCAN_OK:
        raise ValueError("not whole strings")


cdef extern from "merges.h" nogil:
    ctypedef struct merges_t:
        const uint8_t *data
        const uint64_t *starts
        uint32_t count
        uint32_t *table
        uint64_t slots
        uint32_t fault
    int merges_find(merges_t *m, uint16_t *split)


def find_merges(const uint8_t[::1] data not None, const uint64_t[::1] starts not None,
                uint32_t[::1] table not None, uint16_t[::1] split not None):
    """(code, rank at fault) of merges.h's merges_find: fills split[count], with table as working memory."""
    cdef merges_t m
    cdef int code
    if split.shape[0] == 0:
        return 0, 0
    m.data, m.starts, m.count = &data[0], &starts[0], <uint32_t>split.shape[0]
    m.table, m.slots = &table[0], <uint64_t>table.shape[0]
    with nogil:
        code = merges_find(&m, &split[0])
    return code, m.fault
