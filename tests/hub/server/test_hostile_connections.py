"""Attacks on a hub's process by sockets: slow, endless, false and parallel; memory is bounded."""

from __future__ import annotations

import os
import random
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlv.canonical import hash_bytes
from dlv.hub.server import objects
from dlv.pas.coders.zstd import ZstdCodec
from tests.hub.server.filling import Version
from tests.hub.server.process import Served, parsed, read_all, served
from tests.hub.server.site import Site

pytestmark = [pytest.mark.hostile, pytest.mark.timeout(600)]

MIB = 1 << 20


class Prey:
    """A running hub, and the tokens of its user."""

    def __init__(self, hub: Served, token: str) -> None:
        self.hub, self.token = hub, token

    def ask(self, kind: str, data: bytes) -> str:
        digest = hash_bytes(data)
        body = f'{{"objects":[{{"kind":"{kind}","hash":"{digest}","size":{len(data)}}}]}}'
        status, answer = self.hub.request("POST", "/v1/ada/r/batch", self.token, body.encode())
        assert status == 200, answer
        return digest

    def upload(self, kind: str, digest: str, data: bytes) -> int:
        headers = {"Upload-Offset": "0", "Upload-Complete": "?1"}
        path = f"/v1/ada/r/uploads/{kind}/{digest}"
        return self.hub.request("PATCH", path, self.token, data, headers)[0]

    def head(self, method: str, path: str, *lines: str) -> bytes:
        """Return the head of a request of the user."""
        own = [f"{method} {path} HTTP/1.1", "Host: hub", f"Authorization: Bearer {self.token}"]
        return "\r\n".join([*own, *lines, "", ""]).encode()


@pytest.fixture(scope="module")
def prey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prey]:
    folder = tmp_path_factory.mktemp("hub")
    url = f"sqlite:///{folder / 'hub.db'}"
    token = _prepared(folder, url)
    with served(folder, url, body_seconds=2.0, header_seconds=2.0) as hub:
        yield Prey(hub, token)
        assert hub.errors() == []


def _prepared(folder: Path, url: str) -> str:
    site = Site(folder, url)
    site.user("ada")
    place = site.repository("ada/r", "private", "ada")
    site.publish(place, "ada", "net", Version.of("net", "m", os.urandom(9 * MIB)))
    token = site.token("ada")
    site.close()
    return token


def _alive(prey: Prey) -> None:
    status, _ = prey.hub.request("GET", "/v1/ada/r", prey.token)
    assert status == 200


LOGIN = b"POST /v1/login HTTP/1.1\r\nHost: a\r\n"
RAW = [
    b"\r\n" * 1000,
    b"\0" * 1000,
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"\x16\x03\x01" + b"x" * 500,
    b"GET /v1/health HTTP/1.1\r\n\r\n",
    b"GET /v1/health HTTP/1.1\nHost: a\n\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET /v1/health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"GET  /v1/health  HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /v1/health HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    b"GET /v1/health HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n",
    b"GET /v1/health HTTP/1.1\r\nHost: a\r\nContent-Length: 1e3\r\n\r\n",
    b"POST /v1/login HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\nx",
    LOGIN + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffffffff\r\nx",
    b"POST /v1/login HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nx\r\n0\r\n\r\n",
    LOGIN + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\nGET /x",
    b"GET /v1/health HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 200_000 + b"\r\n\r\n",
    b"GET /v1/health HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 50_000 + b"\r\n",
    b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /v1/health\x00 HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET http://169.254.169.254/ HTTP/1.1\r\nHost: a\r\n\r\n",
    b"CONNECT x:1 HTTP/1.1\r\nHost: x:1\r\n\r\n",
    b"GET /v1/health HTTP/1.1\r\nHost: a\r\n X: folded\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /v1/health HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    b"GET /v1/\xff\xfe HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /v1/health HTTP/1.1\r\nHost: a\r\nX\x00Y: z\r\n\r\n",
]


@pytest.mark.parametrize("data", RAW, ids=range(len(RAW)))
def test_what_is_not_http(prey: Prey, data: bytes) -> None:
    """Answered in JSON or not at all, and the connection ends."""
    with prey.hub.connect() as line:
        try:
            line.sendall(data)
            line.shutdown(socket.SHUT_WR)
            answer = read_all(line)
        except (BrokenPipeError, ConnectionResetError, OSError):
            answer = b""
    status, body = parsed(answer)
    assert status in (0, 200, 400, 404, 405, 501), answer[:300]
    assert b"Traceback" not in answer
    if status >= 400:
        assert body.startswith(b'{"error"'), answer[:300]
    _alive(prey)


def test_random_bytes(prey: Prey) -> None:
    """Requests of which some bytes are changed."""
    source = random.Random(1)
    good = prey.head("GET", "/v1/ada/r/refs/net/1", "Connection: close")
    for _ in range(150):
        data = bytearray(good)
        for _ in range(source.randint(1, 4)):
            data[source.randrange(len(data))] = source.randrange(256)
        with prey.hub.connect() as line:
            line.sendall(bytes(data))
            line.shutdown(socket.SHUT_WR)
            answer = read_all(line)
        status, body = parsed(answer)
        assert status in (0, 200, 400, 401, 404, 405), (bytes(data), answer[:300])
        assert status < 400 or b'{"error"' in body, (bytes(data), answer[:300])


