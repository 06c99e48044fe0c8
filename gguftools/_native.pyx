# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""The one door to csrc: turns arguments into C, releases the GIL around one call, maps the return code."""

# ---- scan: GGUF headers (csrc/scan.h) ----

# ---- engine: the verify loop (csrc/engine.h) ----
