"""python rpc_worker.py FOLDER PORT: serves the CPU as a ggml RPC device, on loopback alone."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path


def main(folder: str, port: str) -> None:
    suffix = {"win32": "{}.dll", "darwin": "lib{}.dylib"}.get(sys.platform, "lib{}.so")
    base, ggml, rpc = (
        ctypes.CDLL(str(Path(folder) / suffix.format(name))) for name in ("ggml-base", "ggml", "ggml-rpc")
    )
    ggml.ggml_backend_dev_by_name.restype = ctypes.c_void_p
    ggml.ggml_backend_dev_by_name.argtypes = [ctypes.c_char_p]
    device = ctypes.c_void_p(ggml.ggml_backend_dev_by_name(b"CPU"))
    serve = rpc.ggml_backend_rpc_start_server
    serve.restype = None
    serve.argtypes = [
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.c_size_t,
        ctypes.c_size_t,
        ctypes.POINTER(ctypes.c_void_p),
    ]
    serve(f"127.0.0.1:{int(port)}".encode(), None, 1, 1, ctypes.byref(device))
    del base  # held until here, since the others need it


if __name__ == "__main__":
    main(*sys.argv[1:])
