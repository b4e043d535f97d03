"""Stored bytes as answers to a browser: images and sounds by what they are, the rest to save."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from dlv.events.provider.provider import Provider
from dlv.events.server.responses import SANDBOX, Answer, App, Environ, Start

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