def test_half_open_connections_end(prey: Prey) -> None:
    """Without a request, with half a head, or a head byte by byte: closed after some seconds."""
    lines = [prey.hub.connect() for _ in range(100)]
    begun = time.monotonic()
    for number, line in enumerate(lines):
        line.sendall(b"GET /v1/health HTTP/1.1\r\nHo"[: number % 27])
    stop = threading.Event()

    def drip() -> None:
        while not stop.wait(0.2):
            try:
                lines[26].sendall(b"x")
            except OSError:
                return

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        for line in lines:
            assert parsed(read_all(line))[0] in (0, 400)
    finally:
        stop.set()
        thread.join()
    assert time.monotonic() - begun < 20
    for line in lines:
        line.close()
    _alive(prey)


def test_a_second_request_may_not_hang_either(prey: Prey) -> None:
    with prey.hub.connect() as line:
        line.sendall(b"GET /v1/health HTTP/1.1\r\nHost: a\r\n\r\n")
        time.sleep(0.3)
        line.sendall(b"GET /v1/health HTTP/1.1\r\nHost: a\r\n")
        begun = time.monotonic()
        assert read_all(line).count(b"HTTP/1.1") == 1
        assert time.monotonic() - begun < 15


def test_slow_bodies_end(prey: Prey) -> None:
    """A body that stops, or drips, is answered with 408; what others do goes on."""
    digest = prey.ask("packs", b"slow" * 100_000)
    bodies = [
        prey.head("PUT", "/v1/ada/r/refs/net/2", "Content-Length: 500", "If-None-Match: *"),
        prey.head("POST", "/v1/ada/r/batch", "Content-Length: 1000000"),
        prey.head("POST", "/v1/ada/r/batch", "Transfer-Encoding: chunked"),
        prey.head(
            "PATCH", f"/v1/ada/r/uploads/packs/{digest}", "Content-Length: 400000",
            "Upload-Offset: 0", "Upload-Complete: ?1",
        ),
    ]  # fmt: skip
    lines = []
    for head in bodies * 5:
        line = prey.hub.connect()
        line.sendall(head + b'7\r\n{"obj')
        lines.append(line)
    begun = time.monotonic()
    _alive(prey)
    assert time.monotonic() - begun < 5
    for line in lines:
        status, body = parsed(read_all(line))
        assert status == 408, body
        assert b'"error"' in body
        line.close()
    assert time.monotonic() - begun < 30


def test_false_lengths(prey: Prey) -> None:
    """Fewer bytes than were declared: nothing happens. More: what follows is another request."""
    data = b"false" * 1000
    digest = prey.ask("packs", data)
    path = f"/v1/ada/r/uploads/packs/{digest}"
    lines = ["Upload-Offset: 0", "Upload-Complete: ?1"]
    with prey.hub.connect() as line:
        line.sendall(prey.head("PATCH", path, f"Content-Length: {len(data)}", *lines) + data[:-1])
        line.shutdown(socket.SHUT_WR)
        assert parsed(read_all(line))[0] in (0, 408, 499)
    answer = prey.hub.send(
        prey.head("PATCH", path, "Content-Length: 10", *lines, "Connection: close") + data
    )
    assert parsed(answer)[0] == 422
    huge = prey.head("PATCH", path, "Content-Length: 99999999999999999999", *lines)
    assert parsed(prey.hub.send(huge))[0] in (400, 413)
    assert prey.upload("packs", digest, data) == 201


def test_endless_bodies_end(prey: Prey) -> None:
    """Chunks without an end are read up to the limit of the route."""
    digest = prey.ask("packs", b"e" * 1000)
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    for method, path in (
        ("POST", "/v1/ada/r/batch"), ("PUT", "/v1/ada/r/refs/net/2"), ("POST", "/v1/search"),
        ("PATCH", f"/v1/ada/r/uploads/packs/{digest}"), ("GET", "/v1/health"),
    ):  # fmt: skip
        begun = time.monotonic()
        with prey.hub.connect() as line:
            head = prey.head(
                method, path, "Transfer-Encoding: chunked", "Upload-Offset: 0", "If-None-Match: *"
            )
            line.sendall(head)
            try:
                while time.monotonic() - begun < 50:
                    line.sendall(chunk)
            except OSError:
                pass
            status, _ = parsed(read_all(line))
        assert status in (0, 200, 413), (method, path)
        assert time.monotonic() - begun < 40, (method, path)
    _alive(prey)


