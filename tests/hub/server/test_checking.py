"""What a check of a hub sees, and what it repairs."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from dlv.canonical import hash_bytes
from dlv.hub.records import REMOTE_FILE, object_key
from dlv.hub.server import objects, tables
from dlv.hub.server.hub import Hub
from dlv.hub.server.settings import Settings
from dlv.hub.server.upkeep.checking import Report, check
from tests.hub.server.filling import Publisher, Publishers, Version

NO_GRACE = datetime.timedelta(seconds=-60)


@pytest.fixture
def hub(hub_database_url: str, tmp_path: Path) -> Iterator[Hub]:
    opened = Hub(
        Settings(
            database=hub_database_url,
            store=str(tmp_path / "objects"),
            data=tmp_path / "data",
            url="http://localhost",
        )
    )
    yield opened
    opened.close()


@pytest.fixture
def publisher(hub: Hub) -> Publisher:
    publisher = Publisher(hub)
    for number in range(3):
        publisher.publish("net", b"pack %d" % number)
    publisher.publish("other")
    return publisher


def kinds(report: Report) -> set[str]:
    return {fault.kind for fault in report.faults}


def change(hub: Hub, statement: sa.Executable) -> None:
    with hub.database.writing() as connection:
        connection.execute(statement)


def test_a_hub_in_order(hub: Hub, publisher: Publisher) -> None:
    publisher.retire(publisher.chain("net")[0])
    report = check(hub, full=True, grace=NO_GRACE)
    assert report.faults == []
    assert report.leftovers == []
    assert report.ok
    assert report.checked["versions"] == 3
    assert report.checked["refs"] == 5
    assert report.checked["objects"] == 12
    assert report.bytes > 0


def test_an_empty_hub(hub: Hub) -> None:
    report = check(hub, full=True)
    assert report.ok
    assert report.leftovers == []


def _first(column: str, table: sa.Table) -> sa.ScalarSelect[object]:
    return sa.select(sa.func.min(table.c[column])).scalar_subquery()


ref, need, account, audit = tables.ref, tables.need, tables.account, tables.audit
HARM: dict[str, tuple[sa.Executable, str, bool]] = {
    "a ref is missing": (
        sa.delete(ref).where(ref.c.name == "net", ref.c.seq == 2), "history", False
    ),
    "a column differs": (
        sa.update(ref).where(ref.c.name == "net", ref.c.seq == 2).values(number=7), "history", False
    ),
    "a record that is not valid": (
        sa.update(ref).where(ref.c.name == "other").values(record=b"{}"), "history", False
    ),
    "a need is missing": (sa.delete(need).where(need.c.kind == "packs"), "need", True),
    "a need too many": (
        sa.update(need).where(need.c.kind == "packs").values(hash="ab" * 32), "need", True
    ),
    "a counter is wrong": (sa.update(account).values(used=account.c.used + 1), "quota", True),
    "reserved for nothing": (sa.update(account).values(reserved=7), "quota", True),
    "an audit line is missing": (sa.delete(audit).where(audit.c.seq == 2), "audit", False),
    "an audit line was changed": (
        sa.update(audit).where(audit.c.seq == 2).values(actor="eve"), "audit", False
    ),
    "an object has no row": (
        sa.delete(tables.object_).where(
            tables.object_.c.kind == "packs", tables.object_.c.hash == hash_bytes(b"pack 1")
        ),
        "object", False,
    ),
    "another record": (sa.update(tables.repository).values(record="{}"), "record", False),
}  # fmt: skip


@pytest.mark.parametrize("harm", HARM)
def test_rows_that_were_changed(hub: Hub, publisher: Publisher, harm: str) -> None:
    statement, kind, repairable = HARM[harm]
    change(hub, statement)
    report = check(hub)
    assert kind in kinds(report)
    assert not report.ok
    repaired = check(hub, repair=True, grace=NO_GRACE)
    assert kind in kinds(repaired)
    assert repaired.ok == repairable
    assert check(hub).ok == repairable


def _pack(publisher: Publisher) -> str:
    return object_key("packs", hash_bytes(b"pack 1"))


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _flip(path: Path) -> None:
    path.write_bytes(b"PACK 1")


@pytest.mark.parametrize(("harm", "full"), [(Path.unlink, False), (_cut, False), (_flip, True)])
def test_bytes_that_were_changed(
    hub: Hub, publisher: Publisher, harm: Callable[[Path], None], full: bool
) -> None:
    path = Path(hub.settings.store) / publisher.place.uuid / _pack(publisher)
    harm(path)
    assert check(hub).ok == full
    report = check(hub, full=True)
    (fault,) = report.faults
    assert (fault.kind, fault.object, fault.place) == ("object", _pack(publisher), "acme/vision")


@pytest.mark.parametrize("kind", ["manifests", "locators"])
def test_a_record_that_was_changed(hub: Hub, publisher: Publisher, kind: str) -> None:
    last = publisher.chain("net")[-1]
    digest = last.manifest if kind == "manifests" else last.locator
    path = Path(hub.settings.store) / publisher.place.uuid / object_key(kind, digest)
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    report = check(hub)
    assert [fault.object for fault in report.faults] == [object_key(kind, digest)]


def test_the_file_of_a_remote_is_written_again(hub: Hub, publisher: Publisher) -> None:
    path = Path(hub.settings.store) / publisher.place.uuid / REMOTE_FILE
    path.unlink()
    assert kinds(check(hub)) == {"record"}
    assert check(hub, repair=True).ok
    assert path.read_text() == publisher.place.record


def test_bytes_without_a_row_are_left_alone_while_they_are_young(
    hub: Hub, publisher: Publisher
) -> None:
    store = hub.store_of(publisher.place.uuid)
    keys = [object_key("packs", "ab" * 32), "uploads/0123/00000", "other"]
    stray = f"{'cd' * 32}/packs/cd/{'cd' * 32}.pack"
    for key in keys:
        store.put(key, b"bytes")
    hub.store_of("").put(stray, b"bytes")
    assert check(hub).leftovers == []
    report = check(hub, grace=NO_GRACE)
    assert {each.object for each in report.leftovers} == {*keys, stray}
    assert report.ok
    report = check(hub, grace=NO_GRACE, repair=True)
    assert all(each.deleted for each in report.leftovers)
    assert len(report.leftovers) == 4
    assert check(hub, grace=NO_GRACE, full=True).leftovers == []
    with hub.database.reading() as connection:
        assert not connection.execute(sa.select(tables.object_.c.deleting)).scalars().first()


def test_an_upload_that_runs_is_left_alone(hub: Hub, publisher: Publisher) -> None:
    version = Version.of("net", "slow", os.urandom(10))
    wanted = [objects.Wanted(*name, len(data)) for name, data in version.objects.items()]
    sent = objects.batch(hub, publisher.caller, publisher.place, wanted)
    for each, upload in sent:
        assert upload is not None
        data = version.objects[each.kind, each.hash]
        objects.receive(hub, publisher.place, upload, data[:5], start=0, complete=False)
    report = check(hub, grace=NO_GRACE, repair=True)
    assert report.faults == []
    assert report.leftovers == []
    change(hub, sa.update(tables.upload).values(expires="2020-01-01T00:00:00.000000Z"))
    assert {each.kind for each in check(hub).leftovers} == {"upload"}
    check(hub, grace=NO_GRACE, repair=True)
    report = check(hub, grace=NO_GRACE)
    assert report.leftovers == []
    assert report.ok


def test_a_deletion_that_was_cut_off_is_finished(hub: Hub, publisher: Publisher) -> None:
    publisher.retire(publisher.chain("other")[0])
    table = tables.object_
    unneeded = ~sa.exists().where(
        need.c.repository_id == table.c.repository_id, need.c.hash == table.c.hash
    )
    change(hub, sa.update(table).where(unneeded).values(deleting=True))
    report = check(hub, grace=NO_GRACE)
    assert {each.kind for each in report.leftovers} == {"deletion"}
    assert len(report.leftovers) == 3
    check(hub, grace=NO_GRACE, repair=True)
    report = check(hub, grace=NO_GRACE, full=True)
    assert report.leftovers == []
    assert report.ok
    assert report.checked["objects"] == 9


def test_a_hub_that_is_in_use_has_no_faults(hub: Hub) -> None:
    with Publishers(hub, 4) as running:
        for turn in range(8):
            report = check(hub, full=turn % 2 == 0, repair=turn > 4)
            assert report.faults == []
            assert report.leftovers == []
        retired = running.acknowledged[0][1].manifest
    assert running.errors == []
    assert retired
    assert check(hub, full=True, grace=NO_GRACE).ok
