"""The database of a hub: SQLite in a file, or PostgreSQL; opened, and brought to this version."""

from __future__ import annotations

import fcntl
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from dlv.dataclass import dataclass
from dlv.errors import Conflict, Damaged, NewerFormat, RemoteError, UsageError
from dlv.hub.server import tables

POOL = 24  # connections of one process
# Of a large file, pages are read from the memory that the system keeps them in.
_PRAGMAS = ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "mmap_size=4294967296")
# What brings the tables from version n + 1 to n + 2; each runs in the transaction of the upgrade.
MIGRATIONS: Sequence[Callable[[sa.Connection], None]] = ()
_EXCLUSIVE = 0x646C78
_LOCK = 0x646C76  # any number that no other program locks


@dataclass(frozen=True)
class HubDatabase:
    """An open database."""

    engine: sa.Engine

    @property
    def is_postgres(self) -> bool:
        return self.engine.dialect.name == "postgresql"

    @property
    def in_use(self) -> int:
        """Number of connections that requests are using."""
        pool = self.engine.pool
        return pool.checkedout() if isinstance(pool, sa.pool.QueuePool) else 0

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A connection to read with; each statement sees what is there when it begins."""
        with self.engine.connect() as connection:
            if self.is_postgres:
                # BEGIN and ROLLBACK would be two more messages for each request.
                connection.execution_options(isolation_level="AUTOCOMMIT")
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[sa.Connection]:
        """A transaction that reads the whole database as of one moment."""
        with self.engine.connect() as connection:
            if self.is_postgres:
                connection.execution_options(
                    isolation_level="REPEATABLE READ", postgresql_readonly=True
                )
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction that is committed at the end, and undone by an error."""
        engine = self.engine.execution_options(writes=True)
        with engine.begin() as connection:
            yield connection

    @contextmanager
    def exclusive(self, number: int, busy: str) -> Iterator[Callable[[], None]]:
        """Hold a lock over several transactions; it ends with the process. Conflict if it is held.

        Yields what fails as soon as the lock is lost. With SQLite, all numbers share one lock.
        """
        if self.is_postgres:
            with self.engine.connect() as connection:
                key = (_EXCLUSIVE << 32) + number % (1 << 32)
                free = sa.select(sa.func.pg_try_advisory_xact_lock(key))
                if not connection.execute(free).scalar_one():
                    raise Conflict(busy, hint="try again")
                yield lambda: connection.execute(sa.select(1)).close()
            return
        with Path(f"{self.engine.url.database}.lock").open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Conflict(busy, hint="try again") from None
            yield lambda: None

    def close(self) -> None:
        self.engine.dispose()


def open_database(url: str, *, migrate: bool = True) -> HubDatabase:
    """Open the database at an SQLAlchemy URL; create or upgrade its tables."""
    try:
        address = sa.engine.make_url(url)
    except sa.exc.ArgumentError as error:
        raise UsageError(f"`{url}` is not the address of a database") from error
    if address.drivername in ("postgresql", "postgres"):
        address = address.set(drivername="postgresql+psycopg")
    if address.get_backend_name() not in ("sqlite", "postgresql"):
        raise UsageError(
            f"a hub cannot use the database {address.get_backend_name()}",
            why="known: sqlite, postgresql",
        )
    try:
        database = HubDatabase(_engine(address))
        try:
            if migrate:
                _migrate(database)
        except BaseException:
            database.close()
            raise
    except (sa.exc.DatabaseError, ModuleNotFoundError) as error:
        if is_corrupt(error):
            raise corrupt(error) from error
        why = str(getattr(error, "orig", error)).strip().partition("\n")[0]
        raise RemoteError(
            f"cannot open the database {address.render_as_string(hide_password=True)}", why=why
        ) from error
    return database


def is_corrupt(error: Exception) -> bool:
    """Whether SQLite reports a damaged file, for which it has no exception of its own."""
    return type(getattr(error, "orig", None)) is sqlite3.DatabaseError


def corrupt(error: Exception) -> Damaged:
    return Damaged(
        "the database of the hub is corrupt",
        why=str(getattr(error, "orig", error)),
        hint="move it away, and restore a backup: dlv hub restore DIR",
    )


def _engine(address: sa.URL) -> sa.Engine:
    if address.get_backend_name() == "postgresql":
        return sa.create_engine(address, pool_size=POOL, max_overflow=POOL, pool_timeout=60)
    engine = sa.create_engine(
        address, connect_args={"timeout": 60, "check_same_thread": False}, pool_size=POOL,
        max_overflow=POOL, pool_timeout=60,
    )  # fmt: skip

    @sa.event.listens_for(engine, "connect")
    def connected(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # transactions begin below, not in the driver
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")

    @sa.event.listens_for(engine, "begin")
    def begun(connection: sa.Connection) -> None:
        # A transaction that turned into a writer late could fail instead of waiting.
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _migrate(database: HubDatabase) -> None:
    """Create the tables, or upgrade them; all of it or nothing."""
    with database.writing() as connection:
        if database.is_postgres:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        if not sa.inspect(connection).has_table(tables.state.name):
            tables.metadata.create_all(connection)
            _set_version(connection, tables.VERSION)
            return
        row = sa.select(tables.state.c.value).where(tables.state.c.key == "version")
        version = int(connection.execute(row).scalar_one())
        if version > tables.VERSION:
            raise NewerFormat(
                f"the database of the hub has version {version}; this dlv knows {tables.VERSION}",
                hint="pip install --upgrade dlv",
            )
        for migrate in MIGRATIONS[version - 1 :]:
            migrate(connection)
        _set_version(connection, tables.VERSION)


def _set_version(connection: sa.Connection, version: int) -> None:
    connection.execute(sa.delete(tables.state).where(tables.state.c.key == "version"))
    connection.execute(sa.insert(tables.state).values(key="version", value=str(version)))
