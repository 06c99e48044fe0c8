"""A small Hub on 127.0.0.1 for tests: listings, metadata, byte ranges; it counts the bytes that it sends."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """Repos by name, each file name → content; `refuse` maps a repo to (status, error code)."""

    def __init__(self) -> None:
        self.repos: dict[str, dict[str, bytes]] = {}
        self.refuse: dict[str, tuple[int, str]] = {}
        self.sent = 0
        self.cut_after: int | None = None  # the next answer breaks off after that many bytes
        self.etag: str | None = None
        self.large = True  # whether files are in the large-file storage, which records their SHA-256
        self.ranges: list[str] = []
        self.requests: list[str] = []
        self.authorization: list[str | None] = []
        self.url = ""
        self.listing: bytes | None = None  # the answer for every listing, right or wrong
        self.redirect = ""  # another server, which files are fetched from


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(f"{self.command} {path}")
        self.hub.authorization.append(self.headers.get("Authorization"))
        parts = path.strip("/").split("/")
        api = parts[:2] == ["api", "models"]
        repo = "/".join(parts[2:4] if api else parts[:2])
        if repo in self.hub.refuse:
            status, code = self.hub.refuse[repo]
            return self._send(status, b"{}", body, {"X-Error-Code": code, "Retry-After": "7"})
        if repo not in self.hub.repos:
            return self._send(404, b"{}", body, {"X-Error-Code": "RepoNotFound"})
        files = self.hub.repos[repo]
        if api and self.hub.listing is not None:
            return self._send(200, self.hub.listing, body)
        if api:
            siblings = [
                {"rfilename": name, "size": len(data), **self._large(data)} for name, data in files.items()
            ]
            return self._send(
                200, json.dumps({"id": repo, "sha": COMMIT, "siblings": siblings}).encode(), body
            )
        name = "/".join(parts[4:])
        if self.hub.redirect and name in files:
            return self._redirect(files[name], body)
        if name not in files:
            return self._send(404, b"", body, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
        return self._file(files[name], body)

    def _large(self, data: bytes) -> dict[str, object]:
        """What the Hub says of a file in its large-file storage."""
        digest = self.hub.etag or hashlib.sha256(data).hexdigest()
        lfs = {"sha256": digest, "size": len(data), "pointerSize": 130}
        return {"lfs": lfs} if self.hub.large else {}

    def _redirect(self, data: bytes, body: bool) -> None:
        etag = hashlib.sha256(data).hexdigest()
        headers = {"Location": self.hub.redirect + self.path, "X-Repo-Commit": COMMIT}
        linked = {"X-Linked-ETag": f'"{etag}"', "X-Linked-Size": str(len(data))}
        self._send(302, b"", body, headers | linked)

    def _file(self, data: bytes, body: bool) -> None:
        etag = self.hub.etag or hashlib.sha256(data).hexdigest()
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        wanted = self.headers.get("Range")
        if not wanted or not body:
            return self._send(200, data, body, headers)
        self.hub.ranges.append(wanted)
        start, _, stop = wanted.removeprefix("bytes=").partition("-")
        first, last = int(start), min(int(stop or len(data)), len(data) - 1)
        if first >= len(data):
            return self._send(416, b"", body, headers)
        headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
        return self._send(206, data[first : last + 1], body, headers)

    def _send(self, status: int, data: bytes, body: bool, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if not body:
            return
        if self.hub.cut_after is not None and status in (200, 206) and len(data) > self.hub.cut_after:
            data, self.hub.cut_after = data[: self.hub.cut_after], None
            self.close_connection = True
        try:
            for i in range(0, len(data), 1 << 14):
                self.wfile.write(data[i : i + (1 << 14)])
                self.hub.sent += min(1 << 14, len(data) - i)
        except OSError:
            self.close_connection = True


@contextmanager
def serve() -> Iterator[Hub]:
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
