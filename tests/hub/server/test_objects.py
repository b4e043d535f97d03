"""Objects of a hub: what is asked for, sent in parts, finished, given up, and counted."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from dlv.canonical import hash_bytes
from dlv.hub.server import accounts, collecting, objects, repositories, routes, tables
from dlv.hub.server.hub import Hub
from dlv.hub.stores.interface import Store
from tests.hub.server.filling import Version
from tests.hub.server.site import SHELL, Reply, Site
from tests.hub.stores import MemoryStore

LONG_AGO = "2001-01-01T00:00:00.000000Z"
PACK = bytes(range(40))
DIGEST = hash_bytes(PACK)


class Bench:
    """One user with one repository."""

    def __init__(self, site: Site) -> None:
        self.site, self.hub = site, site.hub
        site.user("ada")
        self.place = site.repository("ada/r", "private", "ada")
        self.token = site.token("ada")

    def send(self, method: str, path: str, **options: Any) -> Reply:
        return self.site.send(method, f"/v1/ada/r{path}", token=self.token, **options)

    def ask(self, *packs: bytes, size: int | None = None) -> list[dict[str, Any]]:
        wanted = [
            {"kind": "packs", "hash": hash_bytes(pack), "size": len(pack) if size is None else size}
            for pack in packs
        ]
        reply = self.send("POST", "/batch", body={"objects": wanted})
        assert reply.status == 200, reply
        found: list[dict[str, Any]] = reply.json["objects"]
        return found

    def part(
        self, data: bytes, start: int, *, complete: bool, cut: bool = False, digest: str = DIGEST
    ) -> Reply:
        headers = [("Upload-Offset", str(start)), ("Upload-Complete", f"?{complete:d}")]
        path = f"/uploads/packs/{digest}"
        return self.send("PATCH", path, body=data, headers=headers, cut=cut)

    def offset(self, digest: str = DIGEST) -> int | None:
        reply = self.send("HEAD", f"/uploads/packs/{digest}")
        return int(reply.header("upload-offset") or 0) if reply.status == 204 else None

    def check(self) -> None:
        """The counters are the sums, and every object is there with its bytes."""
        assert self.site.counters() == self.site.sums()
        store = self.hub.store_of(self.place.uuid)
        table = tables.object_.c
        with self.hub.database.reading() as connection:
            rows = connection.execute(sa.select(tables.object_).where(~table.deleting)).all()
        for row in rows:
            data = store.get(f"{row.kind}/{row.hash[:2]}/{row.hash}.pack", most=1 << 20)
            assert hash_bytes(data) == row.hash
        assert self.site.errors() == []


@pytest.fixture
def bench(tmp_path: Path, hub_database_url: str) -> Iterator[Bench]:
    site = Site(tmp_path, hub_database_url)
    yield Bench(site)
    site.close()


@pytest.fixture
def lite(tmp_path: Path) -> Iterator[Bench]:
    site = Site(tmp_path, f"sqlite:///{tmp_path / 'hub.db'}")
    yield Bench(site)
    site.close()


def _race(work: Callable[[int], Any], count: int = 16) -> list[Any]:
    """Do something in threads at once; return results and errors."""
    results: list[Any] = [None] * count
    start = threading.Barrier(count)

    def run(number: int) -> None:
        start.wait()
        try:
            results[number] = work(number)
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def _status(result: Any) -> int:
    if isinstance(result, Exception):
        return int(getattr(result, "status", 500))
    return 200


# Uploads


def test_an_upload_is_cut_at_every_byte(lite: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has arrived is kept, and the rest follows, in one or two parts."""
    monkeypatch.setattr(routes, "KEPT_PART", 1)
    pack, digest = PACK[:20], hash_bytes(PACK[:20])
    for cut in range(1, len(pack)):
        lite.ask(pack)
        send = partial(lite.part, digest=digest)
        assert send(pack[:cut], 0, complete=True, cut=True).status == 204
        assert lite.offset(digest) == cut
        (state,) = lite.ask(pack)
        assert (state["present"], state["offset"]) == (False, cut)
        middle = (cut + len(pack)) // 2
        if middle > cut:
            assert send(pack[cut:middle], cut, complete=False).status == 204
        assert send(pack[middle:], middle, complete=True).status == 201
        assert lite.ask(pack)[0]["present"]
        lite.check()
        reply = lite.send("POST", "/gc", body={"grace": 0})
        assert len(reply.json["deleted"]) == 1
        assert lite.hub.store_of(lite.place.uuid).keys("uploads/") == []
    assert lite.site.counters()["ada"] == (0, 0)


