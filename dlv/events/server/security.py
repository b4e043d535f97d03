"""Who may talk to the web server, and what it answers with: a body, a status and headers.

A page of another site that the same browser shows can send requests to a server on this
machine. It cannot know the token, its name never is the name that the server is bound to
(not even where a domain is pointed at 127.0.0.1 later), and no answer allows it to read.
Stored bytes go out as images and sounds by what they are, the rest as files to save.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import json
import math
import secrets
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from itertools import chain
from typing import Any
from urllib.parse import parse_qs

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


METHODS = ("GET", "HEAD", "POST")
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")

# A redirect would not do: after a click in another page, the browser sends a SameSite=Strict
# cookie only with what a page of this site asks for.
_WITHOUT_TOKEN = (
    'const url = new URL(location); url.searchParams.delete("token"); location.replace(url);'
)
_ENTRY = f"<!doctype html><title>dlv</title><script>{_WITHOUT_TOKEN}</script>".encode()
_SCRIPT_HASH = base64.b64encode(hashlib.sha256(_WITHOUT_TOKEN.encode()).digest()).decode()


def new_token() -> str:
    return secrets.token_urlsafe(24)


class Guard:
    """A WSGI application in front of another one; only requests with the token pass."""

    def __init__(self, app: App, *, host: str, port: int, token: str) -> None:
        self._app = app
        self._port = port
        self._token = token.encode()
        self._any_address = _is_any(host)
        self._names = names_of(host)
        # Cookies do not know ports: another server on this machine keeps its own.
        self.cookie = f"dlv-{port}"

    def __call__(self, environ: Environ, start: Start) -> Iterable[bytes]:
        def guarded(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            return start(status, self.with_headers(headers), *more)

        answer = self.refusal(environ)
        if answer is not None:
            return answer.send(environ, guarded)
        return self._app(environ, guarded)

    def with_headers(self, headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
        ours = {
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "SAMEORIGIN",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
        }
        replaced = {name.lower() for name in ours}
        kept = [
            (name, value)
            for name, value in headers
            if name.lower() not in replaced and not name.lower().startswith("access-control-")
        ]
        return kept + list(ours.items())

    def refusal(self, environ: Environ) -> Answer | None:
        """Why a request does not pass, or the page that takes the token; None: it passes."""
        host = environ.get("HTTP_HOST", "")
        if not self.knows(host):
            return _no("this server does not answer to that name")
        method = environ.get("REQUEST_METHOD", "")
        if method not in METHODS:
            return Answer(b"not allowed\n", status=405, headers={"Allow": ", ".join(METHODS)})
        if method == "POST":
            origin = environ.get("HTTP_ORIGIN")
            site = environ.get("HTTP_SEC_FETCH_SITE", "same-origin")
            if (origin is not None and origin.lower() != f"http://{host.lower()}") or (
                site not in ("same-origin", "none")
            ):
                return _no("the request comes from another site")
        given = _token_of_query(environ)
        if given is not None and self._matches(given):
            if method == "GET" and "text/html" in environ.get("HTTP_ACCEPT", ""):
                return self._entry()
            return None
        if self._matches(_cookie(environ, self.cookie)) or self._matches(_bearer(environ)):
            return None
        return _no("open the printed address, with its token")

    def knows(self, host: str) -> bool:
        """Whether a Host header is a name of this server with its port."""
        name, colon, port = host.rpartition(":")
        if not colon or "]" in port:
            name, port = host, "80"
        if port != str(self._port):
            return False
        name = name.lower()
        if name in self._names:
            return True
        # Bound to every address: any of them may be typed. A name may be anyone's.
        return self._any_address and _is_address(name)

    def _matches(self, token: str | None) -> bool:
        if token is None:
            return False
        return hmac.compare_digest(token.encode("utf-8", "replace"), self._token)

    def _entry(self) -> Answer:
        policy = f"default-src 'none'; script-src 'sha256-{_SCRIPT_HASH}'"
        cookie = f"{self.cookie}={self._token.decode()}; Path=/; HttpOnly; SameSite=Strict"
        return Answer(
            _ENTRY,
            "text/html; charset=utf-8",
            headers={"Set-Cookie": cookie, "Content-Security-Policy": policy},
        )


def names_of(host: str) -> frozenset[str]:
    """What may stand in a Host header for a server that is bound to `host`, in lower case."""
    host = host.lower()
    if _is_any(host):
        return frozenset((*_LOOPBACK, socket.gethostname().lower()))
    shown = bracketed(host)
    return frozenset(_LOOPBACK) if shown in _LOOPBACK else frozenset((shown,))


def bracketed(host: str) -> str:
    """An IPv6 address as it stands in a URL."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _is_any(host: str) -> bool:
    return host in ("", "0.0.0.0", "::", "[::]")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _no(why: str) -> Answer:
    return Answer(f"refused: {why}\n".encode(), status=403)


def _token_of_query(environ: Environ) -> str | None:
    try:
        found = parse_qs(environ.get("QUERY_STRING", ""), max_num_fields=64).get("token")
    except ValueError:
        return None
    return found[0] if found else None


def _cookie(environ: Environ, name: str) -> str | None:
    try:
        morsel = SimpleCookie(environ.get("HTTP_COOKIE", "")).get(name)
    except CookieError:
        return None
    return morsel.value if morsel is not None else None


def _bearer(environ: Environ) -> str | None:
    kind, _, given = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
    return given.strip() if kind.lower() == "bearer" else None
