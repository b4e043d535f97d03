"""Hostile requests: all are answered with a typed status in JSON, and change nothing."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from dlv.canonical import dumps, hash_bytes
from dlv.hub.server.settings import Limits
from dlv.pas.coders.zstd import ZstdCodec
from tests.hub.server.filling import Version
from tests.hub.server.site import GENEROUS, Reply, Site

pytestmark = pytest.mark.hostile

HASH = "ab" * 32
HUGE = "9" * 5000
# Segments of a path, as bytes of an address.
SEGMENTS = [
    "..", ".", "%2e%2e", "%2e", "%2f", "%2F..%2F..", "%5c..%5c", "%00", "a%00b", "%0a",
    "%0d%0aX:%20y",
    "%c0%ae%c0%ae", "%ff", "%e2%80%ae", "%f0%9f%92%a9", "%ed%a0%80", "%25", "%252e%252e", "%7f",
    "a" * 65, "a" * 3000, "-", "--", "~", "*", "'", "%27%20OR%201=1--", "%22", "%3Cscript%3E",
    "$(id)",
    "{namespace}", "%7b0%7d", "%s%n", "con", "NUL", "a;b", "a,b", "a@b", "%D0%B0cme", "ACME",
    "K%E2%84%AA",
    "http:%2f%2f169.254.169.254%2f", "file:%2f%2f%2fetc%2fpasswd", "0", "-1", HUGE[:400], "null",
    "true",
    "v1", "static", "..%00.json", "%EF%BC%8E%EF%BC%8E", "dlv-remote.json", "a%20", "%20", "%09",
    "a..b",
]  # fmt: skip
# Where a segment can be; {} is its place.
PLACES = [
    "/v1/{}", "/v1/{}/r", "/v1/ada/{}", "/v1/ada/r/{}", "/v1/ada/r/refs/{}",
    "/v1/ada/r/refs/net/{}",
    "/v1/ada/r/objects/{}/" + HASH, "/v1/ada/r/objects/packs/{}", "/v1/ada/r/uploads/packs/{}",
    "/v1/ada/-/{}", "/{}/r/dlv-remote.json",
]  # fmt: skip
JSON_BODIES: list[bytes] = [
    b"", b"{", b"[]", b"null", b"true", b"1", b'"x"', b"\x00", b"\xff\xfe\x00", b"\xef\xbb\xbf{}",
    b"[" * 100_000, b'{"a":' * 50_000, b"[[],[],[]" * 5000, b"{}{}", b"{} x", b'{"objects": null}',
    b'{"lease":"\\u0000aaaaaaa"}', b'{"lease":"\\ud800aaaaaaa"}',
    b'{"lease":"a","lease":"bbbbbbbb"}',
    b'{"objects":[{"kind":"packs","hash":"..","size":1}]}', b'{"objects":{"0":1}}',
    b'{"number":1e400}', b'{"number":NaN}', b'{"number":-1}', b'{"number":' + HUGE.encode() + b"}",
    b'{"number":99999999999999999999}', b'{"number":true}', b'{"number":"1"}', b'{"number":1.0}',
    b'{"grace":-1}', b'{"grace":99999999999999}', b'{"grace":1e9}', b'{"dry_run":1}',
    b'{"visibility":"secret"}', b'{"visibility":["public"]}', b'{"description":"\\ud83d"}',
    b'{"description":"\\u0000"}', b'{"__proto__":{}}', b'{"role":"operator"}', b'{"role":""}',
    b'{"name":"\\u202e","role":"admin"}', b'{"name":"' + b"x" * 5000 + b'"}',
    b'{"days":0,"name":"a"}',
    b'{"days":99999999999999999999,"name":"a"}', b'{"namespace":"../..","name":"a"}',
    b'{"name":"a","namespace":"ada","repository":"../x"}', b'{"bytes":-1}', b'{"bytes":1e3}',
    b'{"bytes":99999999999999999999}', b'{"email":"a\\nb@c"}', b'{"operator":"yes"}',
    b'{"text":"' + b"a " * 20_000 + b'"}', b'{"text":"\\u0000"}',
    b'{"where":"' + b"(" * 5000 + b'"}',
    b'{"where":"1=1; DROP TABLE account"}', b'{"sort":"(SELECT 1)"}', b'{"most":-1}',
    b'{"offset":-1}',
    b'{"most":99999999999999999999}', b'{"most":1000000}', b'{"offset":1000000000}',
    b'{"device":"x"}',
    b'{"text":"*"}', b'{"text":"acc>1e999"}', b'{"text":"net:****************"}',
    b'{"text":"\\"\\"\\""}',
]  # fmt: skip
JSON_ROUTES = [
    ("POST", "/v1/ada/r/batch"), ("POST", "/v1/ada/r/leases"), ("POST", "/v1/ada/r/gc"),
    ("PUT", "/v1/ada/r/aliases/net/x"), ("PATCH", "/v1/ada/r"), ("PUT", "/v1/ada/new"),
    ("PUT", "/v1/ada/-/members/eve"), ("PUT", "/v1/ada/r/members/eve"), ("POST", "/v1/tokens"),
    ("PUT", "/v1/ada/-/quota"), ("PUT", "/v1/users/fresh"), ("POST", "/v1/login/token"),
    ("POST", "/v1/search"), ("POST", "/v1/ada/r/search"),
]  # fmt: skip
HEADERS: list[list[tuple[str, str]]] = [
    [("Authorization", "")], [("Authorization", "Bearer")], [("Authorization", "Bearer ")],
    [("Authorization", "Basic YTpi")], [("Authorization", "Bearer dlv_")],
    [("Authorization", "Bearer dlv_" + "x" * 43)],
    [("Authorization", "Bearer dlv_" + "x" * 60_000)],
    [("Authorization", "Bearer dlv_\xff\xfe")], [("Authorization", "bearer\tdlv_x")],
    [("Authorization", "Bearer dlv_' OR 1=1 --")],
    [("Authorization", "Bearer dlv_x, Bearer dlv_y")],
    [("Cookie", "session=dlv_x")], [("Host", "evil.example")], [("Host", ""), ("Host", "b")],
    [("X-Forwarded-For", "127.0.0.1, " * 500)], [("X-Forwarded-Host", "evil.example")],
    [("X-Forwarded-Proto", "javascript")], [("X-Original-URL", "/v1/users")],
    [("X-HTTP-Method-Override", "DELETE")], [("X-Real-IP", "\xff")], [("Origin", "null")],
    [("If-None-Match", '"' + "x" * 60_000)], [("If-Modified-Since", "yesterday")],
    [("If-Range", '"x"'), ("Range", "bytes=0-0")], [("Range", "bytes=" + "0-0," * 10_000)],
    [("Range", "bytes=--1")], [("Range", f"bytes={HUGE}-")], [("Range", "bytes=0-\xb2")],
    [("Content-Type", "application/xml")], [("Content-Encoding", "zstd")],
    [("Content-Length", "-1")], [("Content-Length", HUGE)], [("Content-Length", "\xb2")],
    [("Transfer-Encoding", "chunked, identity")], [("Accept", "text/html"), ("Accept", "*/*")],
    [("Accept-Encoding", "identity;q=0")], [("Expect", "200-ok")], [("Upgrade", "h2c")],
    [("Upload-Offset", HUGE)], [("Upload-Offset", "0"), ("Upload-Offset", "1")],
    [("Upload-Complete", "?2")], [("Forwarded", 'for="_gazonk"')], [("X", "\t" * 60_000)],
]  # fmt: skip
HEADER_ROUTES = [
    ("GET", "/v1/ada/r"), ("GET", "/v1/ada/open/objects/manifests/{manifest}"), ("GET", "/v1/me"),
    ("PUT", "/v1/ada/r/refs/net/2"), ("PATCH", "/v1/ada/r/uploads/packs/{upload}"),
    ("DELETE", "/v1/ada/r"),
]  # fmt: skip
METHODS = [
    "TRACE",
    "CONNECT",
    "OPTIONS",
    "PROPFIND",
    "get",
    "G",
    "X" * 200,
    "POST",
    "PUT",
    "DELETE",
]


class Target:
    """A hub with one private and one public repository of `ada`, and `eve`, who attacks."""

    def __init__(self, folder: Path) -> None:
        self.site = Site(folder, f"sqlite:///{folder / 'hub.db'}")
        for name in ("ada", "eve"):
            self.site.user(name)
        self.site.user("root", operator=True)
        self.private = self.site.repository("ada/r", "private", "ada")
        self.public = self.site.repository("ada/open", "public", "ada")
        self.filled = self.site.fill(self.private, "ada")
        self.open = self.site.fill(self.public, "ada")
        self.tokens = [None, *(self.site.token(name) for name in ("eve", "ada", "root"))]
        self.site.save()
        self.sent = 0

    def attack(self, method: str, path: str, *, changes: bool = False, **options: Any) -> Reply:
        """Send a request; whatever happens, the answer is typed, and nothing is shown."""
        self.sent += 1
        reply = self.site.send(method, path, **options)
        check(reply, (method, path[:200], str(options)[:300]))
        if changes and reply.status < 300:
            self.site.restore()
        return reply


def check(reply: Reply, what: object) -> None:
    assert reply.status != 500, (what, reply)
    assert reply.status < 500 or reply.status in (502, 503, 507), (what, reply)
    assert b"Traceback" not in reply.body, what
    assert b'File "' not in reply.body, what
    if reply.status >= 400 and reply.body:
        error = reply.json["error"]
        assert set(error) == {"code", "kind", "message", "why", "hint", "did_you_mean"}, what
        assert len(reply.body) < 20_000, what
    for key, value in reply.headers:
        assert "\n" not in key + value, what
        assert "evil.example" not in value, what


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    made = Target(tmp_path_factory.mktemp("hub"))
    yield made
    assert made.site.errors() == []
    made.site.close()


def test_paths(target: Target) -> None:
    """Names that no disk and no database would like."""
    target.sent = 0
    for place, segment in itertools.product(PLACES, SEGMENTS):
        for token in target.tokens[:3]:
            target.attack("GET", place.format(segment), token=token)
        reply = target.attack(
            "PUT", place.format(segment), token=target.tokens[2], body={}, changes=True
        )
        assert reply.status < 300 or reply.status >= 400
    assert target.sent > 2000


def test_bodies(target: Target) -> None:
    """JSON that is not what a route reads, as everybody who may send it."""
    target.sent = 0
    for (method, path), body in itertools.product(JSON_ROUTES, JSON_BODIES):
        for token in target.tokens[2:]:
            reply = target.attack(method, path, token=token, body=body, changes=True)
            if body in (b"{", b"[]", b"null", b"\x00", b"{}{}"):
                assert reply.status in (403, 422), (method, path, body)
        target.attack(method, path, token=target.tokens[1], body=body)
    assert target.sent > 1500


def test_headers(target: Target) -> None:
    target.sent = 0
    ids = {"manifest": target.open.ref.manifest, "upload": target.filled.upload[0]}
    for (method, path), headers in itertools.product(HEADER_ROUTES, HEADERS):
        for token in target.tokens[:3]:
            if any(key == "Authorization" for key, _ in headers) and token is not None:
                # A second header does not lend its rights to the first.
                reply = target.attack(method, path.format(**ids), token=token, headers=headers)
                assert reply.status == 401, (method, path, headers)
                continue
            target.attack(method, path.format(**ids), token=token, headers=headers, changes=True)
    assert target.sent > 500


def test_methods(target: Target) -> None:
    for method, place in itertools.product(METHODS, PLACES):
        reply = target.attack(method, place.format("x"), token=target.tokens[1])
        assert reply.status in (404, 405, 401), (method, place)
    text = target.site.app.metrics.text()
    assert b"PROPFIND" not in text  # or the metrics would grow with each new word
    assert b"XXXX" not in text


def test_requests_lead_nowhere_else(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses in records, names and headers are never opened."""
    import socket

    def connect(*_: Any) -> None:
        raise AssertionError("a request made the hub connect to something")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "getaddrinfo", connect)
    address = "http://169.254.169.254/latest/meta-data"
    token = target.tokens[2]
    ref = target.site.ref(target.private, "net", target.filled.next_version)
    text = ref.encode().decode()
    for old in (ref.manifest, ref.locator, ref.author, ref.name):
        body = text.replace(old, address).encode()
        headers = [("If-None-Match", "*"), ("Referer", address), ("Host", "169.254.169.254")]
        path = f"/v1/ada/r/refs/net/{ref.seq}"
        target.attack("PUT", path, token=token, body=body, headers=headers, changes=True)
    for key in ("manifests", "locators", "packs"):
        wanted = {"kind": key, "hash": address, "size": 1}
        reply = target.attack("POST", "/v1/ada/r/batch", token=token, body={"objects": [wanted]})
        assert reply.status == 422
    for path in (address, f"/{address}", "//169.254.169.254/x", "/v1/ada/r/objects/" + address):
        assert target.attack("GET", path, token=token).status == 404