def test_short_parts_that_are_cut_are_not_kept(lite: Bench) -> None:
    lite.ask(PACK)
    lite.part(PACK[:30], 0, complete=True, cut=True)
    assert lite.offset() == 0


def test_wrong_offsets_say_the_right_one(lite: Bench) -> None:
    lite.ask(PACK)
    assert lite.part(PACK[:10], 0, complete=False).status == 204
    for start in (0, 9, 11, 40, 10**15):
        reply = lite.part(PACK[10:], start, complete=True)
        assert (reply.status, reply.header("upload-offset")) == (409, "10")
    for header in ("-1", "1.0", "", "0x1", "9" * 17, "١"):
        headers = [("Upload-Offset", header.encode().decode("latin-1"))]
        path = f"/uploads/packs/{DIGEST}"
        assert lite.send("PATCH", path, body=b"x", headers=headers).status == 400
    assert lite.part(PACK[10:] + b"x", 10, complete=True).status == 413
    assert lite.part(PACK[10:20], 10, complete=True).status == 422  # there is more to come
    assert lite.part(PACK[10:], 10, complete=True).status == 201
    for start in (0, 40):
        assert lite.part(b"", start, complete=True).status == 404
    lite.check()


def test_wrong_bytes_free_what_they_reserved(lite: Bench) -> None:
    for whole in (True, False):
        lite.ask(PACK)
        assert lite.site.counters()["ada"] == (0, 40)
        wrong = bytes(40)
        if not whole:
            assert lite.part(wrong[:7], 0, complete=False).status == 204
        assert lite.part(wrong[0 if whole else 7 :], 0 if whole else 7, complete=True).status == 422
        assert lite.offset() is None
        assert lite.site.counters()["ada"] == (0, 0)
        assert lite.hub.store_of(lite.place.uuid).keys("uploads/") == []
        assert lite.hub.store_of(lite.place.uuid).keys("packs/") == []


def test_another_size_begins_again(lite: Bench) -> None:
    lite.ask(PACK, size=100)
    assert lite.part(PACK[:10], 0, complete=False).status == 204
    (state,) = lite.ask(PACK)
    assert state["offset"] == 0
    assert lite.site.counters()["ada"] == (0, 40)
    assert lite.hub.store_of(lite.place.uuid).keys("uploads/") == []


def test_parts_that_do_not_fit_begin_again(lite: Bench) -> None:
    """A part that another request wrote over at the same byte, and lost, is noticed."""
    for length in (5, 20, 0):
        lite.ask(PACK)
        assert lite.part(PACK[:10], 0, complete=False).status == 204
        store = lite.hub.store_of(lite.place.uuid)
        (key,) = store.keys("uploads/")
        store.put(key, PACK[:length])
        reply = lite.part(PACK[10:], 10, complete=True)
        assert reply.status in (409, 422)
        assert lite.offset() is None
        lite.ask(PACK)
        assert lite.part(PACK, 0, complete=True).status == 201
        lite.send("POST", "/gc", body={"grace": 0})
        lite.check()


def test_an_empty_object(lite: Bench) -> None:
    digest = hash_bytes(b"")
    lite.ask(b"")
    assert lite.part(b"", 0, complete=True, digest=digest).status == 201
    reply = lite.send("GET", f"/objects/packs/{digest}")
    assert (reply.status, reply.body) == (200, b"")
    headers = [("Range", "bytes=0-0")]
    assert lite.send("GET", f"/objects/packs/{digest}", headers=headers).status == 416


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("bytes=0-9", (206, 0, 10)), ("bytes=30-", (206, 30, 40)), ("bytes=-5", (206, 35, 40)),
        ("bytes=0-999", (200, 0, 40)), ("bytes=-999", (200, 0, 40)), ("bytes=39-39", (206, 39, 40)),
        ("bytes=40-", (416, 0, 0)), ("bytes=-0", (416, 0, 0)), ("bytes=9-8", (416, 0, 0)),
        ("bytes=0-1,3-4", (200, 0, 40)), ("bytes=-", (200, 0, 40)), ("lines=1-2", (200, 0, 40)),
        (f"bytes={'9' * 19}-", (200, 0, 40)), ("bytes=0-0,0-0,0-0", (200, 0, 40)),
        ("bytes=0-" + ",0-" * 9999, (200, 0, 40)),
    ],
)  # fmt: skip
def test_ranges(lite: Bench, header: str, expected: tuple[int, int, int]) -> None:
    lite.ask(PACK)
    lite.part(PACK, 0, complete=True)
    status, start, end = expected
    reply = lite.send("GET", f"/objects/packs/{DIGEST}", headers=[("Range", header)])
    assert reply.status == status
    if status != 416:
        assert reply.body == PACK[start:end]
        assert reply.header("content-length") == str(end - start)


