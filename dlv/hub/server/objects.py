"""Objects of a repository: what is there, what is on its way, and what is deleted.

Bytes are written to the store first and get their row second. Deletion goes the other way round:
the row is marked, the bytes are deleted, then the row is. What an interruption leaves behind is
either not visible or deleted by the next run.
"""

from __future__ import annotations

import datetime
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import cast

import sqlalchemy as sa

from dlv.canonical import current_moment, hash_bytes, timestamp
from dlv.dataclass import dataclass
from dlv.errors import RemoteError
from dlv.hub.records import object_key
from dlv.hub.server import tables
from dlv.hub.server.access import Caller, Place
from dlv.hub.server.hub import Hub
from dlv.hub.server.refusal import Refused
from dlv.hub.server.repositories import lock
from dlv.hub.stores.interface import Store

KINDS = ("packs", "manifests", "locators", "facts")
LASTS = datetime.timedelta(days=7)  # of leases, and of uploads that do not go on
PIECE = 4 << 20  # bytes that are read at once for a download
# Uploads that are put together in memory at the same time.
_ASSEMBLING = threading.BoundedSemaphore(2)
_ATTEMPTS = 4
_DEADLOCK = "40P01"  # PostgreSQL has ended one of two transactions that waited for each other


@dataclass(frozen=True)
class Wanted:
    """An object that a client wants to have in a repository."""

    kind: str
    hash: str
    size: int


@dataclass(frozen=True)
class Upload:
    """Bytes on their way; `offset` of `size` have arrived."""

    kind: str
    hash: str
    size: int
    offset: int
    nonce: str

    def part(self, start: int) -> str:
        return f"uploads/{self.nonce}/{start:020}"

    @property
    def direct(self) -> str:
        """Where a client writes that has a signed address."""
        return f"uploads/{self.nonce}/direct"


def in_days(span: datetime.timedelta) -> str:
    return timestamp(current_moment() + span)


def check_size(hub: Hub, wanted: Wanted) -> None:
    """Refuse a kind that does not exist, and what is too large for its kind."""
    limits = hub.limits
    most = {
        "packs": limits.object,
        "manifests": limits.manifest,
        "locators": limits.locator,
        "facts": limits.manifest,
    }.get(wanted.kind)
    if most is None:
        raise Refused(422, f"`{wanted.kind}` is not a kind of object", why=", ".join(KINDS))
    if wanted.size > most:
        raise Refused(413, f"an object of {wanted.kind} has at most {most} bytes")


def size_of(connection: sa.Connection, repository_id: int, kind: str, digest: str) -> int | None:
    """Return the size of an object of this repository, None if it is not there."""
    values = {"repository": repository_id, "kind": kind, "hash": digest}
    size = connection.execute(_size, values).scalar()
    return None if size is None else int(size)


_size = sa.select(tables.object_.c.size).where(
    tables.object_.c.repository_id == sa.bindparam("repository"),
    tables.object_.c.kind == sa.bindparam("kind"),
    tables.object_.c.hash == sa.bindparam("hash"),
    ~tables.object_.c.deleting,
)


def pieces(store: Store, key: str, start: int, length: int) -> Iterator[bytes]:
    """Yield a range of an object, a few MiB at a time."""
    while length > 0:
        count = min(PIECE, length)
        yield store.get_range(key, start, count)
        start += count
        length -= count


def batch(
    hub: Hub, caller: Caller, place: Place, wanted: Sequence[Wanted]
) -> list[tuple[Wanted, Upload | None]]:
    """Return the upload of each object, None if it is there; reserve what uploads need.

    Only this repository counts: what others have is never said. Objects that are there are kept
    from being deleted for the time that a publisher needs.
    """
    for each in wanted:
        check_size(hub, each)
    _end_deletion(hub, place, wanted)
    for attempt in range(_ATTEMPTS):
        try:
            return _batch(hub, caller, place, wanted)
        except (sa.exc.IntegrityError, _Raced):  # another request has begun one of these uploads
            if attempt + 1 == _ATTEMPTS:
                break
        except sa.exc.OperationalError as error:
            if getattr(error.orig, "sqlstate", None) != _DEADLOCK:
                raise
    raise Refused(409, "others send the same objects", hint="try again")


class _Raced(Exception):
    """Another request has finished one of the uploads that this one begins."""


