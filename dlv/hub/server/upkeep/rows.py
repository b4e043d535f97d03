"""The rows of a hub's database in a file that SQLite and PostgreSQL both can be filled from.

A file is a line of JSON for the header, one for each row, and one that counts them: a file that was
cut off is noticed. Rows of what is in progress are left out, because its bytes are not in a backup.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import sqlalchemy as sa

from dlv.dataclass import dataclass
from dlv.errors import Damaged, NewerFormat
from dlv.hub.server import tables

FORMAT = "dlv/hub-rows/1"
AT_ONCE = 500  # rows that one statement inserts
# What a restored hub begins without: uploads and logins in progress, leases of running publishers.
PASSING = frozenset({tables.upload, tables.lease, tables.login})


@dataclass(frozen=True)
class Header:
    """What a file is: of which version its tables are, and when the database was like this."""

    version: int
    time: str
    columns: dict[str, list[str]]


def _tables() -> list[sa.Table]:
    """All tables whose rows are kept, each after those that it refers to."""
    return [table for table in tables.metadata.sorted_tables if table not in PASSING]


def _kept(table: sa.Table) -> sa.Select[Any]:
    query = sa.select(table)
    if table is tables.object_:
        query = query.where(~table.c.deleting)
    if table is tables.state:
        query = query.where(table.c.key != "version")
    if table is tables.token:
        query = query.where(table.c.kind == "token")  # browsers log in again
    return query.order_by(*table.primary_key.columns)


def write_rows(connection: sa.Connection, out: IO[bytes], time: str) -> Counter[str]:
    """Write all rows to a file; return how many there are of each table."""
    count: Counter[str] = Counter()
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=6, mtime=0) as file:

        def write(value: Any) -> None:
            file.write(json.dumps(value, separators=(",", ":"), default=_plain).encode() + b"\n")

        columns = {table.name: [column.name for column in table.columns] for table in _tables()}
        write({"format": FORMAT, "version": tables.VERSION, "time": time, "columns": columns})
        for table in _tables():
            query = connection.execution_options(yield_per=AT_ONCE).execute(_kept(table))
            for row in query:
                write([table.name, *row])
                count[table.name] += 1
        write({"rows": count})
    return count


def _plain(value: Any) -> str:
    """Return bytes as JSON; the types of the columns say what to do on the way back."""
    if isinstance(value, (bytes, memoryview)):
        return base64.b64encode(value).decode()
    raise TypeError(f"a column has a value of the type {type(value).__name__}")


def _lines(path: Path) -> Iterator[Any]:
    try:
        with gzip.open(path, "rb") as file:
            for line in file:
                yield json.loads(line)
    except (OSError, EOFError, ValueError) as error:
        raise Damaged(f"{path} cannot be read", why=str(error)) from error


def read_header(path: Path) -> Header:
    """Return what the rows are of; NewerFormat for tables of another version."""
    return _header(path, next(_lines(path), None))


def _header(path: Path, head: Any) -> Header:
    if not isinstance(head, dict) or "version" not in head:
        raise Damaged(f"{path} does not have the rows of a hub")
    if head.get("format") != FORMAT or head["version"] != tables.VERSION:
        raise NewerFormat(
            f"{path} has tables of version {head['version']}; this dlv has {tables.VERSION}",
            hint="restore with the dlv that wrote the backup, and upgrade the hub after that",
        )
    return Header(head["version"], head["time"], head["columns"])


def read_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (table, row) for each row, and verify at the end that none is missing."""
    lines = _lines(path)
    header = _header(path, next(lines, None))
    binary = {
        (table.name, column.name)
        for table in tables.metadata.sorted_tables
        for column in table.columns
        if isinstance(column.type, sa.LargeBinary)
    }
    count: Counter[str] = Counter()
    for line in lines:
        if isinstance(line, dict):
            if line.get("rows") != count or next(lines, None) is not None:
                break
            return
        name, *values = line
        row = dict(zip(header.columns[name], values, strict=True))
        for column, value in row.items():
            if value is not None and (name, column) in binary:
                row[column] = base64.b64decode(value)
        count[name] += 1
        yield name, row
    raise Damaged(f"{path} is incomplete")


def insert_rows(connection: sa.Connection, rows: Iterator[tuple[str, dict[str, Any]]]) -> None:
    """Insert rows into empty tables, and let new rows continue after them."""
    waiting: list[dict[str, Any]] = []
    current = ""
    for name, row in rows:
        if waiting and (name != current or len(waiting) == AT_ONCE):
            connection.execute(sa.insert(tables.metadata.tables[current]), waiting)
            waiting = []
        current = name
        waiting.append(row)
    if waiting:
        connection.execute(sa.insert(tables.metadata.tables[current]), waiting)
    if connection.dialect.name == "postgresql":
        _continue_keys(connection)


def _continue_keys(connection: sa.Connection) -> None:
    """Let the sequences of PostgreSQL give keys after those that were inserted."""
    for table in tables.metadata.sorted_tables:
        column = table.autoincrement_column
        if column is None:
            continue
        highest = connection.execute(sa.select(sa.func.max(column))).scalar()
        sequence = sa.func.pg_get_serial_sequence(table.name, column.name)
        connection.execute(sa.select(sa.func.setval(sequence, highest or 1, highest is not None)))
