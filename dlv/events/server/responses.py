"""What the web pages of curves answer with: a body, a status, headers; errors as answers.

Stored bytes go out as images and sounds by what they are, the rest as files to save.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from http import HTTPStatus
from itertools import chain
from typing import Any

from dlv.dataclass import dataclass
from dlv.errors import DlvError, NotFound, StorageError, UnsafeInput, UsageError
from dlv.events.provider.provider import Provider

Environ = dict[str, Any]
Start = Callable[..., Any]
App = Callable[[Environ, Start], Iterable[bytes]]

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"

# Anything that was uploaded or logged is shown as data, never run.
SANDBOX = {"Content-Security-Policy": "sandbox; default-src 'none'"}
_STATUS: Mapping[type[DlvError], int] = {
    UsageError: 400,
    UnsafeInput: 403,
    NotFound: 404,
    StorageError: 503,
}


@dataclass(frozen=True)
class Answer:
    """One response. `body` is bytes, or pieces that are sent as they come."""

    body: bytes | Iterable[bytes] = b""
    content_type: str = TEXT
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    def send(self, environ: Environ, start: Start) -> Iterable[bytes]:
        phrase = HTTPStatus(self.status).phrase
        headers = {
            "Content-Type": self.content_type,
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
            **self.headers,
        }
        body = self.body
        if isinstance(body, bytes):
            headers["Content-Length"] = str(len(body))
            body = [body]
        start(f"{self.status} {phrase}", list(headers.items()))
        return [] if environ.get("REQUEST_METHOD") == "HEAD" else body


def document(value: Any, status: int = 200) -> Answer:
    """JSON; what is not finite becomes the texts that JSON documents of dlv use."""
    text = json.dumps(finite(value), allow_nan=False, separators=(",", ":"))
    return Answer(text.encode(), JSON, status)


def finite(value: Any) -> Any:
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value


def refusal(error: DlvError) -> Answer:
    """An error as a document of its own; what the disk or the data did is the server's fault."""
    status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 500)
    return document(error.as_json(), status)


ROUTE = "/data/blob/"
BINARY = "application/octet-stream"


def media_type(head: bytes) -> str:
    """By the first bytes. What a browser could run (SVG, HTML) is none of these."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if head.startswith(b"RIFF") and head[8:12] == b"WAVE":
        return "audio/wav"
    return BINARY


def media(pieces: Iterator[bytes]) -> Answer:
    """Sent piece by piece; the first one tells what it is."""
    first = next(pieces, b"")
    kind = media_type(first)
    headers = dict(SANDBOX)
    if kind == BINARY:
        headers["Content-Disposition"] = "attachment"
    return Answer(chain((first,), pieces), kind, headers=headers)


class BlobRoute:
    """A WSGI application: `/data/blob/KEY` out of a provider, everything else to another one."""

    def __init__(self, app: App, ask: Callable[[], Provider]) -> None:
        self._app = app
        self._ask = ask

    def __call__(self, environ: Environ, start: Start) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if not path.startswith(ROUTE):
            return self._app(environ, start)
        answer = media(self._ask().open_blob(path.removeprefix(ROUTE)))
        return answer.send(environ, start)