# Races


def test_the_same_batch_from_many(bench: Bench) -> None:
    """What is new is reserved once."""
    caller = bench.site.caller("ada")
    wanted = [objects.Wanted("packs", hash_bytes(b"%d" % i), 10) for i in range(50)]

    def ask(number: int) -> Any:
        shuffled = random.Random(number).sample(wanted, len(wanted))
        return objects.batch(bench.hub, caller, bench.place, shuffled)

    results = _race(ask)
    assert [_status(each) for each in results] == [200] * 16, results
    assert bench.site.counters()["ada"] == (0, 500)
    bench.check()


def test_many_finish_the_same_upload(bench: Bench) -> None:
    caller = bench.site.caller("ada")
    wanted = objects.Wanted("packs", DIGEST, len(PACK))
    ((_, upload),) = objects.batch(bench.hub, caller, bench.place, [wanted])
    assert upload is not None

    def finish(_: int) -> Any:
        return objects.receive(bench.hub, bench.place, upload, PACK, start=0, complete=True)

    results = _race(finish)
    assert [_status(each) for each in results] == [200] * 16, results
    assert bench.site.counters()["ada"] == (40, 0)
    bench.check()


def test_many_send_and_give_up(bench: Bench) -> None:
    """Whatever the order: nothing is counted twice, nothing stays reserved."""
    caller = bench.site.caller("ada")
    wanted = objects.Wanted("packs", DIGEST, len(PACK))
    for _ in range(5):
        ((_, upload),) = objects.batch(bench.hub, caller, bench.place, [wanted])
        assert upload is not None

        def work(number: int, upload: objects.Upload = upload) -> Any:
            if number % 2:
                return objects.abort(bench.hub, bench.place, upload)
            return objects.receive(bench.hub, bench.place, upload, PACK, start=0, complete=True)

        statuses = [_status(each) for each in _race(work, 8)]
        assert set(statuses) <= {200, 409}, statuses
        bench.check()
        assert bench.site.counters()["ada"][1] == 0
        collecting.collect(bench.hub, caller, bench.place, timedelta(), dry_run=False)
    assert bench.site.counters()["ada"] == (0, 0)


def test_an_upload_beside_its_object_counts_once(bench: Bench) -> None:
    """If an object has an upload after all, its end frees what it reserved."""
    caller = bench.site.caller("ada")
    wanted = objects.Wanted("packs", DIGEST, len(PACK))
    ((_, upload),) = objects.batch(bench.hub, caller, bench.place, [wanted])
    assert upload is not None
    objects.receive(bench.hub, bench.place, upload, PACK, start=0, complete=True)
    with bench.hub.database.writing() as connection:
        objects._begin(bench.hub, connection, caller, bench.place, [upload])
    objects.receive(bench.hub, bench.place, upload, PACK, start=0, complete=True)
    assert bench.site.counters()["ada"] == (40, 0)
    bench.check()


def test_the_same_lease_from_many(bench: Bench) -> None:
    caller = bench.site.caller("ada")
    results = _race(lambda _: collecting.lease(bench.hub, caller, bench.place, "leaseleaselease"))
    assert [_status(each) for each in results] == [200] * 16, results


