"""Repositories and refs of a hub: rules of the history, races, aliases, limits, migrations."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import dlv.hub.server.database as database_module
import dlv.hub.server.limiting as limiting
from dlv.canonical import hash_bytes
from dlv.errors import Conflict, NewerFormat
from dlv.hub.records import Ref
from dlv.hub.server import audit, repositories, tables
from dlv.hub.server.database import open_database
from dlv.hub.server.limiting import Buckets, Buffers
from dlv.hub.server.refusal import Refused
from dlv.hub.server.settings import Limits
from tests.hub.server.filling import Version
from tests.hub.server.site import GENEROUS, Reply, Site
from tests.hub.server.test_objects import Bench, _race, _status

FIRST, SECOND = Version.of("net", "first", b"1"), Version.of("net", "second", b"2")


@pytest.fixture
def bench(tmp_path: Path, hub_database_url: str) -> Iterator[Bench]:
    site = Site(tmp_path, hub_database_url)
    yield Bench(site)
    assert site.errors() == []
    site.close()


def put(bench: Bench, ref: Ref, body: bytes | None = None) -> Reply:
    headers = [("If-None-Match", "*")]
    data = ref.encode() if body is None else body
    return bench.send("PUT", f"/refs/{ref.name}/{ref.seq}", body=data, headers=headers)


def test_rules_of_the_history(bench: Bench) -> None:
    """A ref continues the history, or is refused with the status that says why."""
    site, place = bench.site, bench.place
    for version in (FIRST, SECOND):
        site.store(place, "ada", version)
    first = site.ref(place, "net", FIRST)
    change = dataclasses.replace
    assert bench.send("PUT", "/refs/net/1", body=first.encode()).status == 428
    for ref, status in (
        (change(first, seq=2), 409), (change(first, seq=0), 412), (change(first, number=2), 409),
        (change(first, prev="ab" * 32), 409), (change(first, kind="retire"), 409),
        (change(first, kind="tag"), 409), (change(first, kind="reencode"), 409),
        (change(first, manifest="ab" * 32), 409), (change(first, locator="ab" * 32), 409),
        (change(first, locator=hash_bytes(SECOND.locator)), 422),
        (change(first, name="n" * 129), 422), (change(first, number=2**62), 409),
        (change(first, number=2**62, kind="retire"), 409),
    ):  # fmt: skip
        assert put(bench, ref).status == status, ref
    for body, status in (
        (b"", 422), (b"{}", 422), (first.encode() + b" ", 422), (b"[" * 5000, 422),
        (first.encode().replace(b'"publish"', b'"steal"'), 422), (b"\xff\xfe", 422),
        (change(first, seq=7).encode(), 422), (change(first, name="other").encode(), 422),
        (b"x" * (64 << 10), 422), (b"x" * ((64 << 10) + 1), 413),
    ):  # fmt: skip
        assert put(bench, first, body).status == status, body[:80]
    assert put(bench, first).status == 201
    assert put(bench, first).status == 412
    other = change(site.ref(place, "NET", FIRST), name="NET")
    assert put(bench, other).status == 409  # the same name on a disk that folds case
    second = site.ref(place, "net", SECOND)
    assert put(bench, change(second, number=1)).status == 409
    assert put(bench, second).status == 201
    reply = bench.send("GET", "/refs/net/1")
    assert (reply.body, reply.header("etag")) == (first.encode(), f'"{first.hash}"')
    headers = [("If-None-Match", f'"{first.hash}"')]
    assert bench.send("GET", "/refs/net/1", headers=headers).status == 304
    assert bench.send("GET", "/refs").json == {"refs": {"net": 2}}
    assert bench.send("GET", "/refs/net?after=1").json == {"refs": [second.encode().decode()]}
    for after in ("x", "-1", "9" * 17, "1e3", "%00", "²"):
        assert bench.send("GET", f"/refs/net?after={after}").status == 400
    for seq in ("0x1", "-1", "1.0", "9" * 30, "01x", "%F0%9D%9F%8F", str(1 << 53)):
        assert bench.send("GET", f"/refs/net/{seq}").status == 404


def test_push_race_of_sixteen(bench: Bench) -> None:
    """Of many writers that append the same entry one wins, and the history does not fork."""
    site, place, caller = bench.site, bench.place, bench.site.caller("ada")
    versions = [Version.of("net", f"message {number}", b"%d" % number) for number in range(16)]
    for version in versions:
        site.store(place, "ada", version)
    for round_ in range(1, 4):
        refs = [site.ref(place, "net", version) for version in versions]

        def append(number: int, refs: list[Ref] = refs) -> Any:
            ref = refs[number]
            return repositories.publish(site.hub, caller, place, "net", ref.seq, ref.encode())

        statuses = sorted(_status(each) for each in _race(append))
        assert statuses == [200] + [412] * 15
        assert bench.send("GET", "/refs").json == {"refs": {"net": round_}}
    with site.hub.database.reading() as connection:
        assert list(audit.faults(connection)) == []
        assert len(audit.lines(connection, "ada/r")) == 1 + 3


def test_creating_the_same_repository_at_once(bench: Bench) -> None:
    site, caller = bench.site, bench.site.caller("ada")
    assert caller.user_id is not None
    owner = caller.user_id

    def create(_: int) -> Any:
        return repositories.create(site.hub, caller, owner, "ada/new", "private", "")

    assert sorted(_status(each) for each in _race(create)) == [200] + [409] * 15


@pytest.mark.parametrize(
    "name", ["..", ".", "-", "a/b", "A B", "a\n", "é", "a" * 65, "-a", "a-", "con.", "\u202e", "а"]
)
def test_names_of_repositories(bench: Bench, name: str) -> None:
    from urllib.parse import quote

    reply = bench.site.send("PUT", f"/v1/ada/{quote(name, safe='')}", token=bench.token, body={})
    assert reply.status in (404, 405, 422), reply


def test_aliases(bench: Bench) -> None:
    site, place = bench.site, bench.place
    site.publish(place, "ada", "net", FIRST)
    for alias, number, status in (
        ("production", 1, 200), ("Production", 1, 200), ("staging", 2, 404), ("7", 1, 422),
        ("x" * 65, 1, 422), ("production", 2**62, 404), ("production", -1, 404),
    ):  # fmt: skip
        reply = bench.send("PUT", f"/aliases/net/{alias}", body={"number": number})
        assert reply.status == status, (alias, number)
    assert bench.send("PUT", "/aliases/net/x", body={"number": 2**70}).status == 422
    assert bench.send("PUT", f"/aliases/{'n' * 500}/x", body={"number": 1}).status == 404
    (alias,) = bench.send("GET", "/aliases").json["aliases"]
    assert (alias["name"], alias["alias"], alias["number"]) == ("net", "production", 1)
    ref = site.ref(place, "net", FIRST, "retire")
    assert put(bench, ref).status == 201
    assert bench.send("GET", "/aliases").json == {"aliases": []}
    assert bench.send("PUT", "/aliases/net/production", body={"number": 1}).status == 404
    with site.hub.database.reading() as connection:
        actions = [line["action"] for line in audit.lines(connection, "ada/r")]
    assert actions == [
        "repository.create", "ref.publish", "alias.set", "alias.set", "ref.retire",
    ]  # fmt: skip


# Limits


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr("dlv.hub.server.limiting.time.monotonic", lambda: now[0])
    return now


def test_buckets_fill_steadily(clock: list[float]) -> None:
    buckets = Buckets(60)
    assert [buckets.take("a") for _ in range(60)] == [0.0] * 60
    assert buckets.take("a") == pytest.approx(1.0)
    assert buckets.take("b") == 0.0
    clock[0] += 0.5
    assert buckets.take("a") == pytest.approx(0.5)
    clock[0] += 0.5
    assert buckets.take("a") == 0.0
    assert buckets.take("a") > 0
    clock[0] += 10_000
    assert [buckets.take("a") for _ in range(61)][-1] > 0


def test_buckets_are_bounded(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limiting, "KNOWN", 100)
    buckets = Buckets(60)
    for number in range(1000):
        buckets.take(number)
    assert len(buckets._buckets) == 100
    assert clock


def test_rates(tmp_path: Path, clock: list[float]) -> None:
    """Too many requests are answered with 429 and when to try again, for each caller alone."""
    limits = Limits(requests=5, anonymous=3, logins=2)
    site = Site(tmp_path, f"sqlite:///{tmp_path / 'hub.db'}", limits)
    bench = Bench(site)

    def anonymous(client: str = "192.0.2.1") -> Reply:
        # What the client says about its address is the business of the server's proxy settings.
        headers = [("X-Forwarded-For", "203.0.113.9"), ("Forwarded", "for=203.0.113.9")]
        return site.send("GET", "/v1/health", client=client, headers=headers)

    assert [anonymous().status for _ in range(4)] == [200, 200, 200, 429]
    assert int(anonymous().header("retry-after") or 0) in range(1, 22)
    assert anonymous("192.0.2.2").status == 200
    assert [anonymous(f"2001:db8::{i}").status for i in range(1, 5)] == [200, 200, 200, 429]
    assert anonymous("2001:db8:0:1::1").status == 200
    assert [bench.send("GET", "").status for _ in range(6)] == [200] * 5 + [429]
    clock[0] += 60

    def guess(client: str) -> int:
        return site.send("GET", "/v1/me", token="dlv_" + "x" * 43, client=client).status

    assert [guess("198.51.100.1") for _ in range(4)] == [401, 401, 429, 429]
    # A colleague at the same address can go on, at the pace of callers without a token.
    replies = [bench.send("GET", "", client="198.51.100.1").status for _ in range(3)]
    assert replies == [200, 429, 429]
    assert bench.send("GET", "", client="198.51.100.2").status == 200
    site.close()


def test_buffers_are_shared_fairly() -> None:
    buffers = Buffers(100)

    class Someone:
        def __init__(self, number: int) -> None:
            self.user_id = number

    one, two, three = (Someone(number) for number in range(3))
    with buffers.opened(one, 30), buffers.opened(one, 20):  # type: ignore[arg-type]
        with pytest.raises(Refused), buffers.opened(one, 1):  # type: ignore[arg-type]
            pass
        with buffers.opened(two, 10) as buffer:  # type: ignore[arg-type]
            buffer.grow(5)
            buffer.grow(50)
            with pytest.raises(Refused):
                buffer.grow(51)
            with pytest.raises(Refused), buffers.opened(three, 1):  # type: ignore[arg-type]
                pass
    with buffers.opened(three, 50):  # type: ignore[arg-type]
        pass
    assert buffers._bytes == 0
    assert buffers._users == {}


# Migrations


def _add_column(connection: sa.Connection) -> None:
    connection.exec_driver_sql("ALTER TABLE repository ADD COLUMN stars INTEGER")


def _fail(connection: sa.Connection) -> None:
    connection.exec_driver_sql("UPDATE account SET name = 'broken'")
    connection.exec_driver_sql("CREATE TABLE half_done (id INTEGER)")
    raise RuntimeError("the power was cut")


def _version(url: str) -> tuple[str, set[str]]:
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        version = connection.execute(sa.select(tables.state.c.value)).scalar_one()
        names = set(sa.inspect(connection).get_table_names())
        columns = {each["name"] for each in sa.inspect(connection).get_columns("repository")}
    engine.dispose()
    return str(version), names | columns


def test_migrations_run_in_one_transaction(
    hub_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All steps to a new version, or none; a newer database is left alone."""
    open_database(hub_database_url).close()
    monkeypatch.setattr(tables, "VERSION", 3)
    monkeypatch.setattr(database_module, "MIGRATIONS", (_add_column, _fail))
    with pytest.raises(RuntimeError):
        open_database(hub_database_url)
    version, names = _version(hub_database_url)
    assert (version, "stars" in names, "half_done" in names) == ("1", False, False)
    monkeypatch.setattr(database_module, "MIGRATIONS", (_add_column, lambda _: None))
    for _ in range(2):
        open_database(hub_database_url).close()
    version, names = _version(hub_database_url)
    assert (version, "stars" in names) == ("3", True)
    monkeypatch.setattr(tables, "VERSION", 2)
    with pytest.raises(NewerFormat):
        open_database(hub_database_url)
    assert _version(hub_database_url)[0] == "3"


def test_many_open_an_empty_database(hub_database_url: str) -> None:
    """Processes that start at once: one makes the tables."""
    results = _race(lambda _: open_database(hub_database_url), 6)
    assert not [each for each in results if isinstance(each, Exception)]
    for each in results:
        each.close()


def test_one_deletes_at_a_time(hub_database_url: str) -> None:
    one, two = (open_database(hub_database_url) for _ in range(2))
    with one.exclusive(5, "busy") as held:
        held()
        with pytest.raises(Conflict, match="busy"), two.exclusive(5, "busy"):
            pass
        with pytest.raises(Conflict, match="busy"), one.exclusive(5, "busy"):
            pass
    with two.exclusive(5, "busy"):
        pass
    assert GENEROUS.requests
    one.close()
    two.close()
