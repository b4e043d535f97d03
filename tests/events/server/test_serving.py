"""The threaded server: real sockets, requests at once, hostile bytes, the end of it."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterable, Iterator

import pytest

from dlv.errors import Conflict, Damaged, DlvError, NotFound, StorageError, UnsafeInput, UsageError
from dlv.events.server.security import Answer, Environ, Start, document
from dlv.events.server.serving import BODY_LIMIT, Server, address

ERRORS: dict[str, DlvError] = {
    "/usage": UsageError("wrong"),
    "/missing": NotFound("nothing"),
    "/unsafe": UnsafeInput("no"),
    "/damage": Damaged("broken"),
    "/disk": StorageError("full"),
}
together = threading.Barrier(8)


def app(environ: Environ, start: Start) -> Iterable[bytes]:
    path = environ["PATH_INFO"]
    if path in ERRORS:
        raise ERRORS[path]
    if path == "/bug":
        raise RuntimeError("a secret detail")
    if path == "/late":
        start("200 OK", [("Content-Type", "text/plain")])
        raise RuntimeError("a secret detail")
    if path == "/meet":
        together.wait(30)
    if path == "/body":
        return document(len(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))).send(
            environ, start
        )
    return Answer(path.encode("latin-1")).send(environ, start)


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def server(told: list[str]) -> Iterator[Server]:
    made = Server("127.0.0.1", 0, told.append)
    thread = made.in_background(app)
    yield made
    made.stop()
    thread.join(30)
    assert not thread.is_alive()


def ask(
    server: Server, path: str, method: str = "GET", body: bytes | None = None
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request(method, path, body)
    answer = connection.getresponse()
    got = answer.status, answer.read()
    connection.close()
    return got


def raw(server: Server, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        found = b""
        while part := connection.recv(65536):
            found += part
        return found


def test_eight_requests_wait_for_each_other(server: Server) -> None:
    found: list[tuple[int, bytes]] = []
    threads = [
        threading.Thread(target=lambda: found.append(ask(server, "/meet"))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [(200, b"/meet")] * 8


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        ("/usage", 400, "usage"),
        ("/missing", 404, "not found"),
        ("/unsafe", 403, "unsafe"),
        ("/damage", 500, "damage"),
        ("/disk", 503, "io"),
    ],
)
def test_errors_are_documents(server: Server, path: str, status: int, kind: str) -> None:
    got, body = ask(server, path)
    assert got == status
    assert b'"kind":"%s"' % kind.encode() in body


@pytest.mark.parametrize("path", ["/bug", "/late"])
def test_a_bug_is_told_to_the_log_alone(server: Server, told: list[str], path: str) -> None:
    assert ask(server, path) == (500, b"internal error\n")
    assert any("a secret detail" in line for line in told)
    assert ask(server, "/next") == (200, b"/next")


def test_bodies_have_a_limit(server: Server) -> None:
    assert ask(server, "/body", "POST", b"x" * 1000) == (200, b"1000")
    head = b"POST /body HTTP/1.1\r\nContent-Length: %d\r\n\r\n"
    assert b" 413 " in raw(server, head % (BODY_LIMIT + 1))
    assert b" 413 " in raw(server, head % 10**30)
    for length in (b"-1", b"x", b"1.5", "²".encode("latin-1")):
        assert b" 400 " in raw(
            server, b"POST /body HTTP/1.1\r\nContent-Length: %s\r\n\r\n" % length
        )
    chunked = b"POST /body HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    assert b" 411 " in raw(server, chunked)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\r\n",
        b"GET\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a TLS hello
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: " + b"a" * 70_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n: :\r\n \xff\r\n\r\n",
        b"<script>alert(1)</script> / HTTP/1.1\r\n\r\n",
    ],
)
def test_hostile_bytes(server: Server, data: bytes) -> None:
    answer = raw(server, data)
    assert b" 500 " not in answer.split(b"\r\n")[0]
    assert b"<script>" not in answer
    assert ask(server, "/next") == (200, b"/next")


def test_who_goes_away_early_harms_nobody(server: Server) -> None:
    for _ in range(20):
        connection = socket.create_connection(("127.0.0.1", server.port))
        connection.sendall(b"GET /x HTTP/1.1\r\n\r\n")
        connection.close()
    assert ask(server, "/next") == (200, b"/next")


def test_silent_connections_beyond_all_threads(told: list[str]) -> None:
    server = Server("127.0.0.1", 0, told.append)
    server.room = threading.BoundedSemaphore(4)
    thread = server.in_background(app)
    held = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(12)]
    found: list[tuple[int, bytes]] = []
    asking = threading.Thread(target=lambda: found.append(ask(server, "/x")))
    asking.start()
    for connection in held:
        connection.close()
    asking.join(60)
    assert found == [(200, b"/x")]
    server.stop()
    thread.join(60)
    assert told[-1:] == ['"GET /x HTTP/1.1" 200 2']


def test_a_port_that_is_taken(server: Server) -> None:
    with pytest.raises(Conflict, match=f"port {server.port} is taken") as caught:
        Server("127.0.0.1", server.port, print)
    assert caught.value.hint == "--port 0 takes a free one"


def test_what_cannot_be_bound() -> None:
    with pytest.raises(UsageError, match="is not a port"):
        Server("127.0.0.1", 70_000, print)
    with pytest.raises(UsageError, match=r"cannot listen on `203\.0\.113\.7`"):
        Server("203.0.113.7", 0, print)
    with pytest.raises(UsageError, match="cannot listen on `no such host`"):
        Server("no such host", 0, print)


def test_a_port_is_free_again_at_once() -> None:
    for _ in range(3):
        first = Server("127.0.0.1", 0, print)
        thread = first.in_background(app)
        assert ask(first, "/x") == (200, b"/x")
        first.stop()
        thread.join(30)
        again = Server("127.0.0.1", first.port, print)
        again.stop()


def test_only_this_machine_is_reached(server: Server) -> None:
    assert server.socket.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", "http://127.0.0.1:6006/?token=t"),
        ("0.0.0.0", "http://127.0.0.1:6006/?token=t"),
        ("::", "http://[::1]:6006/?token=t"),
        ("::1", "http://[::1]:6006/?token=t"),
    ],
)
def test_addresses(host: str, expected: str) -> None:
    assert address(host, 6006, "t") == expected


def test_interrupted_before_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C right after the address was printed ended nothing: `stop` waited for ever."""

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    server = Server("127.0.0.1", 0, print)
    monkeypatch.setattr(server, "serve_forever", interrupt)
    with pytest.raises(KeyboardInterrupt):
        server.serve(app)
    ending = threading.Thread(target=server.stop, daemon=True)
    ending.start()
    ending.join(10)
    assert not ending.is_alive()
