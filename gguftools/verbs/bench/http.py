"""Requests to a running server: plain http.client, with timeouts and caps on all that is read."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from ...errors import InputError, ServerError

CONNECT_S = 15.0
ANSWER_S = 900.0  # until the next byte: a long prompt of a very large model
MAX_BODY = 32 << 20
MAX_LINE = 4 << 20


@dataclass(frozen=True, slots=True)
class Address:
    """A server's URL in parts; `prefix` is what stands before its paths."""

    scheme: str
    host: str
    port: int
    prefix: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.prefix}"


def address(url: str) -> Address:
    """http://host:port, maybe with a path; one that ends with /v1 means its server. Raises InputError."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if parts.scheme not in ("http", "https") or not host:
        raise InputError(f"{url!r} is no server's URL", "", "give it as http://127.0.0.1:8080")
    prefix = parts.path.rstrip("/").removesuffix("/v1")
    return Address(parts.scheme, host, port or (443 if parts.scheme == "https" else 80), prefix)


@contextmanager
def _answer(
    where: Address, method: str, path: str, body: Mapping[str, Any] | None = None
) -> Iterator[http.client.HTTPResponse]:
    """An answer whose body is still to be read; whatever goes wrong in the block becomes a ServerError."""
    kind = http.client.HTTPSConnection if where.scheme == "https" else http.client.HTTPConnection
    connection = kind(where.host, where.port, timeout=CONNECT_S)
    data = None if body is None else json.dumps(body).encode()
    headers = {"Accept": "*/*"} | ({"Content-Type": "application/json"} if data else {})
    try:
        connection.connect()
        connection.sock.settimeout(ANSWER_S if body is not None else CONNECT_S)
        connection.request(method, where.prefix + path, data, headers)
        yield connection.getresponse()
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, ServerError):
            raise
        hint = "is it running, and is this its address?"
        raise ServerError(f"{where}: no answer", f"{type(error).__name__}: {error}", hint) from error
    finally:
        connection.close()


def get(where: Address, path: str) -> bytes | None:
    """The body; None where the server has no such path."""
    with _answer(where, "GET", path) as response:
        if response.status in (401, 403):
            raise ServerError(
                f"{where} wants a key", "bench sends none", "start it without one to measure it"
            )
        if response.status != 200:
            return None
        data = response.read(MAX_BODY + 1)
    if len(data) > MAX_BODY:
        raise ServerError(f"{where}{path}: its answer is larger than {MAX_BODY >> 20} MB")
    return data


def get_json(where: Address, path: str) -> Any:
    """The parsed body; None where there is none, or no JSON."""
    try:
        return json.loads(get(where, path) or b"null")
    except (ValueError, RecursionError):
        return None


def events(where: Address, path: str, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Posts `body` and gives the JSON objects of the answer's server-sent events, as they come."""
    with _answer(where, "POST", path, body) as response:
        if response.status != 200:
            text = response.read(1000).decode("utf-8", "replace")
            raise ServerError(f"{where}{path}: it answers {response.status}", _message(text))
        total = 0
        while line := response.readline(MAX_LINE + 1):
            total += len(line)
            if len(line) > MAX_LINE or total > MAX_BODY:
                raise ServerError(f"{where}{path}: its answer is larger than it can be")
            name, _, data = line.decode("utf-8", "replace").strip().partition(":")
            if data.strip() == "[DONE]":
                return
            if name in ("data", "error") and data.strip():
                yield _event(where, data, failed=name == "error")


def _event(where: Address, data: str, *, failed: bool) -> dict[str, Any]:
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict):
        raise ServerError(f"{where}: an answer that is no JSON object", data.strip()[:200])
    if failed or "error" in event:
        raise ServerError(f"{where}: it failed in the middle of an answer", _message(data))
    return event


def _message(text: str) -> str:
    """What an error's body says, in one line."""
    try:
        found = json.loads(text)
        while isinstance(found, dict):
            found = found.get("error") or found.get("message") or found.get("detail") or str(found)
        text = str(found)
    except (ValueError, RecursionError):
        pass
    return " ".join(text.split())[:300]
