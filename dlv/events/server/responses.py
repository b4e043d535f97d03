"""What the web pages of curves answer with: a body, a status, headers; and errors as answers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from dlv.errors import DlvError, NotFound, StorageError, UnsafeInput, UsageError

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
