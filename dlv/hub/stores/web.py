"""HTTP as clients of a hub need it: bounded, repeated where that is safe, tokens kept at home.

A server may be hostile: an answer has a limit in bytes and a least speed, redirects are followed
by hand, and a token goes to the origin it is for and to no other.
"""

from __future__ import annotations

import http.client
import io
import random
import re
import socket
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn
from urllib.parse import SplitResult, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

from dlv.errors import RemoteError, UsageError
from dlv.hub.stores.interface import Traffic

TRIES = 6
FIRST_WAIT, LONGEST_WAIT = 0.2, 10.0  # seconds between two tries
MOST_RETRY_AFTER = 60.0  # seconds; a server that asks for more is given up
CONNECT, SILENCE = 10.0, 60.0  # seconds to connect, and without any byte
SLOWEST = 1000.0  # bytes a second; slower answers are given up
REDIRECTS = 5
MOST_ERROR = 64 << 10
MOST_LEFT = 4 << 10  # bytes of an unread body; with more, the connection is closed
PIECE, BLOCK = 256 << 10, 64 << 10  # bytes that are read and sent at once
CONNECTIONS = 16
_PORTS = {"http": 80, "https": 443}
_UNPRINTABLE = re.compile(r"[^ -~\u00a0-\ud7ff\ue000-\U0010ffff]+")
_OF_CONNECTION = re.compile(
    r"<?\w*Connection\w*\([^)]*\)[^:]*: (?:Failed to [a-z ]+: (?=\[))?(?:\[Errno -?\d+\] )?"
)
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{8,400}\Z")


