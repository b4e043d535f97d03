"""Backups of a hub that is in use, and what is restored from them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

import dlv.hub.server.upkeep.backup as backup_module
from dlv.canonical import hash_bytes
from dlv.errors import Conflict, Damaged, NewerFormat, NotFound, UsageError
from dlv.hub.records import object_key
from dlv.hub.server import tables
from dlv.hub.server.hub import Hub
from dlv.hub.server.settings import Settings
from dlv.hub.server.upkeep import rows
from dlv.hub.server.upkeep.backup import Outcome, back_up, backups, restore
from dlv.hub.server.upkeep.checking import check
from dlv.hub.stores.interface import Store
from tests.hub.server.filling import Publisher, Publishers


def open_hub(url: str, folder: Path) -> Hub:
    return Hub(
        Settings(database=url, store=str(folder / "objects"), data=folder, url="http://localhost")
    )


@pytest.fixture
def hub(hub_database_url: str, tmp_path: Path) -> Iterator[Hub]:
    hub = open_hub(hub_database_url, tmp_path / "hub")
    yield hub
    hub.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Hub]:
    """A hub to restore into; each kind of database into each."""
    folder = tmp_path / "restored"
    if request.param == "sqlite":
        folder.mkdir()
        hub = open_hub(f"sqlite:///{folder / 'hub.db'}", folder)
        yield hub
        hub.close()
        return
    with request.getfixturevalue("postgres").database() as url:
        hub = open_hub(url, folder)
        yield hub
        hub.close()


@pytest.fixture
def publisher(hub: Hub) -> Publisher:
    publisher = Publisher(hub)
    for number in range(3):
        publisher.publish("net", b"pack %d" % number)
    return publisher


def all_rows(hub: Hub, table: sa.Table) -> list[tuple[object, ...]]:
    query = sa.select(table).order_by(*table.primary_key.columns)
    with hub.database.reading() as connection:
        return [tuple(row) for row in connection.execute(query)]


def test_what_is_restored_is_what_was_there(
    hub: Hub, publisher: Publisher, empty: Hub, tmp_path: Path
) -> None:
    made = back_up(hub, tmp_path / "backup")
    assert made.copied == made.backup.objects == 9
    assert made.damaged == []
    done = restore(empty, tmp_path / "backup")
    assert done.copied == 9
    assert done.damaged == []
    for table in (tables.account, tables.repository, tables.ref, tables.need, tables.object_):
        assert all_rows(empty, table) == all_rows(hub, table)
    assert all_rows(empty, tables.audit)[:-1] == all_rows(hub, tables.audit)
    report = check(empty, full=True)
    assert report.faults == []
    assert report.leftovers == []
    again = Publisher(empty)
    assert again.publish("net").seq == 4  # a new row has a key of its own
    Publisher(empty, "other", "repository").publish("net")
    assert check(empty, full=True).ok


def test_everything_acknowledged_before_is_in_a_backup_of_a_hub_in_use(
    hub: Hub, empty: Hub, tmp_path: Path
) -> None:
    with Publishers(hub, 8) as running:
        while len(running.acknowledged) < 20:
            time.sleep(0.01)
        before = list(running.acknowledged)
        back_up(hub, tmp_path / "backup")
        while len(running.acknowledged) < len(before) + 20:
            time.sleep(0.01)
    assert running.errors == []
    restore(empty, tmp_path / "backup")
    report = check(empty, full=True)
    assert report.faults == []
    assert report.leftovers == []
    hashes = {row[0] for row in all_rows_of(empty, tables.ref.c.hash)}
    assert {ref.hash for _, ref in before} <= hashes
    assert len(hashes) < len(running.acknowledged)


def all_rows_of(hub: Hub, column: sa.Column[str]) -> list[tuple[object, ...]]:
    with hub.database.reading() as connection:
        return [tuple(row) for row in connection.execute(sa.select(column))]


def test_a_second_backup_copies_what_is_new(
    hub: Hub, publisher: Publisher, empty: Hub, tmp_path: Path
) -> None:
    folder = tmp_path / "backup"
    first = back_up(hub, folder)
    publisher.publish("net", b"pack 3")
    second = back_up(hub, folder)
    assert second.copied == 3
    assert [each.time for each in backups(folder)] == [first.backup.time, second.backup.time]
    restore(empty, folder, at=first.backup.name)
    assert len(all_rows(empty, tables.ref)) == 3


def test_old_backups_are_deleted_with_what_only_they_have(
    hub: Hub, publisher: Publisher, empty: Hub, tmp_path: Path
) -> None:
    folder = tmp_path / "backup"
    back_up(hub, folder)
    publisher.retire(publisher.chain("net")[0])
    _delete_unneeded(hub, publisher)
    made = back_up(hub, folder, keep=1)
    assert made.deleted == 3
    assert len(backups(folder)) == 1
    assert len(list((folder / "rows").iterdir())) == 1
    restore(empty, folder)
    assert check(empty, full=True).ok
    with pytest.raises(UsageError):
        back_up(hub, folder, keep=0)


def _delete_unneeded(hub: Hub, publisher: Publisher) -> None:
    import datetime

    from dlv.hub.server.collecting import collect

    none = datetime.timedelta(seconds=-60)
    done = collect(hub, publisher.caller, publisher.place, none, dry_run=False)
    assert len(done.deleted) == 3


def test_objects_that_are_deleted_meanwhile_are_not_in_the_backup(
    hub: Hub, publisher: Publisher, empty: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy of the database names them; it is made again."""
    copy_rows = backup_module._copy_rows
    turns: list[str] = []

    def copied(hub: Hub, folder: Path, now: str) -> object:
        result = copy_rows(hub, folder, now)
        if not turns:
            publisher.retire(publisher.chain("net")[0])
            _delete_unneeded(hub, publisher)
        turns.append(now)
        return result

    monkeypatch.setattr(backup_module, "_copy_rows", copied)
    made = back_up(hub, tmp_path / "backup")
    assert len(turns) == 2
    assert made.damaged == []
    assert made.backup.objects == 6
    restore(empty, tmp_path / "backup")
    assert check(empty, full=True).ok


