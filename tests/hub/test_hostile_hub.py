"""Hubs that lie, or break HTTP: a typed error, bounded memory and time, and no token for others."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import dlv.hub.pull as pulling
import dlv.hub.stores.server as server_module
import dlv.hub.stores.web as web
from dlv.errors import DlvError, RemoteError, UsageError
from dlv.hub.records import RemoteFile
from dlv.hub.stores.interface import MissingObject
from dlv.hub.stores.opening import open_store
from dlv.hub.stores.server import HubStore
from dlv.hub.stores.web import WebClient
from dlv.metadata import versions
from dlv.repository.handle import Repository
from tests.hub.hostile_hub import HostileHub, hostile_hub
from tests.hub.stores import MemoryStore
from tests.hub.test_hostile_remotes import LIES
from tests.hub.test_push_pull import UUID, other, publish, remote_of

__all__ = ["other"]
TOKEN = "dlv_secret-token-of-ada"
PACK = "packs/aa/" + "a" * 64 + ".pack"


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "FIRST_WAIT", 0.001)
    monkeypatch.setattr(web, "SILENCE", 1.0)


@pytest.fixture
def hub() -> Iterator[HostileHub]:
    record = RemoteFile(UUID, "2026-01-01T00:00:00.000000Z", {}).encode()
    with hostile_hub({"dlv-remote.json": record}) as running:
        yield running


def store_of(hub: HostileHub) -> HubStore:
    url = f"{hub.url}/ada/models"
    return HubStore(url, WebClient(url, TOKEN))


def memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.parametrize("lie", LIES)
def test_nothing_becomes_visible(
    lived: Repository, other: Repository, hub: HostileHub, lie: str
) -> None:
    store = MemoryStore()
    publish(lived, store, "lenet@1")
    LIES[lie](store)
    hub.objects.update(store.objects)
    before = memory()
    request = pulling.Request(names=["lenet"], author="Bob")
    with pytest.raises(DlvError) as caught:
        pulling.pull(other, remote_of(other, store_of(hub)), request)
    assert caught.value.exit_code in (3, 4, 6, 7, 9)
    assert memory() - before < 300_000, "kilobytes"
    assert versions.all_versions(other.database) == []
    assert list(other.packs.glob("??/*")) == []


def redirect(target: str, status: int = 302) -> Callable[[Any], bool]:
    def answer(handler: Any) -> bool:
        handler.reply(status, b"", {"Location": target})
        return True

    return answer


def replying(status: int, body: bytes = b"", **headers: str) -> Callable[[Any], bool]:
    def answer(handler: Any) -> bool:
        handler.reply(status, body, {key.replace("_", "-"): v for key, v in headers.items()})
        return True

    return answer


def raw(data: bytes) -> Callable[[Any], bool]:
    def answer(handler: Any) -> bool:
        handler.wfile.write(data)
        handler.close_connection = True
        return True

    return answer


def endless(handler: Any) -> bool:
    handler.endless()
    return True


def endless_error(handler: Any) -> bool:
    handler.endless(500)
    return True


HTTP_LIES: dict[str, Callable[[Any], bool]] = {
    "an endless body": endless,
    "an endless error": endless_error,
    "a length of petabytes": replying(200, b"x", Content_Length=str(1 << 50)),
    "a length that is not a number": replying(200, b"x", Content_Length="many"),
    "a negative length": replying(200, b"x", Content_Length="-5"),
    "less than the length": raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort"),
    "not HTTP": raw(b"\0" * 5000),
    "no answer": raw(b""),
    "a status of words": raw(b"HTTP/1.1 OK 200\r\n\r\n"),
    "a header of megabytes": raw(b"HTTP/1.1 200 OK\r\nA: " + b"x" * (2 << 20)),
    "thousands of headers": raw(b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 5000 + b"\r\n"),
    "a chunk of petabytes": raw(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffff\r\nx"
    ),
    "a body that unpacks": replying(200, b"\x1f\x8b" + b"\0" * 50, Content_Encoding="gzip"),
    "a redirect in circles": redirect("/v1/ada/models/refs"),
    "a redirect to a file": redirect("file:///etc/passwd"),
    "a redirect to nonsense": redirect("http://[::bad"),
    "a redirect with a password": redirect("http://ada:secret@127.0.0.1:9/"),
    "a redirect to nowhere": redirect(""),
    "busy for a year": replying(429, b"", Retry_After="31536000"),
    "an error that is not one": replying(500, b"[" * 60_000),
    "an error with control characters": replying(
        403, b'{"error": {"message": "\\u001b[2J\\u202e", "why": 5, "hint": "rm -rf /"}}'
    ),
    "a continuation without end": raw(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
}


def refusal_of(call: Callable[[HubStore], object], store: HubStore) -> Exception:
    """Return the error of a call; a value that a hub may send is none."""
    try:
        call(store)
    except (DlvError, MissingObject) as error:
        return error
    return Exception("nothing")


# The client waits for what these say will come.
PATIENT = ("a length that is not a number", "a negative length")


@pytest.mark.parametrize(
    "lie",
    [pytest.param(lie, marks=[pytest.mark.slow] if lie in PATIENT else []) for lie in HTTP_LIES],
)
def test_broken_http(hub: HostileHub, lie: str) -> None:
    """Every way to read and to write ends with a typed error, soon and with little memory."""
    hub.answer = HTTP_LIES[lie]
    before, begun = memory(), time.monotonic()
    calls: list[Callable[[HubStore], object]] = [
        lambda store: store.get(PACK, most=1 << 20),
        lambda store: store.get_range(PACK, 0, 1000),
        lambda store: store.records("net", 0),
        lambda store: store.names(),
        lambda store: store.add(PACK, b"data"),
        lambda store: store.create("refs/net/00000000000000000001.json", b"{}"),
        lambda store: store.call("POST", "gc", {}),
    ]
    for call in calls:
        error = refusal_of(call, store_of(hub))
        said = f"{error}{getattr(error, 'why', '')}{getattr(error, 'hint', '')}"
        assert TOKEN not in said
        assert "\x1b" not in said
        assert "rm -rf" not in said
    assert memory() - before < 200_000, "kilobytes"
    assert time.monotonic() - begun < 60


@pytest.mark.parametrize("where", ["headers", "body"])
def test_a_slow_server_is_given_up(
    hub: HostileHub, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(web, "SILENCE", 0.3)
    monkeypatch.setattr(web, "TRIES", 1)

    def dripping(handler: Any) -> bool:
        if where == "body":
            handler.endless(piece=b"x", wait=0.05)
            return True
        try:
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nA: ")
            while not hub.ending.is_set():
                handler.wfile.write(b"x")
                time.sleep(0.05)
        except OSError:
            pass
        return True

    hub.answer = dripping
    begun = time.monotonic()
    with pytest.raises(RemoteError, match="cannot reach"):
        store_of(hub).get(PACK, most=1 << 20)
    assert time.monotonic() - begun < 20


def test_the_token_goes_to_its_origin_only(hub: HostileHub) -> None:
    """Not to where a download is redirected to, nor to where the hub says uploads go."""
    with hostile_hub({}) as thief:
        thief.answer = replying(200, b"bytes")
        hub.answer = redirect(f"{thief.url}/signed?key=1", 307)
        assert store_of(hub).get(PACK, most=100) == b"bytes"
        with pytest.raises(RemoteError, match="has moved"):
            store_of(hub).names()
        calls: list[Callable[[HubStore], object]] = [
            lambda store: store.call("POST", "gc", {}),
            lambda store: store.create("refs/net/00000000000000000001.json", b"{}"),
        ]
        for call in calls:
            with pytest.raises(RemoteError, match="has moved"):
                call(store_of(hub))

        def upload(handler: Any) -> bool:
            kind = "packs"
            answer = {"kind": kind, "hash": "a" * 64, "present": False, "offset": 0}
            headers = {"Authorization": "Basic x", "X-Some": "1"}
            direct = {"href": f"{thief.url}/put?sig=2", "method": "PUT", "headers": headers}
            if handler.path.endswith("batch"):
                body = json.dumps({"objects": [{**answer, "upload": direct}]}).encode()
                handler.reply(200, body)
            else:
                handler.reply(201, b"")
            return True

        hub.answer = upload
        assert store_of(hub).add(PACK, b"data") == 4
        assert {method for method, _, _ in thief.seen} == {"GET", "PUT"}
        for _, path, headers in thief.seen:
            assert "Authorization" not in headers
            assert TOKEN not in path + str(headers)
    assert all(headers["Authorization"] == f"Bearer {TOKEN}" for _, _, headers in hub.seen)
    assert not any(TOKEN in path for _, path, _ in hub.seen)


def test_a_signed_address_at_the_hub_itself_gets_no_token(hub: HostileHub) -> None:
    def answer(handler: Any) -> bool:
        if "signed" in handler.path:
            handler.reply(200, b"bytes")
        else:
            handler.reply(307, b"", {"Location": "/signed?key=1"})
        return True

    hub.answer = answer
    assert store_of(hub).get(PACK, most=100) == b"bytes"
    assert ["Authorization" in headers for _, _, headers in hub.seen] == [True, False]


def test_a_moved_hub_is_not_followed(hub: HostileHub) -> None:
    with hostile_hub(hub.objects) as new:
        hub.answer = redirect(f"{new.url}/ada/models/dlv-remote.json", 301)
        with pytest.raises(RemoteError, match="has moved") as caught:
            open_store(f"{hub.url}/ada/models", {"DLV_TOKEN": TOKEN})
        assert f"{new.url}/ada/models" in str(caught.value.why)
        assert "Authorization" not in new.seen[0][2]


def test_busy_servers_are_asked_again(hub: HostileHub) -> None:
    hub.objects[PACK] = b"bytes"
    waits = iter([(503, {}), (429, {"Retry-After": "0"}), (502, {})])

    def busy(handler: Any) -> bool:
        found = next(waits, None)
        if found is not None:
            handler.reply(found[0], b"", found[1])
        return found is not None

    hub.answer = busy
    assert store_of(hub).get(PACK, most=100) == b"bytes"


def test_what_cannot_be_repeated_is_not(hub: HostileHub) -> None:
    hub.answer = replying(503)
    with pytest.raises(RemoteError, match="failed"):
        store_of(hub).create("refs/net/00000000000000000001.json", b"{}")
    with pytest.raises(RemoteError, match="failed"):
        store_of(hub).call("POST", "gc", {})
    assert len(hub.seen) == 2


def test_a_server_without_ranges(hub: HostileHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small object is taken whole, a large one is not."""
    monkeypatch.setattr(server_module, "WHOLE", 1000)
    hub.answer = replying(200, bytes(range(100)))
    assert store_of(hub).get_range(PACK, 10, 5) == bytes(range(10, 15))
    hub.answer = replying(200, bytes(5000))
    with pytest.raises(RemoteError, match="unexpected"):
        store_of(hub).get_range(PACK, 10, 5)


@pytest.mark.parametrize("place", ["bytes 3-7/50", "bytes 0-999/50", "bytes x", ""])
def test_a_range_from_elsewhere(hub: HostileHub, place: str) -> None:
    hub.answer = replying(206, b"12345", Content_Range=place)
    with pytest.raises(RemoteError):
        store_of(hub).get_range(PACK, 10, 50)


def test_addresses_that_are_none() -> None:
    for url in ("http://", "http://ada:secret@host/a/b", "http://host:99999/a/b"):
        with pytest.raises(UsageError) as caught:
            open_store(url, {})
        assert "secret" not in f"{caught.value}{caught.value.hint}"