class Reply(NamedTuple):
    """An answer, and the address that it came from. `body` is empty for HEAD."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str

    def number(self, name: str) -> int | None:
        """Return a header that is a natural number."""
        text = self.headers.get(name, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 17 else None


class Cut(Exception):
    """The line broke. `part` is the answer as far as it had arrived."""

    def __init__(self, why: str, part: Reply | None = None) -> None:
        super().__init__(why)
        self.why, self.part = why, part


class Unexpected(Exception):
    """An answer that is not one of a hub, or too long."""


def origin_of(url: str) -> str:
    """Return scheme, host and port of an address."""
    parts = _split(url)
    port = parts.port or _PORTS[parts.scheme]
    return f"{parts.scheme}://{(parts.hostname or '').lower()}:{port}"


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise UsageError(f"`{url[:200]}` is not an address", why=str(error)) from None
    if parts.scheme not in _PORTS or not parts.hostname:
        raise UsageError(f"`{url[:200]}` is not the address of a server")
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            "an address must not contain a user name or a password",
            hint=f"dlv login {parts.scheme}://{parts.hostname}",
        )
    return parts


def is_token(text: str) -> bool:
    """Whether a string can be sent as a token."""
    return _TOKEN.match(text) is not None


def plain(text: object, most: int = 300) -> str:
    """Return what a server said so that a terminal can show it, without signed addresses."""
    words = re.sub(r"\?[^\s'\")]*", "?...", str(text)[: 4 * most])
    return _UNPRINTABLE.sub(" ", words).strip()[:most]


class WebClient:
    """Requests to one origin, and without its token to those that it redirects to."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.origin = origin_of(url)
        if token is not None and not is_token(token):
            raise UsageError(
                f"the token for {self.origin} is not a token",
                why="tokens begin with dlv_",
                hint=f"dlv login {self.origin}",
            )
        self.token = token
        self.traffic = Traffic()
        self._pool = _pool(url)

    def close(self) -> None:
        self._pool.clear()

    def request(
        self,
        method: str,
        url: str,
        *,
        body: bytes | memoryview = b"",
        headers: Mapping[str, str] | None = None,
        most: int = MOST_ERROR,
        repeats: bool | None = None,
        elsewhere: bool = False,
    ) -> Reply:
        """Send a request and return the answer, whatever its status.

        `most`: bytes of its body. `repeats`: it can be sent twice, as GET and HEAD can.
        `elsewhere`: a redirect may lead to another origin.
        """
        again = method in ("GET", "HEAD") if repeats is None else repeats
        for attempt in range(TRIES):
            last = attempt == TRIES - 1
            try:
                reply = self.once(method, url, body, headers or {}, most, elsewhere=elsewhere)
            except Cut as cut:
                if last or not again:
                    self.unreachable(cut)
                wait = None
            except Unexpected as error:
                raise RemoteError(
                    f"{self.origin} sent something unexpected", why=str(error)
                ) from None
            else:
                busy = reply.status == 429 or (again and reply.status in (502, 503, 504))
                wait = _retry_after(reply)
                if last or not busy or (wait or 0) > MOST_RETRY_AFTER:
                    return reply
            pause(attempt, wait)
        raise AssertionError("unreachable")

    def once(
        self,
        method: str,
        url: str,
        body: bytes | memoryview,
        headers: Mapping[str, str],
        most: int,
        *,
        elsewhere: bool = False,
        bare: bool = False,
    ) -> Reply:
        """Send a request one time, and follow redirects of GET and HEAD.

        `bare`: without the token, as everywhere that a redirect leads to with `elsewhere`.
        """
        for _ in range(REDIRECTS + 1):
            response = self._send(method, url, body, headers, bare=bare)
            location = response.headers.get("Location")
            if not (300 < response.status < 309 and response.status != 304 and location):
                return self._reply(method, url, response, most)
            _leave(response)
            url = self._target(method, url, location, elsewhere=elsewhere)
            bare = bare or elsewhere
        raise RemoteError(f"{self.origin} redirects in circles")

    def _target(self, method: str, url: str, location: str, *, elsewhere: bool) -> str:
        try:
            target = urljoin(url, location)
            parts, origin = _split(target), origin_of(target)
        except (UsageError, ValueError) as error:
            why = plain(error)
            raise RemoteError(f"{self.origin} redirects to nowhere", why=why) from None
        if url.startswith("https:") and parts.scheme != "https":
            raise RemoteError(f"{self.origin} redirects to an address without encryption")
        if method not in ("GET", "HEAD") or (origin != self.origin and not elsewhere):
            way = f"{parts.scheme}://{parts.netloc}{parts.path}"
            raise self.moved(way)
        return target

    def moved(self, target: str) -> RemoteError:
        return RemoteError(
            f"{self.origin} has moved",
            why=f"it redirects to {plain(target)}",
            hint="to use that address: dlv remote set-url NAME URL",
        )

    def _send(
        self,
        method: str,
        url: str,
        body: bytes | memoryview,
        headers: Mapping[str, str],
        *,
        bare: bool,
    ) -> urllib3.BaseHTTPResponse:
        sent = {"Accept-Encoding": "identity", "User-Agent": "dlv", **headers}
        source: Any = body or None
        if len(body) > BLOCK:
            # The time limit of a socket is for each block, and not for all of them.
            source, sent["Content-Length"] = _Source(body), str(len(body))
        if self.token is not None and not bare and origin_of(url) == self.origin:
            sent["Authorization"] = f"Bearer {self.token}"
        self.traffic.add(requests=1, sent=len(body))
        try:
            return self._pool.request(
                method, url, body=source, headers=sent, redirect=False, retries=False,
                preload_content=False, decode_content=False,
                timeout=urllib3.Timeout(connect=CONNECT, read=SILENCE),
            )  # fmt: skip
        except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError) as error:
            raise Cut(_why(error)) from None

    def _reply(self, method: str, url: str, response: urllib3.BaseHTTPResponse, most: int) -> Reply:
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding != "identity":
            response.close()
            raise Unexpected(f"the answer is encoded as {plain(encoding, 40)}")
        if method == "HEAD":
            response.release_conn()
            return Reply(response.status, response.headers, b"", url)
        limit = most if response.status < 300 else MOST_ERROR
        declared = response.headers.get("Content-Length", "")
        if declared.isdigit() and int(declared[:20]) > limit:
            response.close()
            raise Unexpected(f"the answer has {declared[:20]} bytes, more than {limit}")
        data = io.BytesIO()
        try:
            while piece := response.read(PIECE, decode_content=False):
                data.write(piece)
                if data.tell() > limit:
                    response.close()
                    raise Unexpected(f"the answer has more than {limit} bytes")
        except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError) as error:
            response.close()
            self.traffic.add(received=data.tell())
            part = Reply(response.status, response.headers, data.getvalue(), url)
            raise Cut(_why(error), part) from None
        response.release_conn()
        self.traffic.add(received=data.tell())
        return Reply(response.status, response.headers, data.getvalue(), url)

    def unreachable(self, cut: Cut) -> NoReturn:
        hint = "check the address; if it is right, try again later"
        raise RemoteError(f"cannot reach {self.origin}", why=cut.why, hint=hint)


