"""The databases of a hub: opened, made once, and refused with a reason."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from dlv.errors import NewerFormat, RemoteError, UsageError
from dlv.hub.server import tables
from dlv.hub.server.database import HubDatabase, open_database


def test_a_new_database_has_all_tables(hub_database: HubDatabase) -> None:
    with hub_database.reading() as connection:
        for table in tables.metadata.sorted_tables:
            rows = connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
            assert rows == (table is tables.state)


def test_eight_processes_may_make_the_tables_at_once(hub_database_url: str) -> None:
    def open_and_close(_: int) -> None:
        open_database(hub_database_url).close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(open_and_close, range(8)))


def test_an_error_undoes_the_transaction(hub_database: HubDatabase) -> None:
    row = sa.insert(tables.state).values(key="x", value="y")

    def fail() -> None:
        with hub_database.writing() as connection:
            connection.execute(row)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with hub_database.reading() as connection:
        keys = connection.execute(sa.select(tables.state.c.key)).scalars().all()
    assert keys == ["version"]


def test_a_newer_database_is_refused(hub_database_url: str) -> None:
    database = open_database(hub_database_url)
    with database.writing() as connection:
        connection.execute(sa.update(tables.state).values(value=str(tables.VERSION + 1)))
    database.close()
    with pytest.raises(NewerFormat):
        open_database(hub_database_url)


def test_an_address_that_is_none() -> None:
    with pytest.raises(UsageError):
        open_database("nonsense")
    with pytest.raises(UsageError):
        open_database("mysql://x/y")


def test_a_database_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(RemoteError):
        open_database(f"sqlite:///{tmp_path}/missing/hub.db")
    with pytest.raises(RemoteError) as caught:
        open_database("postgresql://u:hunter2@127.0.0.1:1/x")
    assert "hunter2" not in f"{caught.value.message}{caught.value.why}"
