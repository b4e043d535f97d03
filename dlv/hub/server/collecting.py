"""Deletion of what no version needs, and the leases by which publishers keep it off.

Rows are marked, bytes are deleted, then the rows: `dlv.hub.server.objects`.
"""

from __future__ import annotations

import datetime
from contextlib import ExitStack

import sqlalchemy as sa

from dlv.canonical import current_moment, moment_of, timestamp
from dlv.dataclass import dataclass
from dlv.hub.records import object_key
from dlv.hub.server import audit, objects, tables
from dlv.hub.server.access import Caller, Place
from dlv.hub.server.hub import Hub
from dlv.hub.server.objects import Upload
from dlv.hub.server.repositories import lock

# Leases


def lease(hub: Hub, caller: Caller, place: Place, name: str) -> str:
    """Keep objects of a repository from being deleted; return until when."""
    expires = objects.in_days(objects.LASTS)
    columns = tables.lease.c
    own = sa.and_(columns.repository_id == place.id, columns.lease == name)
    with hub.database.writing() as connection:
        lock(connection, place.id, "refs")
        connection.execute(sa.delete(tables.lease).where(own))
        values = {
            "repository_id": place.id,
            "lease": name,
            "user_id": caller.user_id,
            "expires": expires,
        }
        connection.execute(sa.insert(tables.lease).values(**values))
    return expires


def end_lease(hub: Hub, place: Place, name: str) -> None:
    columns = tables.lease.c
    own = sa.and_(columns.repository_id == place.id, columns.lease == name)
    with hub.database.writing() as connection:
        connection.execute(sa.delete(tables.lease).where(own))


# Deleting


@dataclass(frozen=True)
class Collected:
    """Keys that were deleted, and those that can be deleted from the time `until` on.

    `leases`: number of publishers because of which nothing was deleted.
    """

    deleted: list[str]
    listed: list[str]
    until: str | None
    bytes: int
    leases: int


def collect(
    hub: Hub, caller: Caller, place: Place, grace: datetime.timedelta, *, dry_run: bool
) -> Collected:
    """Delete objects that no version needs and no client has asked for within `grace`."""
    table, need = tables.object_, tables.need
    needed = sa.exists().where(
        need.c.repository_id == table.c.repository_id,
        need.c.kind == table.c.kind,
        need.c.hash == table.c.hash,
    )
    query = sa.select(
        table.c.kind, table.c.hash, table.c.size, table.c.touched, table.c.deleting
    ).where(table.c.repository_id == place.id, sa.or_(table.c.deleting, ~needed))
    before = timestamp(current_moment() - grace)
    columns = tables.lease.c
    with ExitStack() as stack:
        check_lock = None if dry_run else stack.enter_context(objects.alone(hub, place))
        with hub.database.writing() as connection:
            lock(connection, place.id)
            now = timestamp()
            alive = sa.select(sa.func.count()).where(
                columns.repository_id == place.id, columns.expires > now
            )
            leases = int(connection.execute(alive).scalar_one())
            unneeded = connection.execute(query.order_by(table.c.kind, table.c.hash)).all()
            due = [
                row
                for row in (() if dry_run else unneeded)
                if row.deleting or (not leases and row.touched <= before)
            ]
            for kind, hashes in objects.by_kind((row.kind, row.hash) for row in due):
                connection.execute(
                    sa.update(table)
                    .where(
                        table.c.repository_id == place.id,
                        table.c.kind == kind,
                        table.c.hash.in_(hashes),
                    )
                    .values(deleting=True)
                )
            if due:
                count = f"{len(due)} objects, {sum(row.size for row in due)} bytes"
                audit.record(connection, caller, "repository.gc", place.label, None, count)
        if check_lock is not None:
            objects.delete_while_alone(
                hub, place, [(row.kind, row.hash) for row in due], check_lock
            )
            drop_expired(hub, place)
    waiting = [row for row in unneeded if row not in due]
    until = None
    if waiting:
        first = min(moment_of(row.touched) for row in waiting)
        until = timestamp(first + grace)
    return Collected(
        deleted=[object_key(row.kind, row.hash) for row in due],
        listed=[object_key(row.kind, row.hash) for row in waiting],
        until=until,
        bytes=sum(row.size for row in waiting),
        leases=leases,
    )


def drop_expired(hub: Hub, place: Place) -> None:
    """Delete uploads and leases that have expired."""
    columns, now = tables.upload.c, timestamp()
    query = sa.select(
        columns.kind, columns.hash, columns.size, columns.offset, columns.nonce
    ).where(columns.repository_id == place.id, columns.expires <= now)
    with hub.database.writing() as connection:
        lock(connection, place.id)
        expired = [Upload(**row) for row in connection.execute(query).mappings()]
        freed = sum(upload.size for upload in expired if objects.drop(connection, place, upload))
        objects.release(connection, place.namespace_id, freed, 0)
        lease_columns = tables.lease.c
        connection.execute(
            sa.delete(tables.lease).where(
                lease_columns.repository_id == place.id, lease_columns.expires <= now
            )
        )
    store = hub.store_of(place.uuid)
    for upload in expired:
        objects.delete_parts(store, upload)