def _publish(target: Target, version: Version) -> Reply:
    """Send objects as they are, and try to publish them."""
    token = target.tokens[2]
    for (kind, digest), data in version.objects.items():
        wanted = {"kind": kind, "hash": digest, "size": len(data)}
        target.attack("POST", "/v1/ada/r/batch", token=token, body={"objects": [wanted]})
        headers = [("Upload-Offset", "0"), ("Upload-Complete", "?1")]
        path = f"/v1/ada/r/uploads/{kind}/{digest}"
        target.attack("PATCH", path, token=token, body=data, headers=headers)
    ref = target.site.ref(target.private, "net", version)
    headers = [("If-None-Match", "*")]
    path = f"/v1/ada/r/refs/net/{ref.seq}"
    return target.attack("PUT", path, token=token, body=ref.encode(), headers=headers)


def _locators(version: str) -> Sequence[bytes]:
    def made(**values: Any) -> bytes:
        record = {
            "format": "dlv/locator/1", "writer": "x", "version": version, "packs": [],
            "encodings": [], "whole": 0, "chunks": [], "facts": [],
        }  # fmt: skip
        return ZstdCodec("text").encode(dumps({**record, **values}))

    bomb = ZstdCodec("text").encode(b"\0" * (200 << 20))
    return [
        b"", b"not zstd", bomb, bomb[:-3], made()[:-1], made() + b"x", made(version=HASH),
        made(packs=[HASH]), made(packs=["../../etc/passwd"]), made(packs=["http://x/"] * 3),
        made(facts=[HASH]), made(whole=7), made(whole=2**63 - 1), made(extra=1), made(chunks=[{}]),
        made(chunks=[{"pack": 0}]), made(encodings=[{}]), made(encodings=[[]]), made(packs=None),
        made(format="dlv/locator/2"), ZstdCodec("text").encode(b"[" * 1_000_000),
        ZstdCodec("text").encode(b'{"chunks":[' + b"[]," * 200_000 + b"[]]}"),
    ]  # fmt: skip


