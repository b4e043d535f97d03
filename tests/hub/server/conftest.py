"""Databases for the tests of the hub's server: SQLite, and PostgreSQL where it is installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dlv.hub.server.database import HubDatabase, open_database
from tests.hub.server.postgres import PROGRAMS, Postgres, postgres_server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server, started once; `with postgres.database() as url` has an empty one."""
    if PROGRAMS is None:
        pytest.skip("PostgreSQL is not installed")
    with postgres_server() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def hub_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of an empty database, of each kind in turn."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'hub.db'}"
        return
    server: Postgres = request.getfixturevalue("postgres")
    with server.database() as url:
        yield url


@pytest.fixture
def hub_database(hub_database_url: str) -> Iterator[HubDatabase]:
    """An open database with the tables of a hub, of each kind in turn."""
    database = open_database(hub_database_url)
    yield database
    database.close()
