"""The audit log: who changed what, in lines that each contain the hash of the one before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import sqlalchemy as sa

from dlv.canonical import hash_of, timestamp
from dlv.dataclass import dataclass
from dlv.hub.server import tables
from dlv.hub.server.access import Caller

START = "0" * 64
_LOCK = 0x646C77  # any number that no other program locks
_HASHED = ("seq", "time", "actor", "origin", "action", "target", "before", "after", "prev")


def record(
    connection: sa.Connection,
    caller: Caller,
    action: str,
    target: str,
    before: str | None = None,
    after: str | None = None,
) -> None:
    """Append a line, in the transaction of what it tells of."""
    if connection.dialect.name == "postgresql":
        # Other transactions wait until this one ends, so the chain cannot fork.
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
    columns = tables.audit.c
    newest = sa.select(columns.seq, columns.hash).order_by(columns.seq.desc()).limit(1)
    last = connection.execute(newest).first()
    line: dict[str, Any] = {
        "seq": 1 if last is None else last.seq + 1,
        "time": timestamp(),
        "actor": caller.name,
        "origin": caller.origin,
        "action": action,
        "target": target[:400],
        "before": before and before[:200],
        "after": after and after[:200],
        "prev": START if last is None else last.hash,
    }
    connection.execute(sa.insert(tables.audit).values(**line, hash=_hash(line)))


def _hash(line: Mapping[str, Any]) -> str:
    return hash_of({key: line[key] for key in _HASHED})


def lines(
    connection: sa.Connection, place: str | None = None, *, after: int = 0, most: int = 100
) -> list[dict[str, Any]]:
    """Return lines after a number, oldest first; `place`: a namespace, or a repository."""
    query = _about(place).where(tables.audit.c.seq > after)
    query = query.order_by(tables.audit.c.seq).limit(most)
    return [dict(row) for row in connection.execute(query).mappings()]


def last_lines(
    connection: sa.Connection, place: str | None = None, *, most: int = 100
) -> list[dict[str, Any]]:
    """Return the newest lines, oldest first."""
    query = _about(place).order_by(tables.audit.c.seq.desc()).limit(most)
    return [dict(row) for row in connection.execute(query).mappings()][::-1]


def _about(place: str | None) -> sa.Select[Any]:
    query, target = sa.select(tables.audit), tables.audit.c.target
    if place is None:
        return query
    place = place.lower()
    below = [target.startswith(f"{place}{mark}", autoescape=True) for mark in ":/"]
    return query.where(sa.or_(target == place, *below))


def newest(connection: sa.Connection) -> tuple[int, str]:
    """Return the number and hash of the newest line; who notes them can find a cut log."""
    columns = tables.audit.c
    query = sa.select(columns.seq, columns.hash).order_by(columns.seq.desc()).limit(1)
    row = connection.execute(query).first()
    return (0, START) if row is None else (row.seq, row.hash)


@dataclass(frozen=True)
class Fault:
    """A line that does not follow from the one before it, or was changed."""

    seq: int
    why: str


def faults(connection: sa.Connection) -> Iterator[Fault]:
    """Yield what shows that the log was changed; a cut at its end needs a noted (seq, hash)."""
    prev, seq = START, 0
    for row in _all_lines(connection):
        seq += 1
        if row["seq"] != seq:
            yield Fault(seq, f"line {seq} is missing")
            seq = row["seq"]
        if row["prev"] != prev:
            yield Fault(seq, f"line {seq} does not follow from the one before it")
        if row["hash"] != _hash(dict(row)):
            yield Fault(seq, f"line {seq} was changed")
        prev = row["hash"]


def _all_lines(connection: sa.Connection) -> Iterator[sa.RowMapping]:
    query = sa.select(tables.audit).order_by(tables.audit.c.seq).limit(1000)
    after = -1
    while rows := connection.execute(query.where(tables.audit.c.seq > after)).mappings().all():
        yield from rows
        after = rows[-1]["seq"]
