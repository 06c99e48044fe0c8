/* The engine's return codes. llama_decode's own (1, 2, -1, -2, -3, …) are passed on unchanged. */
#ifndef GT_CODES_H
#define GT_CODES_H

/* X(name, value, meaning) */
#define GT_CODES(X)                                                                         \
    X(GT_OK, 0, "done")                                                                     \
    X(GT_NO_SLOT, 1, "llama_decode found no room in the cache")                             \
    X(GT_CANCELLED, 2, "cancelled")                                                         \
    X(GT_BAD_BATCH, -1, "llama_decode refused the batch")                                   \
    X(GT_FATAL, -2, "llama_decode failed: out of memory or a failed allocation")            \
    X(GT_FATAL_COMPUTE, -3, "llama_decode failed in its computation")                       \
    X(GT_E_EXCEPTION, -101, "libllama threw a C++ exception")                               \
    X(GT_E_MEMORY, -102, "out of memory")                                                   \
    X(GT_E_ARGUMENT, -103, "an argument is out of range")                                   \
    X(GT_E_TOKEN, -104, "a token id is outside the vocabulary")                             \
    X(GT_E_BATCH, -105, "a batch is longer than n_batch")                                   \
    X(GT_E_CONTEXT, -106, "a position is outside the context")                              \
    X(GT_E_POSITION, -107, "the cache is not where the engine left it")                     \
    X(GT_E_NO_LOGITS, -108, "libllama returned no logits")                                  \
    X(GT_E_LOGITS, -109, "the logits hold no finite number")                                \
    X(GT_E_SAMPLER, -110, "the sampler chain selected nothing")                             \
    X(GT_E_GRAMMAR, -111, "the grammar allows no token here")                               \
    X(GT_E_NO_REWIND, -112, "this memory cannot be rewound, so it cannot speculate")        \
    X(GT_E_STATE, -113, "called out of order")                                              \
    X(GT_E_SAVED, -120, "libllama gives or takes no such saved state")

#define GT_ENUM(name, value, meaning) name = value,
enum gt_code { GT_CODES(GT_ENUM) };
#undef GT_ENUM

#endif