def test_a_quota_is_not_exceeded_by_many(bench: Bench) -> None:
    caller = bench.site.caller("ada")
    with bench.hub.database.writing() as connection:
        accounts.set_quota(connection, SHELL, "ada", 55)

    def ask(number: int) -> Any:
        wanted = objects.Wanted("packs", hash_bytes(b"%d" % number), 10)
        return objects.batch(bench.hub, caller, bench.place, [wanted])

    statuses = sorted(_status(each) for each in _race(ask))
    assert statuses == [200] * 5 + [507] * 11
    assert bench.site.counters()["ada"] == (0, 50)


def test_deleting_a_repository_during_uploads(bench: Bench) -> None:
    """What the repository used and reserved is free afterwards, once."""
    caller = bench.site.caller("ada")
    packs = [b"pack %d" % number for number in range(12)]
    wanted = [objects.Wanted("packs", hash_bytes(pack), len(pack)) for pack in packs]
    sent = objects.batch(bench.hub, caller, bench.place, wanted)

    def work(number: int) -> Any:
        if number == 6:
            return repositories.delete(bench.hub, caller, bench.place)
        upload = sent[number][1]
        assert upload is not None
        if number % 2:
            return objects.abort(bench.hub, bench.place, upload)
        data = packs[number]
        return objects.receive(bench.hub, bench.place, upload, data, start=0, complete=True)

    statuses = {_status(each) for each in _race(work, 12)}
    assert statuses <= {200, 404, 409}, statuses
    assert bench.site.counters()["ada"] == (0, 0)


# Random sequences against a model