@pytest.mark.slow
def test_memory_with_sixteen_uploads(prey: Prey) -> None:
    """16 x 64 MiB at once: some are asked to come back, and the process stays small."""
    _alive(prey)
    before, _ = prey.hub.memory()
    prey.hub.forget_peak()
    packs = [bytes([number]) * (64 * MIB) for number in range(16)]
    digests = [prey.ask("packs", pack) for pack in packs]
    statuses: list[int] = [0] * 16
    tries = [0] * 16

    def send(number: int) -> None:
        while statuses[number] != 201 and tries[number] < 200:
            tries[number] += 1
            statuses[number] = prey.upload("packs", digests[number], packs[number])
            if statuses[number] != 201:
                assert statuses[number] in (0, 503)
                time.sleep(0.2)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [201] * 16
    _, peak = prey.hub.memory()
    assert peak - before < 600 * MIB, (before // MIB, peak // MIB)
    status, _ = prey.hub.request("POST", "/v1/ada/r/gc", prey.token, b'{"grace":0}')
    assert status == 200


def test_memory_with_bombs(prey: Prey) -> None:
    """Locators that decode to 64 MiB of brackets or strings, several at once."""
    good = Version.of("net", "m", b"x")
    text = b'{"chunks":[' + b"[]," * 21_000_000 + b'[]],"encodings":[],"facts":[]}'
    strings = b'{"chunks":[' + b'"ab",' * 12_000_000 + b'""],"encodings":[],"facts":[]}'
    before, _ = prey.hub.memory()
    prey.hub.forget_peak()
    bombs = [ZstdCodec("text").encode(data) for data in (text, strings, b"\0" * (300 * MIB))]
    del text, strings
    digests = [prey.ask("locators", bomb) for bomb in bombs]
    for digest, bomb in zip(digests, bombs, strict=True):
        assert prey.upload("locators", digest, bomb) == 201
    manifest = prey.ask("manifests", good.manifest)
    assert prey.upload("manifests", manifest, good.manifest) == 201
    results: list[Any] = []

    def publish(digest: str) -> None:
        from dlv.hub.history import successor

        ref = successor(
            [], "publish", name=f"m{digest[:5]}", number=1, manifest=manifest, locator=digest,
            author="x",
        )  # fmt: skip
        path = f"/v1/ada/r/refs/{ref.name}/1"
        headers = {"If-None-Match": "*"}
        results.append(prey.hub.request("PUT", path, prey.token, ref.encode(), headers))

    threads = [threading.Thread(target=publish, args=(each,)) for each in digests * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [status for status, _ in results] == [422] * 9, results
    _, peak = prey.hub.memory()
    assert peak - before < 1000 * MIB, (before // MIB, peak // MIB)


def test_readers_who_do_not_read(prey: Prey) -> None:
    """Many who ask for a large object and read nothing hold little memory each."""
    status, refs = prey.hub.request("GET", "/v1/ada/r/refs/net/1", prey.token)
    assert status == 200
    import json

    from dlv.hub.locator import decode_locator

    locator = json.loads(refs)["locator"]
    _, data = prey.hub.request("GET", f"/v1/ada/r/objects/locators/{locator}", prey.token)
    pack = decode_locator(data, "x").packs[0]
    before, _ = prey.hub.memory()
    prey.hub.forget_peak()
    lines = [prey.hub.connect() for _ in range(60)]
    for line in lines:
        line.sendall(prey.head("GET", f"/v1/ada/r/objects/packs/{pack}"))
    time.sleep(2)
    _alive(prey)
    _, peak = prey.hub.memory()
    assert peak - before < 60 * 9 * MIB, (before // MIB, peak // MIB)
    for line in lines:
        line.close()


@pytest.mark.parametrize("kind", ["body", "streaming"])
def test_a_stop_answers_what_has_begun(tmp_path: Path, kind: str) -> None:
    """After SIGTERM, a request in progress is answered, and the process ends by itself."""
    url = f"sqlite:///{tmp_path / 'hub.db'}"
    token = _prepared(tmp_path, url)
    with served(tmp_path, url) as hub:
        prey = Prey(hub, token)
        data = os.urandom(200_000)
        digest = prey.ask("packs", data)
        lines = [f"Content-Length: {len(data)}", "Upload-Offset: 0", "Upload-Complete: ?1"]
        with hub.connect() as line:
            line.sendall(prey.head("PATCH", f"/v1/ada/r/uploads/packs/{digest}", *lines))
            line.sendall(data[:100_000])
            if kind == "streaming":
                with hub.connect() as idle:
                    idle.sendall(b"GET /v1/health HTTP/1.1\r\nHost: a\r\n\r\n")
                    time.sleep(0.3)
                    hub.process.send_signal(signal.SIGTERM)
                    time.sleep(0.3)
            else:
                time.sleep(0.3)
                hub.process.send_signal(signal.SIGTERM)
                time.sleep(0.3)
            line.sendall(data[100_000:])
            assert parsed(read_all(line))[0] == 201
        assert hub.process.wait(30) in (0, -signal.SIGTERM)
        with pytest.raises(OSError, match="refused"):
            hub.connect()
        assert hub.errors() == []
    site = Site(tmp_path, url)
    place = site.place("ada/r", "ada")
    with site.hub.database.reading() as connection:
        assert objects.size_of(connection, place.id, "packs", digest) == len(data)
    site.close()
