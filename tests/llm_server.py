"""A server on 127.0.0.1 that answers as llama-server, SGLang or vLLM document that they do."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LLAMA = """# HELP llamacpp:predicted_tokens_seconds Average generation throughput in tokens/s
# TYPE llamacpp:predicted_tokens_seconds gauge
llamacpp:predicted_tokens_seconds 20
llamacpp:spec_decode_num_draft_tokens_total {drafted}
llamacpp:spec_decode_num_accepted_tokens_total {kept}
llamacpp:spec_decode_num_drafts_total {steps}
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{{position="0"}} {first}
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{{position="1"}} {second}
"""
VLLM = """# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{{engine="0",model_name="m"}} {steps}.0
vllm:spec_decode_num_drafts_created{{engine="0",model_name="m"}} 1.7e+09
vllm:spec_decode_num_draft_tokens_total{{engine="0",model_name="m"}} {drafted}.0
vllm:spec_decode_num_accepted_tokens_total{{engine="0",model_name="m"}} {kept}.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="m",position="0"}} {first}.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="m",position="1"}} {second}.0
"""
SGLANG = """sglang:spec_accept_length{{engine_type="unified",model_name="m"}} 2.5
sglang:spec_accept_rate{{engine_type="unified",model_name="m",dp_rank="0"}} 0.5
sglang:spec_accept_rate{{engine_type="unified",model_name="m",dp_rank="1"}} 1.0
"""


class Fake:
    """kind: "llamacpp", "sglang" or "vllm". Each answer has 12 words: 4 rounds that drafted 2 and kept 2."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.model = "m"
        self.words = [f"word{i} " for i in range(12)]
        self.metrics = True
        self.key = False
        self.answers = 0
        self.asked: list[dict[str, Any]] = []
        self.per_second = 40.0
        self.status = 200
        self.raw: bytes | None = None  # the whole body of a completion, right or wrong
        self.url = ""

    def counts(self) -> dict[str, int]:
        n = self.answers
        return {"steps": 4 * n, "drafted": 8 * n, "kept": 7 * n, "first": 4 * n, "second": 3 * n}


class _Handler(BaseHTTPRequestHandler):
    fake: Fake
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        fake = self.fake
        if fake.key:
            return self._send(401, b'{"error": "Unauthorized"}')
        if self.path == "/v1/models":
            data = {"object": "list", "data": [{"id": fake.model, "object": "model", "owned_by": fake.kind}]}
            return self._send(200, json.dumps(data).encode())
        if self.path == "/metrics" and fake.metrics:
            text = {"llamacpp": LLAMA, "vllm": VLLM, "sglang": SGLANG}[fake.kind]
            return self._send(200, text.format(**fake.counts()).encode())
        if self.path == "/get_server_info" and fake.kind == "sglang":
            states = [{"last_gen_throughput": 20.0, "avg_spec_accept_length": 2.5}]
            return self._send(200, json.dumps({"internal_states": states}).encode())
        return self._send(404, b'{"error": "not found"}')

    def do_POST(self) -> None:
        fake = self.fake
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fake.asked.append(body)
        fake.answers += 1
        if fake.status != 200:
            return self._send(fake.status, json.dumps({"error": {"message": "no such model"}}).encode())
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        if fake.raw is not None:
            self.wfile.write(fake.raw)
            return None
        self._event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": None}}]})
        for word in fake.words:
            self._event({"choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}]})
            if fake.kind != "llamacpp":
                time.sleep(0.002)
        self._event(self._last())
        self.wfile.write(b"data: [DONE]\n\n")
        return None

    def _last(self) -> dict[str, Any]:
        n = len(self.fake.words)
        usage = {"prompt_tokens": 9, "completion_tokens": n, "total_tokens": n + 9}
        last: dict[str, Any] = {"choices": [], "usage": usage}
        if self.fake.kind == "llamacpp":
            last["timings"] = {
                "prompt_n": 9,
                "prompt_ms": 30.0,
                "predicted_n": n,
                "predicted_ms": 1000 * n / self.fake.per_second,
                "predicted_per_second": self.fake.per_second,
                "draft_n": 8,
                "draft_n_accepted": 7,
            }
        return last

    def _event(self, content: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(content).encode() + b"\n\n")
        self.wfile.flush()

    def _send(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def serve(kind: str) -> Iterator[Fake]:
    fake = Fake(kind)
    handler = type("Handler", (_Handler,), {"fake": fake})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