def _batch(
    hub: Hub, caller: Caller, place: Place, wanted: Sequence[Wanted]
) -> list[tuple[Wanted, Upload | None]]:
    result: list[tuple[Wanted, Upload | None]] = []
    fresh: list[Upload] = []
    dropped: list[Upload] = []
    with hub.database.writing() as connection:
        lock(connection, place.id, "nothing")
        # In this order: what is finished between the two is there.
        begun = {(u.kind, u.hash): u for u in uploads(connection, place.id, wanted)}
        present = _present(connection, place.id, wanted)
        for each in {(w.kind, w.hash): w for w in wanted}.values():
            key = (each.kind, each.hash)
            if key in present:
                result.append((each, None))
                continue
            upload = begun.get(key)
            if upload is not None and upload.size != each.size:
                if drop(connection, place, upload):
                    dropped.append(upload)
                upload = None
            if upload is None:
                upload = Upload(each.kind, each.hash, each.size, 0, os.urandom(16).hex())
                fresh.append(upload)
            result.append((each, upload))
        _begin(hub, connection, caller, place, fresh)
        # An object never has an upload: one that ends late could meet its deletion.
        if _present(connection, place.id, [Wanted(u.kind, u.hash, u.size) for u in fresh]):
            raise _Raced
        release(connection, place.namespace_id, sum(upload.size for upload in dropped), 0)
    for upload in dropped:
        delete_parts(hub.store_of(place.uuid), upload)
    return result


def _end_deletion(hub: Hub, place: Place, wanted: Sequence[Wanted]) -> None:
    """Finish a deletion that was cut off, if it is of objects that are wanted again."""
    table = tables.object_.c
    marked: list[tuple[str, str]] = []
    with hub.database.reading() as connection:
        for kind, hashes in by_kind((each.kind, each.hash) for each in wanted):
            query = sa.select(table.hash).where(
                table.repository_id == place.id, table.kind == kind, table.hash.in_(hashes),
                table.deleting,
            )  # fmt: skip
            marked += [(kind, digest) for digest in connection.execute(query).scalars()]
    if marked:
        delete_marked(hub, place, marked)


def _present(
    connection: sa.Connection, repository_id: int, wanted: Sequence[Wanted]
) -> set[tuple[str, str]]:
    """Return (kind, hash) of the objects that are there, and note that they were wanted now."""
    table = tables.object_
    present: set[tuple[str, str]] = set()
    for kind, hashes in by_kind((each.kind, each.hash) for each in wanted):
        own = sa.and_(
            table.c.repository_id == repository_id, table.c.kind == kind, table.c.hash.in_(hashes)
        )
        # In one order, so that two batches never wait for each other.
        query = sa.select(table.c.hash, table.c.deleting).where(own).order_by(table.c.hash)
        rows = connection.execute(query.with_for_update()).all()
        if any(row.deleting for row in rows):
            raise Refused(
                409, "an object is being deleted", hint="try again", headers={"Retry-After": "5"}
            )
        if rows:
            connection.execute(sa.update(table).where(own).values(touched=timestamp()))
        present |= {(kind, row.hash) for row in rows}
    return present


def by_kind(keys: Iterable[tuple[str, str]]) -> Iterator[tuple[str, list[str]]]:
    """Yield hashes of each kind, few enough for one query."""
    grouped: dict[str, list[str]] = {}
    for kind, digest in keys:
        grouped.setdefault(kind, []).append(digest)
    for kind, hashes in sorted(grouped.items()):
        for start in range(0, len(hashes), 500):
            yield kind, hashes[start : start + 500]


def uploads(
    connection: sa.Connection, repository_id: int, wanted: Sequence[Wanted]
) -> list[Upload]:
    """Return the uploads that have begun of these objects."""
    columns = tables.upload.c
    begun: list[Upload] = []
    for kind, hashes in by_kind((each.kind, each.hash) for each in wanted):
        query = sa.select(
            columns.kind, columns.hash, columns.size, columns.offset, columns.nonce
        ).where(
            columns.repository_id == repository_id, columns.kind == kind, columns.hash.in_(hashes)
        )
        begun += [Upload(**row) for row in connection.execute(query).mappings()]
    return begun


def upload_of(hub: Hub, place: Place, kind: str, digest: str) -> Upload:
    """Return an upload that has begun; 404 if there is none."""
    with hub.database.reading() as connection:
        begun = uploads(connection, place.id, [Wanted(kind, digest, 0)])
    if not begun:
        raise Refused(404, "no such upload", hint="ask for it with `batch` first")
    return begun[0]


