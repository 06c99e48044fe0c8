"""Requests to the Hub through huggingface_hub's own client, and what its errors mean."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import GGUFToolsError, HubError
from .errors import explain

_BLOCK = 1 << 20
_TIMEOUT = 30.0


def stream(url: str, start: int, stop: int) -> Iterator[bytes]:
    """The bytes [start, stop) of `url`; stops early where the file ends. Raises huggingface_hub's errors."""
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

    headers = build_hf_headers() | {"Range": f"bytes={start}-{stop - 1}", "Accept-Encoding": "identity"}
    with _response(url, headers) as response:
        if response.status_code == 416:  # the file ends before `start`
            return
        hf_raise_for_status(response)
        if response.status_code != 206 and start:
            why = f"it answered {response.status_code}"
            raise HubError("the server ignores byte ranges", why, "try again")
        left = stop - start
        blocks = (
            response.iter_bytes(_BLOCK) if hasattr(response, "iter_bytes") else response.iter_content(_BLOCK)
        )
        for block in blocks:
            yield block[:left]
            left -= len(block)
            if left <= 0:
                return


@contextmanager
def _response(url: str, headers: dict[str, str]) -> Iterator[Any]:
    """An open streamed answer of huggingface_hub's own client, which is httpx's or (before 1.0) requests'."""
    from huggingface_hub.utils import get_session

    session = get_session()
    if hasattr(session, "stream"):
        stream = session.stream("GET", url, headers=headers, follow_redirects=True, timeout=_TIMEOUT)
    else:
        stream = session.get(url, headers=headers, stream=True, timeout=_TIMEOUT)
    with stream as response:
        yield response


def _network_errors() -> tuple[type[Exception], ...]:
    from huggingface_hub.utils import get_session

    client = sys.modules[type(get_session()).__module__.partition(".")[0]]
    return (getattr(client, "RequestException", None) or client.HTTPError,)


def is_transient(error: Exception) -> bool:
    """Whether the network broke off, so that going on may help."""
    return isinstance(error, _network_errors()) and getattr(error, "response", None) is None


@contextmanager
def explained(repo: str, file: str = "", *, answer: bool = False) -> Iterator[None]:
    """Turns what huggingface_hub and its client raise into our errors.

    `answer`: the block reads a JSON answer or headers, so that any other failure means that they are not a
    Hub's.
    """
    try:
        yield
    except GGUFToolsError:
        raise
    except Exception as error:
        ours = explain(error, isinstance(error, _network_errors()), repo, file)
        if ours is None and answer:
            why = f"its answer cannot be read ({type(error).__name__}: {error})"[:200]
            ours = HubError(f"{repo}: the server is no Hub", why, "check HF_ENDPOINT")
        if ours is None:
            raise
        raise ours from error