class Model:
    """What a repository should have: objects, and uploads with what has arrived of them."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.bench, self.random = bench, random.Random(seed)
        self.packs = {hash_bytes(data): data for data in (self._pack(i) for i in range(4))}
        self.there: set[str] = set()
        self.begun: dict[str, tuple[int, int]] = {}  # offset, declared size

    def _pack(self, number: int) -> bytes:
        return bytes([number]) * self.random.randint(1, 30)

    def step(self) -> None:
        digest = self.random.choice(list(self.packs))
        kinds = ["ask", "ask", "part", "part", "part", "abort", "expire", "gc", "wrong", "resize"]
        getattr(self, self.random.choice(kinds))(digest)
        self.check()

    def ask(self, digest: str) -> None:
        data = self.packs[digest]
        (state,) = self.bench.ask(data)
        assert state["present"] == (digest in self.there)
        if digest not in self.there:
            offset, size = self.begun.get(digest, (0, len(data)))
            if size != len(data):
                offset = 0
            self.begun[digest] = (offset, len(data))
            assert state["offset"] == offset

    def resize(self, digest: str) -> None:
        size = self.random.randint(1, 50)
        self.bench.ask(self.packs[digest], size=size)
        if digest not in self.there:
            offset, before = self.begun.get(digest, (0, size))
            self.begun[digest] = (offset if before == size else 0, size)

    def part(self, digest: str) -> None:
        data = self.packs[digest]
        offset, size = self.begun.get(digest, (0, 0))
        end = self.random.randint(offset, max(offset, min(size, len(data))))
        complete = self.random.random() < 0.5
        reply = self.bench.part(data[offset:end], offset, complete=complete, digest=digest)
        if digest not in self.begun:
            assert reply.status == 404
        elif complete and end != size:
            assert reply.status == 422
        elif complete and size != len(data):
            assert reply.status == 422  # what was declared cannot have this hash
            del self.begun[digest]
        elif complete:
            assert reply.status == 201
            del self.begun[digest]
            self.there.add(digest)
        else:
            assert reply.status == 204
            self.begun[digest] = (end, size)

    def wrong(self, digest: str) -> None:
        offset, size = self.begun.get(digest, (0, 0))
        if digest in self.begun and (offset == 0 and size > 0):
            reply = self.bench.part(b"\xff" * size, 0, complete=True, digest=digest)
            assert reply.status == 422
            del self.begun[digest]

    def abort(self, digest: str) -> None:
        reply = self.bench.send("DELETE", f"/uploads/packs/{digest}")
        assert reply.status == (204 if self.begun.pop(digest, None) else 404)

    def expire(self, digest: str) -> None:
        upload = tables.upload
        with self.bench.hub.database.writing() as connection:
            connection.execute(
                sa.update(upload).where(upload.c.hash == digest).values(expires=LONG_AGO)
            )
        self.gc(digest)

    def gc(self, _: str) -> None:
        with self.bench.hub.database.reading() as connection:
            expired = connection.execute(
                sa.select(tables.upload.c.hash).where(tables.upload.c.expires == LONG_AGO)
            ).scalars()
            for each in expired:
                self.begun.pop(each, None)
        reply = self.bench.send("POST", "/gc", body={"grace": 0})
        assert len(reply.json["deleted"]) == len(self.there)
        self.there.clear()

    def check(self) -> None:
        used = sum(len(self.packs[digest]) for digest in self.there)
        reserved = sum(size for _, size in self.begun.values())
        assert self.bench.site.counters()["ada"] == (used, reserved)
        self.bench.check()
        for digest in self.packs:
            offset = self.begun[digest][0] if digest in self.begun else None
            assert self.bench.offset(digest) == offset


@pytest.mark.parametrize("seed", range(4))
def test_random_sequences(bench: Bench, seed: int) -> None:
    """The counters, the offsets and what is there are those of a model after every step."""
    model = Model(bench, seed)
    for _ in range(40):
        model.step()


# Faults of the store


class Broken:
    """Stores in memory of which one request fails."""

    def __init__(self, hub: Hub) -> None:
        self.stores: dict[str, MemoryStore] = {}
        hub.store_of = self.open  # type: ignore[method-assign]

    def open(self, uuid: str) -> Store:
        return self.stores.setdefault(uuid, MemoryStore())


def test_a_store_that_fails_at_any_request(tmp_path: Path) -> None:
    """After every fault the counters are right, and the same requests again succeed."""
    site = Site(tmp_path, f"sqlite:///{tmp_path / 'hub.db'}")
    broken = Broken(site.hub)
    bench = Bench(site)
    store = broken.stores[bench.place.uuid]
    failed = 0

    def everything() -> list[int]:
        bench.ask(PACK)
        statuses = [bench.part(PACK[:10], 0, complete=False).status]
        statuses.append(bench.part(PACK[10:], 10, complete=True).status)
        bench.ask(PACK[:20])
        short = hash_bytes(PACK[:20])
        statuses.append(bench.part(PACK[:20], 0, complete=True, digest=short).status)
        statuses.append(bench.send("POST", "/gc", body={"grace": 0}).status)
        return statuses

    store.calls = 0
    assert everything() == [204, 201, 201, 200]
    for number in range(1, store.calls + 1):
        store.calls, store.fail_at = 0, number
        statuses = everything()
        store.fail_at = None
        assert site.counters() == site.sums()
        failed += 502 in statuses
        for status in statuses:
            assert status in (200, 201, 204, 404, 409, 502)
        bench.send("DELETE", f"/uploads/packs/{DIGEST}")
        assert bench.send("POST", "/gc", body={"grace": 0}).status == 200
        assert everything() == [204, 201, 201, 200]
        assert site.counters()["ada"] == (0, 0)
    assert failed > 10
    site.close()


def test_the_store_of_a_hub_answers_wrong_bytes(lite: Bench) -> None:
    """A store that lies about what it has is not believed when an upload ends."""

    class Liar(MemoryStore):
        def _size(self, key: str) -> int | None:
            return 3 if key.startswith("packs/") else super()._size(key)

    liar = Liar()
    lite.hub.store_of = lambda uuid: liar  # type: ignore  # noqa: ARG005
    lite.ask(PACK)
    assert lite.part(PACK, 0, complete=True).status == 502
    assert not lite.ask(PACK)[0]["present"]


def test_versions_need_their_objects(lite: Bench) -> None:
    """What a published version needs is not deleted; what a retired one needed, is."""
    version = Version.of("net", "m", PACK)
    lite.site.publish(lite.place, "ada", "net", version)
    assert lite.send("POST", "/gc", body={"grace": 0}).json["deleted"] == []
    ref = lite.site.ref(lite.place, "net", version, "retire")
    headers = [("If-None-Match", "*")]
    reply = lite.send("PUT", f"/refs/net/{ref.seq}", body=ref.encode(), headers=headers)
    assert reply.status == 201
    assert lite.send("POST", "/gc", body={"grace": 3600}).json["deleted"] == []
    assert len(lite.send("POST", "/gc", body={"grace": 0}).json["deleted"]) == 3
    assert lite.site.counters()["ada"] == (0, 0)