def _begin(
    hub: Hub, connection: sa.Connection, caller: Caller, place: Place, fresh: Sequence[Upload]
) -> None:
    if not fresh:
        return
    expires = in_days(LASTS)
    rows = [
        {
            "repository_id": place.id,
            "kind": upload.kind,
            "hash": upload.hash,
            "size": upload.size,
            "offset": 0,
            "user_id": caller.user_id,
            "nonce": upload.nonce,
            "expires": expires,
        }
        for upload in sorted(fresh, key=lambda upload: (upload.kind, upload.hash))
    ]
    connection.execute(sa.insert(tables.upload), rows)
    # The row of the namespace comes last, as all publishers wait for it.
    reserve(hub, connection, place.namespace_id, sum(upload.size for upload in fresh))


def reserve(hub: Hub, connection: sa.Connection, namespace_id: int, size: int) -> None:
    """Reserve bytes of a namespace's quota; 507 if it does not have them."""
    account = tables.account
    quota = sa.func.coalesce(account.c.quota, hub.limits.quota)
    fits = sa.or_(quota.is_(None), account.c.used + account.c.reserved + size <= quota)
    changed = connection.execute(
        sa.update(account)
        .where(account.c.id == namespace_id, fits)
        .values(reserved=account.c.reserved + size)
    )
    if not changed.rowcount:
        raise Refused(
            507,
            f"the quota of the namespace has no room for {size:,} bytes more",
            hint="retire versions and run dlv remote gc, or ask an operator of the hub",
        )


def release(connection: sa.Connection, namespace_id: int, reserved: int, used: int) -> None:
    if not (reserved or used):
        return
    account = tables.account
    connection.execute(
        sa.update(account)
        .where(account.c.id == namespace_id)
        .values(reserved=account.c.reserved - reserved, used=account.c.used + used)
    )


def _own(place: Place, upload: Upload) -> sa.ColumnElement[bool]:
    columns = tables.upload.c
    return sa.and_(
        columns.repository_id == place.id,
        columns.kind == upload.kind,
        columns.hash == upload.hash,
        columns.nonce == upload.nonce,
    )


def drop(connection: sa.Connection, place: Place, upload: Upload) -> bool:
    """Forget an upload; False if another request did. The caller frees what it reserved."""
    dropped = connection.execute(sa.delete(tables.upload).where(_own(place, upload)))
    return bool(dropped.rowcount)


def abort(hub: Hub, place: Place, upload: Upload) -> None:
    """Give up an upload."""
    with hub.database.writing() as connection:
        lock(connection, place.id, "nothing")
        if drop(connection, place, upload):
            release(connection, place.namespace_id, upload.size, 0)
    delete_parts(hub.store_of(place.uuid), upload)


def delete_parts(store: Store, upload: Upload) -> None:
    for key in store.keys(f"uploads/{upload.nonce}/"):
        store.delete(key)


def receive(
    hub: Hub, place: Place, upload: Upload, data: bytes | bytearray, *, start: int, complete: bool
) -> bool:
    """Take bytes of an upload; return whether the object is complete.

    The bytes of an upload in one part go straight to their place.
    """
    store = hub.store_of(place.uuid)
    end = start + len(data)
    if complete and end != upload.size:
        raise Refused(422, f"the object has {upload.size} bytes, and {end} have arrived")
    if complete and start == 0:
        finish(hub, place, upload, data)
        return True
    if data:
        store.put(upload.part(start), cast(bytes, data))
        columns = tables.upload.c
        with hub.database.writing() as connection:
            moved = connection.execute(
                sa.update(tables.upload)
                .where(_own(place, upload), columns.offset == start)
                .values(offset=end, expires=in_days(LASTS))
            )
        if not moved.rowcount:
            raise wrong_offset(upload_of(hub, place, upload.kind, upload.hash))
    if not complete:
        return False
    with _assembling():
        finish(hub, place, upload, _assembled(hub, place, upload))
    delete_parts(store, upload)
    return True


def wrong_offset(upload: Upload) -> Refused:
    return Refused(
        409,
        f"the upload continues at byte {upload.offset}",
        headers={"Upload-Offset": str(upload.offset)},
    )


@contextmanager
def _assembling() -> Iterator[None]:
    """Keep a few objects in memory at once; 503 for more, without waiting in a thread."""
    if not _ASSEMBLING.acquire(blocking=False):
        raise Refused(503, "too many uploads end at once", headers={"Retry-After": "1"})
    try:
        yield
    finally:
        _ASSEMBLING.release()


