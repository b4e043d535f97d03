"""A hub of lies: objects from a dict, by the routes of a hub; it can break every rule of HTTP."""

from __future__ import annotations

import http.server
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

from dlv.hub.records import object_key, ref_key

_ROUTE = re.compile(r"/v1/ada/models/(.*)\Z")


class HostileHub:
    """`objects` are those of a remote; `answer` may answer a request in another way."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        self.objects = objects
        self.answer: Callable[[Any], bool] = lambda _: False
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        self.url = ""
        self.ending = threading.Event()

    def body_of(self, path: str) -> bytes | None:
        """Return what an honest hub would send."""
        url = urlsplit(path)
        if url.path == "/ada/models/dlv-remote.json":
            return self.objects.get("dlv-remote.json")
        match = _ROUTE.match(url.path)
        if match is None:
            return None
        kind, *rest = match[1].split("/")
        if kind == "objects":
            return self.objects.get(object_key(rest[0], rest[1]))
        if kind == "refs" and len(rest) == 1:
            return self._records(rest[0], int(parse_qs(url.query)["after"][0]))
        if kind == "refs" and rest:
            return self.objects.get(ref_key(rest[0], int(rest[1])))
        if kind == "refs":
            names = {key.split("/")[1] for key in self.objects if key.startswith("refs/")}
            newest = {name: self._newest(name) for name in names}
            return json.dumps({"refs": newest}).encode()
        return None

    def _newest(self, name: str) -> int:
        return sum(key.startswith(f"refs/{name}/0") for key in self.objects)

    def _records(self, name: str, after: int) -> bytes:
        texts = []
        while (data := self.objects.get(ref_key(name, after + 1))) is not None:
            texts.append(data.decode("latin-1"))
            after += 1
        return json.dumps({"refs": texts}).encode()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: HostileHub

    def log_message(self, *_: Any) -> None: ...

    def do_GET(self) -> None:
        self.hub.seen.append((self.command, self.path, dict(self.headers)))
        length = int(self.headers.get("Content-Length", 0))
        self.rfile.read(length)
        if self.hub.answer(self):
            return
        body = self.hub.body_of(self.path)
        if body is None:
            self.reply(404, b'{"error": {"message": "not found"}}')
            return
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if wanted is None:
            self.reply(200, body)
            return
        start, end = int(wanted[1]), min(int(wanted[2]), len(body) - 1)
        if start > end:
            self.reply(416, b"")
            return
        place = {"Content-Range": f"bytes {start}-{end}/{len(body)}"}
        self.reply(206, body[start : end + 1], place)

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815

    def reply(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Dlv-Hub", "1")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def endless(self, status: int = 200, piece: bytes = b"x" * 65536, wait: float = 0.0) -> None:
        """Send a body that never ends."""
        self.send_response(status)
        self.send_header("Dlv-Hub", "1")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            while not self.hub.ending.is_set():
                self.wfile.write(piece)
                time.sleep(wait)
        except OSError:
            pass


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None: ...


@contextmanager
def hostile_hub(objects: dict[str, bytes]) -> Iterator[HostileHub]:
    """Serve objects, which may be changed later."""
    hub = HostileHub(objects)
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = _Server(("127.0.0.1", 0), handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.ending.set()
        server.shutdown()
        server.server_close()
        thread.join()