class _Source:
    """Bytes in memory, to be read in blocks without copying them."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data, self._offset = memoryview(data), 0

    def read(self, size: int = -1) -> memoryview:
        end = len(self._data) if size < 0 else self._offset + size
        block, self._offset = self._data[self._offset : end], end
        return block


def pause(attempt: int, seconds: float | None = None) -> None:
    """Wait before the next try; a random share keeps clients apart."""
    if seconds is None:
        seconds = min(LONGEST_WAIT, FIRST_WAIT * 2**attempt) * random.uniform(0.5, 1.0)
    time.sleep(seconds)


def _retry_after(reply: Reply) -> float | None:
    seconds = reply.number("Retry-After")
    return None if seconds is None else float(seconds)


def _why(error: BaseException) -> str:
    """Return what a library says, without the names of its classes."""
    reason = getattr(error, "reason", None) or error
    words = _OF_CONNECTION.sub("", str(reason), count=1)
    return plain(words or type(error).__name__)


def _leave(response: urllib3.BaseHTTPResponse) -> None:
    """Keep the connection if little of a body is left."""
    length = response.headers.get("Content-Length", "")
    if length.isdigit() and int(length[:9]) <= MOST_LEFT:
        try:
            response.read(MOST_LEFT, decode_content=False)
            response.release_conn()
        except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError):
            response.close()
    else:
        response.close()


class _PacedReader(io.RawIOBase):
    """Reads a socket, but no longer than the arrived bytes justify."""

    def __init__(self, raw: Any, sock: socket.socket) -> None:
        self._raw, self._sock = raw, sock
        self._begun, self._count = time.monotonic(), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._begun + SILENCE + self._count / SLOWEST - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer is too slow")
        self._sock.settimeout(min(SILENCE, left))
        count: int | None = self._raw.readinto(buffer)
        self._count += count or 0
        return count

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()


class _PacedResponse(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp.close()
        self.fp = io.BufferedReader(_PacedReader(sock.makefile("rb", buffering=0), sock))


class _PacedConnection(HTTPConnection):
    response_class = _PacedResponse


class _PacedSecureConnection(HTTPSConnection):
    response_class = _PacedResponse


class _HttpPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _PacedConnection


class _HttpsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _PacedSecureConnection


def _pool(url: str) -> urllib3.PoolManager:
    parts = _split(url)
    options: dict[str, Any] = {"maxsize": CONNECTIONS, "num_pools": 4, "blocksize": BLOCK}
    proxy = getproxies().get(parts.scheme)
    pool = urllib3.PoolManager(**options)
    if proxy and not proxy_bypass(parts.hostname or ""):
        pool = urllib3.ProxyManager(proxy, **options)
    pool.pool_classes_by_scheme = {"http": _HttpPool, "https": _HttpsPool}
    return pool
