"""The audit log: lines that were changed, removed, put in another order or cut off are seen."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from dlv.hub.server import accounts, audit, tables
from dlv.hub.server.access import Caller
from dlv.hub.server.database import HubDatabase

Change = Callable[[sa.Connection], Any]
COLUMNS = audit._HASHED
_log = tables.audit.c


@pytest.fixture
def filled(hub_database: HubDatabase) -> HubDatabase:
    """A database with ten lines about two namespaces."""
    with hub_database.writing() as connection:
        for number in range(10):
            caller = Caller(1, "ada", origin="192.0.2.1")
            target = ("acme", "acme/vision:net@3", "acme:ada", "acmes", "other/vision")[number % 5]
            audit.record(connection, caller, "act", target, None, f"v{number}")
    return hub_database


def faults(database: HubDatabase) -> list[int]:
    with database.reading() as connection:
        return [fault.seq for fault in audit.faults(connection)]


def change(database: HubDatabase, statement: sa.Executable) -> list[int]:
    """Change the log as an intruder would; the lines that are found to be wrong."""
    with database.writing() as connection:
        connection.execute(statement)
    return faults(database)


def test_an_untouched_log_has_no_faults(filled: HubDatabase) -> None:
    assert faults(filled) == []
    with filled.reading() as connection:
        assert audit.newest(connection)[0] == 10


@pytest.mark.parametrize("column", [name for name in COLUMNS if name not in ("seq", "prev")])
def test_a_changed_value_is_found(filled: HubDatabase, column: str) -> None:
    values = {column: "2020-01-01T00:00:00.000000Z" if column == "time" else "other"}
    assert change(filled, sa.update(tables.audit).where(_log.seq == 4).values(values)) == [4]


def test_a_line_with_a_new_hash_is_found(filled: HubDatabase) -> None:
    """An attacker who knows the hash must rewrite all lines that follow."""
    with filled.reading() as connection:
        line = audit.lines(connection, after=3, most=1)[0]
    line["actor"] = "eve"
    line["hash"] = audit._hash(line)
    assert change(filled, sa.update(tables.audit).where(_log.seq == 4).values(line)) == [5]


def test_a_removed_line_is_found(filled: HubDatabase) -> None:
    assert change(filled, sa.delete(tables.audit).where(_log.seq == 4)) == [4, 5]


def test_a_removed_beginning_is_found(filled: HubDatabase) -> None:
    assert change(filled, sa.delete(tables.audit).where(_log.seq < 4)) == [1, 4]


def test_a_removed_line_with_others_moved_up_is_found(filled: HubDatabase) -> None:
    with filled.writing() as connection:
        connection.execute(sa.delete(tables.audit).where(_log.seq == 4))
        for seq in range(5, 11):
            row = sa.update(tables.audit).where(_log.seq == seq)
            connection.execute(row.values(seq=seq - 1))
    assert 4 in faults(filled)


def test_swapped_lines_are_found(filled: HubDatabase) -> None:
    with filled.writing() as connection:
        for old, new in ((4, 99), (5, 4), (99, 5)):
            connection.execute(sa.update(tables.audit).where(_log.seq == old).values(seq=new))
    assert {4, 5} <= set(faults(filled))


def test_an_inserted_line_is_found(filled: HubDatabase) -> None:
    with filled.reading() as connection:
        line = audit.lines(connection, after=9, most=1)[0]
    line |= {"seq": 11}
    assert change(filled, sa.insert(tables.audit).values(line)) == [11, 11]


def test_a_cut_log_differs_from_what_was_noted(filled: HubDatabase) -> None:
    with filled.reading() as connection:
        before = audit.newest(connection)
    assert change(filled, sa.delete(tables.audit).where(_log.seq > 8)) == [], "hence --expect"
    with filled.writing() as connection:
        for _ in range(2):
            audit.record(connection, Caller(), "act", "acme")
        assert audit.newest(connection)[0] == before[0]
        assert audit.newest(connection)[1] != before[1]


def test_lines_about_a_place(filled: HubDatabase) -> None:
    def seqs(place: str, **options: int) -> list[int]:
        with filled.reading() as connection:
            return [line["seq"] for line in audit.lines(connection, place, **options)]

    assert seqs("acme") == [1, 2, 3, 6, 7, 8]
    assert seqs("ACME/vision") == [2, 7]
    assert seqs("acme/visio") == []
    assert seqs("acm_") == seqs("%") == []
    assert seqs("acme", after=3, most=2) == [6, 7]
    with filled.reading() as connection:
        newest = [line["seq"] for line in audit.last_lines(connection, "acme", most=2)]
    assert newest == [7, 8]


def test_lines_of_an_undone_change_are_undone(hub_database: HubDatabase) -> None:
    def fail() -> None:
        with hub_database.writing() as connection:
            accounts.add_user(connection, Caller(), "ada")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with hub_database.reading() as connection:
        assert audit.newest(connection) == (0, audit.START)


def test_writers_at_once_make_one_chain(hub_database: HubDatabase) -> None:
    def write(number: int) -> None:
        for count in range(10):
            with hub_database.writing() as connection:
                audit.record(connection, Caller(), "act", f"{number}/{count}")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(6)))
    assert faults(hub_database) == []
    with hub_database.reading() as connection:
        assert audit.newest(connection)[0] == 60
