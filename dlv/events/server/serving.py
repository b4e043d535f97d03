"""The web server: a thread per request, on this machine alone unless told otherwise."""

from __future__ import annotations

import errno
import os
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import ServerHandler, WSGIRequestHandler, WSGIServer

from dlv.errors import Conflict, DlvError, UsageError
from dlv.events.server.security import Answer, App, Environ, Start, bracketed, refusal

LOOPBACK = "127.0.0.1"
BODY_LIMIT = 16 << 20
CONNECTIONS = 64  # at once, each with a thread; more of them wait
PATIENCE = 30  # seconds that a silent connection is kept

Log = Callable[[str], None]


class Shield:
    """A WSGI application around another one: whatever fails in it becomes an answer."""

    def __init__(self, app: App, log: Log) -> None:
        self._app = app
        self._log = log

    def __call__(self, environ: Environ, start: Start) -> Iterable[bytes]:
        length = environ.get("CONTENT_LENGTH") or "0"
        if "HTTP_TRANSFER_ENCODING" in environ:
            return Answer(b"a length is required\n", status=411).send(environ, start)
        if not (length.isascii() and length.isdigit()):
            return Answer(b"Content-Length is no number\n", status=400).send(environ, start)
        if int(length[:20]) > BODY_LIMIT:
            return Answer(b"the request is too large\n", status=413).send(environ, start)
        try:
            return self._app(environ, start)
        except DlvError as error:
            answer = refusal(error)
        except Exception:  # whatever it is, the next request must be answered too
            self._log(traceback.format_exc())
            answer = Answer(b"internal error\n", status=500)
        return answer.send(environ, _restarted(start))


def _restarted(start: Start) -> Start:
    """`start_response` for an error: what was begun already, if it is not sent, is replaced."""

    def again(status: str, headers: list[tuple[str, str]]) -> Any:
        return start(status, headers, sys.exc_info())

    return again


class _Exchange(ServerHandler):
    """Quiet where the browser has gone away; nothing is told to the outside about failures."""

    server_software = "dlv"
    error_body = b"internal error\n"

    def log_exception(self, exc_info: Any) -> None:
        try:
            server: Any = self.request_handler.server  # type: ignore[attr-defined]
            server.log("".join(traceback.format_exception(*exc_info)))
        finally:
            exc_info = None


class _Handler(WSGIRequestHandler):
    timeout = PATIENCE
    server_version = "dlv"
    sys_version = ""
    error_content_type = "text/plain; charset=utf-8"
    error_message_format = "%(code)d %(message)s\n"

    def handle(self) -> None:
        server: Any = self.server
        try:
            self._exchange()
        except OSError:  # silent for too long, or gone
            self.close_connection = True
        finally:
            server.released()

    def _exchange(self) -> None:
        self.raw_requestline = self.rfile.readline(65537)
        if len(self.raw_requestline) > 65536:
            self.requestline = self.request_version = self.command = ""
            self.send_error(414)
            return
        if not self.parse_request():
            return
        server: Any = self.server
        read: Any = self.rfile
        written: Any = self.wfile
        exchange = _Exchange(read, written, self.get_stderr(), self.get_environ())
        exchange.request_handler = self  # type: ignore[attr-defined]
        exchange.run(server.get_app())

    def send_error(self, code: int, *_: str | None) -> None:
        # What was asked is not repeated in the answer.
        super().send_error(code, self.responses.get(code, ("error", ""))[0])

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        server: Any = self.server
        server.log(format % args)


class Server(ThreadingMixIn, WSGIServer):
    """Bound at once; `serve` answers until `stop`. `released` is called by each thread when its
    answer is sent."""

    daemon_threads = True
    request_queue_size = 128
    allow_reuse_address = os.name == "posix"  # elsewhere it would share the port with others

    def __init__(
        self, host: str, port: int, log: Log, released: Callable[[], None] = lambda: None
    ) -> None:
        self.log = log
        self.released = released
        self.room = threading.BoundedSemaphore(CONNECTIONS)
        self._serving = threading.Event()
        host = host.removeprefix("[").removesuffix("]")
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise _unbound(host, port, error) from error
        except OverflowError as error:
            raise UsageError(f"{port} is not a port", why="ports end at 65535") from error

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def server_bind(self) -> None:
        # As in the standard library, but without asking the network for a name.
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if self.allow_reuse_address:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit it: an answer in two writes does not wait 40 ms for the client.
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.port
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self.room.acquire(timeout=PATIENCE):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        self.log(traceback.format_exc())

    def serve(self, app: App) -> None:
        """Answer with `app` until stopped, in this thread."""
        self.set_app(Shield(app, self.log))
        try:
            self._serving.set()
            self.serve_forever(poll_interval=0.2)
        finally:
            self._serving.clear()  # or `stop` would wait for ever if Ctrl-C came in between

    def in_background(self, app: App) -> threading.Thread:
        thread = threading.Thread(target=self.serve, args=(app,), daemon=True)
        thread.start()
        self._serving.wait()
        return thread

    def stop(self) -> None:
        """From another thread, or after `serve` was interrupted."""
        if self._serving.is_set():
            self.shutdown()
        self.server_close()


def address(host: str, port: int, token: str, page: str = "/") -> str:
    """What to open: a page of a server, with the token."""
    shown = {"0.0.0.0": LOOPBACK, "": LOOPBACK, "::": "::1"}.get(host, host)
    return f"http://{bracketed(shown)}:{port}{page}?token={token}"


def _unbound(host: str, port: int, error: OSError) -> DlvError:
    reason = error.strerror or str(error)
    if error.errno == errno.EADDRINUSE:
        return Conflict(
            f"port {port} is taken",
            why=f"another program listens on {bracketed(host)}:{port}",
            hint="--port 0 takes a free one",
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return Conflict(
            f"port {port} may not be used",
            why=f"{reason}",
            hint="ports below 1024 are reserved; --port 6006",
        )
    return UsageError(
        f"cannot listen on `{host}`",
        why=f"{reason}",
        hint="--host takes an address of this machine; without it, 127.0.0.1",
    )