def test_locators_and_manifests(target: Target) -> None:
    """Bombs, loops and nonsense inside of what a ref names: refused, and nothing is published."""
    good = target.filled.next_version
    for locator in _locators(hash_bytes(good.manifest)):
        version = Version(good.manifest, locator, good.pack)
        assert _publish(target, version).status in (409, 422), locator[:100]
    for manifest in (
        b"", b"{}", b"[" * 100_000, good.manifest[:-1], good.manifest + b" ", b'{"a":' * 9999,
        good.manifest.replace(b'"net"', b'"other"'), b"\xff" * 50,
    ):  # fmt: skip
        version = Version(manifest, good.locator, good.pack)
        assert _publish(target, version).status in (409, 422), manifest[:100]
    assert target.site.counters() == target.site.sums()
    target.site.restore()


def test_tokens_cannot_be_guessed_quickly(tmp_path: Path) -> None:
    site = Site(tmp_path, f"sqlite:///{tmp_path / 'hub.db'}", Limits())
    statuses = [
        site.send("GET", "/v1/me", token=f"dlv_{number:043}").status for number in range(200)
    ]
    assert statuses[:30] == [401] * 30
    assert set(statuses[35:]) == {429}
    site.close()


def test_large_bodies_are_not_read(target: Target) -> None:
    """Of callers who may not send one, nothing; of others, no more than the limit."""
    read: list[int] = []

    class Pieces(list[bytes]):
        def pop(self, index: int = 0) -> bytes:  # type: ignore[override]
            read.append(1)
            return super().pop(index)

    pieces = [b"x" * (1 << 16)] * 200
    for token, most in ((None, 0), (target.tokens[1], 0), (target.tokens[2], 80)):
        for method, path in (
            ("POST", "/v1/ada/r/batch"), ("PUT", "/v1/ada/r/refs/net/9"), ("PATCH", "/v1/ada/r"),
            ("PATCH", f"/v1/ada/r/uploads/packs/{target.filled.upload[0]}"),
        ):  # fmt: skip
            read.clear()
            headers = [("Upload-Offset", "0"), ("If-None-Match", "*")]
            reply = target.attack(method, path, token=token, body=pieces, headers=headers)
            assert reply.status == (413 if most else 404), (method, path)
    assert GENEROUS.document == 4 << 20
    assert json.loads(reply.body)["error"]["code"] == 2