def test_what_the_hub_lacks_is_reported_and_the_rest_is_saved(
    hub: Hub, publisher: Publisher, empty: Hub, tmp_path: Path
) -> None:
    key = object_key("packs", hash_bytes(b"pack 1"))
    path = Path(hub.settings.store) / publisher.place.uuid / key
    path.write_bytes(b"PACK 1")
    made = back_up(hub, tmp_path / "backup")
    assert made.damaged == [f"{publisher.place.uuid}/{key}"]
    done = restore(empty, tmp_path / "backup")
    assert done.damaged == made.damaged
    assert [fault.object for fault in check(empty).faults] == [key]


class _Broken(Exception):
    pass


@pytest.mark.parametrize("calls", [1, 4, 8])
def test_an_interrupted_backup_or_restore_continues(
    hub: Hub,
    publisher: Publisher,
    empty: Hub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    calls: int,
) -> None:
    folder = tmp_path / "backup"
    lock = threading.Lock()

    def failing(function: Callable[..., object]) -> Callable[..., object]:
        count = 0

        def called(*args: object, **options: object) -> object:
            nonlocal count
            with lock:
                count += 1
                if count > calls:
                    raise _Broken
            return function(*args, **options)

        return called

    with monkeypatch.context() as patched:
        patched.setattr(backup_module, "_download", failing(backup_module._download))
        with pytest.raises(_Broken):
            back_up(hub, folder)
    assert backups(folder) == []
    made = back_up(hub, folder)
    assert made.copied == 9 - calls
    with monkeypatch.context() as patched:
        patched.setattr(Store, "put", failing(Store.put))
        with pytest.raises(_Broken):
            restore(empty, folder)
    assert all_rows(empty, tables.ref) == []
    restore(empty, folder)
    assert check(empty, full=True).ok


def test_a_hub_that_is_not_empty_is_left_alone(
    hub: Hub, publisher: Publisher, tmp_path: Path
) -> None:
    back_up(hub, tmp_path / "backup")
    with pytest.raises(Conflict, match="not empty"):
        restore(hub, tmp_path / "backup")


def test_the_database_alone(hub: Hub, publisher: Publisher, empty: Hub, tmp_path: Path) -> None:
    folder = tmp_path / "backup"
    made = back_up(hub, folder, database_only=True)
    assert made.copied == 0
    with pytest.raises(UsageError, match="no objects"):
        restore(empty, folder)
    os.rename(hub.settings.store, empty.settings.store)
    restore(empty, folder, database_only=True)
    assert check(empty, full=True).ok


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def test_a_backup_that_was_changed_is_refused(
    hub: Hub, publisher: Publisher, empty: Hub, tmp_path: Path
) -> None:
    folder = tmp_path / "backup"
    with pytest.raises(NotFound):
        restore(empty, folder)
    made: Outcome = back_up(hub, folder)
    path = folder / "rows" / f"{made.backup.rows}.gz"
    _cut(path)
    with pytest.raises(Damaged, match="is corrupt"):
        restore(empty, folder)
    with pytest.raises(Damaged):
        list(rows.read_rows(path))


def test_rows_of_another_version_are_refused(
    hub: Hub, empty: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(tables, "VERSION", tables.VERSION + 1)
        back_up(hub, tmp_path / "backup")
    with pytest.raises(NewerFormat, match="restore with the dlv"):
        restore(empty, tmp_path / "backup")


def test_one_backup_at_a_time(hub: Hub, tmp_path: Path) -> None:
    folder = tmp_path / "backup"
    backup_module._create(folder)
    with backup_module._alone(folder), pytest.raises(Conflict, match="is running"):
        back_up(hub, folder)
    assert os.stat(folder).st_mode & 0o077 == 0