def _assembled(hub: Hub, place: Place, upload: Upload) -> bytearray:
    """Return the bytes of all parts; an upload whose parts do not fit together begins again."""
    store, data, end = hub.store_of(place.uuid), bytearray(upload.size), 0
    while end < upload.size:
        key = upload.part(end)
        count = store.size(key) or 0
        if not 0 < count <= upload.size - end:
            # Two requests sent different parts from the same byte on.
            abort(hub, place, upload)
            raise Refused(409, "the parts of the upload do not fit together", hint="send it again")
        data[end : end + count] = store.get_range(key, 0, count)
        end += count
    return data


def finish_direct(hub: Hub, place: Place, upload: Upload) -> None:
    """Check what a client wrote to a signed address, and put it in its place."""
    store = hub.store_of(place.uuid)
    size = store.size(upload.direct)
    if size is None:
        raise Refused(409, "nothing was sent to the signed address")
    if size != upload.size:
        abort(hub, place, upload)
        raise Refused(422, f"the object has {upload.size} bytes, and {size} were sent")
    with _assembling():
        finish(hub, place, upload, store.get(upload.direct, most=upload.size))
    delete_parts(store, upload)


def finish(hub: Hub, place: Place, upload: Upload, data: bytes | bytearray) -> None:
    """Store a complete object under its hash, and count it."""
    if len(data) != upload.size or hash_bytes(data) != upload.hash:
        abort(hub, place, upload)
        raise Refused(422, "the bytes do not have the hash that names them")
    store, key = hub.store_of(place.uuid), object_key(upload.kind, upload.hash)
    store.put(key, cast(bytes, data))  # stores take any buffer: a copy could be large
    if store.size(key) != len(data):
        # Where another request has finished this upload, the object may be being deleted again.
        if upload_of(hub, place, upload.kind, upload.hash).nonce == upload.nonce:
            raise RemoteError("the store of the hub does not return what was just written")
        raise Refused(409, "the upload was given up", hint="send it again")
    table = tables.object_
    with hub.database.writing() as connection:
        lock(connection, place.id, "nothing")
        dropped = drop(connection, place, upload)
        own = sa.and_(
            table.c.repository_id == place.id,
            table.c.kind == upload.kind,
            table.c.hash == upload.hash,
        )
        known = connection.execute(sa.select(table.c.deleting).where(own)).first()
        if known is not None and known.deleting:
            raise Refused(
                409, "an object is being deleted", hint="try again", headers={"Retry-After": "5"}
            )
        if not dropped and known is None:
            raise Refused(409, "the upload was given up", hint="send it again")
        if known is not None:  # another request has finished the same upload
            release(connection, place.namespace_id, upload.size if dropped else 0, 0)
            return
        connection.execute(
            sa.insert(table).values(
                repository_id=place.id,
                kind=upload.kind,
                hash=upload.hash,
                size=upload.size,
                touched=timestamp(),
                deleting=False,
            )
        )
        release(connection, place.namespace_id, upload.size, upload.size)


# Deleting


def alone(hub: Hub, place: Place) -> AbstractContextManager[Callable[[], None]]:
    """Keep others from deleting objects of a repository.

    Of two that delete, the slower one could delete an object that a publisher has sent again.
    """
    return hub.database.exclusive(place.id, f"objects of {place.label} are being deleted")


def delete_marked(hub: Hub, place: Place, marked: Collection[tuple[str, str]]) -> None:
    """Delete the bytes of marked objects, then their rows."""
    with alone(hub, place) as held:
        delete_while_alone(hub, place, marked, held)


def delete_while_alone(
    hub: Hub, place: Place, marked: Collection[tuple[str, str]], held: Callable[[], None]
) -> None:
    """Delete as `delete_marked`, for a caller that is `alone` already."""
    store, table = hub.store_of(place.uuid), tables.object_
    for kind, hashes in by_kind(marked):
        own = sa.and_(
            table.c.repository_id == place.id,
            table.c.kind == kind,
            table.c.hash.in_(hashes),
            table.c.deleting,
        )
        with hub.database.reading() as connection:
            still = connection.execute(sa.select(table.c.hash).where(own)).scalars().all()
        for digest in still:
            held()
            store.delete(object_key(kind, digest))
        with hub.database.writing() as connection:
            lock(connection, place.id)
            sizes = connection.execute(sa.select(table.c.size).where(own)).scalars().all()
            connection.execute(sa.delete(table).where(own))
            release(connection, place.namespace_id, 0, -sum(sizes))
