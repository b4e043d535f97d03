"""Repositories of a hub, and the refs that publish versions in them."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable

import sqlalchemy as sa

import dlv.objects.manifest as manifest_format
from dlv.canonical import hash_bytes, timestamp
from dlv.errors import DlvError
from dlv.hub.history import MOST_MANIFEST
from dlv.hub.locator import MOST_BYTES, decode_locator
from dlv.hub.records import REMOTE_FILE, Ref, RemoteFile, decode_ref, object_key
from dlv.hub.server import audit, tables
from dlv.hub.server.access import Caller, Place, Role
from dlv.hub.server.hub import Hub
from dlv.hub.server.refusal import Refused
from dlv.hub.stores.interface import MissingObject, Store

NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?\Z")
MOST_NAME = 128
VISIBILITIES = ("private", "public")
# Records of versions that are decoded at once: each may take many times its size.
_DECODING = threading.BoundedSemaphore(2)
# What a directory or bucket is tried out for, a hub does by itself.
_ABILITIES = {"create": True, "races": 5, "ranges": True, "read_after_write": True, "hub": True}


def create(
    hub: Hub, caller: Caller, namespace_id: int, label: str, visibility: str, description: str
) -> None:
    """Create a repository; 409 if there is one of this name."""
    name = label.partition("/")[2]
    if not NAME.match(name):
        raise Refused(
            422,
            f"`{name}` cannot be the name of a repository",
            why="a-z, 0-9, `.`, `_` and `-` are allowed, at most 64 of them",
        )
    check_visibility(visibility)
    uuid = os.urandom(32).hex()
    record = RemoteFile(uuid, timestamp(), _ABILITIES).encode()
    # A server put in front of this folder or bucket finds the remote that it is.
    hub.store_of(uuid).put(REMOTE_FILE, record)
    try:
        with hub.database.writing() as connection:
            connection.execute(
                sa.insert(tables.repository).values(
                    namespace_id=namespace_id,
                    name=name,
                    visibility=visibility,
                    description=description[:2000],
                    uuid=uuid,
                    record=record.decode(),
                    created=timestamp(),
                    changed=timestamp(),
                )
            )
            audit.record(connection, caller, "repository.create", label, None, visibility)
    except sa.exc.IntegrityError:
        hub.store_of(uuid).delete(REMOTE_FILE)
        raise Refused(409, f"the repository {label} exists") from None


def check_visibility(visibility: str) -> None:
    if visibility not in VISIBILITIES:
        raise Refused(422, f"a repository is {' or '.join(VISIBILITIES)}, not `{visibility}`")


def change(
    hub: Hub, caller: Caller, place: Place, visibility: str | None, description: str | None
) -> None:
    """Change what is set; each change of the visibility is an audit line."""
    values: dict[str, str] = {}
    if visibility is not None:
        check_visibility(visibility)
        values["visibility"] = visibility
    if description is not None:
        values["description"] = description[:2000]
    if not values:
        return
    with hub.database.writing() as connection:
        table = tables.repository
        connection.execute(sa.update(table).where(table.c.id == place.id).values(**values))
        if visibility is not None:
            before = "public" if place.public else "private"
            action = "repository.visibility"
            audit.record(connection, caller, action, place.label, before, visibility)


def delete(hub: Hub, caller: Caller, place: Place) -> None:
    """Delete a repository; its bytes are deleted after it is gone for everybody."""
    with hub.database.writing() as connection:
        lock(connection, place.id)
        sizes = sa.select(sa.func.coalesce(sa.func.sum(tables.object_.c.size), 0)).where(
            tables.object_.c.repository_id == place.id
        )
        reserved = sa.select(sa.func.coalesce(sa.func.sum(tables.upload.c.size), 0)).where(
            tables.upload.c.repository_id == place.id
        )
        account = tables.account
        connection.execute(
            sa.update(account)
            .where(account.c.id == place.namespace_id)
            .values(
                used=account.c.used - connection.execute(sizes).scalar_one(),
                reserved=account.c.reserved - connection.execute(reserved).scalar_one(),
            )
        )
        connection.execute(sa.delete(tables.repository).where(tables.repository.c.id == place.id))
        audit.record(connection, caller, "repository.delete", place.label, place.uuid, None)
    store = hub.store_of(place.uuid)
    for key in store.keys(""):
        store.delete(key)


def lock(connection: sa.Connection, repository_id: int, what: str = "all") -> None:
    """Keep others from changing a repository until the transaction ends.

    `what`: "all"; "refs", which does not keep objects from being added; or "nothing", which only
    waits for those who lock all, as deletions do, and keeps them waiting.
    """
    query = sa.select(tables.repository.c.id).where(tables.repository.c.id == repository_id)
    query = query.with_for_update(key_share=what != "all", read=what == "nothing")
    if connection.execute(query).first() is None:
        raise Refused(404, "not found")


# Refs


def newest_refs(connection: sa.Connection, repository_id: int) -> dict[str, int]:
    """Map the models of a repository to the number of their newest ref."""
    columns = tables.ref.c
    query = (
        sa.select(columns.name, sa.func.max(columns.seq))
        .where(columns.repository_id == repository_id)
        .group_by(columns.name)
        .order_by(columns.name)
    )
    return {row.name: row[1] for row in connection.execute(query)}


def records_of(
    connection: sa.Connection, repository_id: int, name: str, after: int, most: int
) -> list[bytes]:
    """Return the records of refs after a number, oldest first."""
    columns = tables.ref.c
    query = (
        sa.select(columns.record)
        .where(columns.repository_id == repository_id, columns.name == name, columns.seq > after)
        .order_by(columns.seq)
        .limit(most)
    )
    return [bytes(row[0]) for row in connection.execute(query)]


_record = sa.select(tables.ref.c.record, tables.ref.c.hash).where(
    tables.ref.c.repository_id == sa.bindparam("repository"),
    tables.ref.c.name == sa.bindparam("name"),
    tables.ref.c.seq == sa.bindparam("seq"),
)


def record_of(
    connection: sa.Connection, repository_id: int, name: str, seq: int
) -> tuple[bytes, str] | None:
    """Return the record of a ref and its hash."""
    values = {"repository": repository_id, "name": name, "seq": seq}
    row = connection.execute(_record, values).first()
    return None if row is None else (bytes(row.record), row.hash)


def publish(hub: Hub, caller: Caller, place: Place, name: str, seq: int, data: bytes) -> None:
    """Append a ref to the history of a model: the commit point of a push.

    Refused are refs that name objects which this repository does not have.
    """
    try:
        ref = decode_ref(data, "the ref")
    except DlvError as error:
        raise Refused(422, error.message, why=error.why) from None
    if (ref.name, ref.seq) != (name, seq) or ref.encode() != data:
        raise Refused(422, "the ref does not belong to this address")
    if len(name) > MOST_NAME:
        raise Refused(422, f"the name of a model has at most {MOST_NAME} characters")
    if ref.kind in ("retire", "tag") and place.role < Role.MAINTAINER:
        raise Refused(403, f"a ref of the kind {ref.kind} requires the role maintainer")
    with hub.database.reading() as connection:
        if record_of(connection, place.id, name, seq) is not None:
            raise _exists(ref)  # before objects are read for nothing
    needs = _needs(hub.store_of(place.uuid), ref) if ref.kind in ("publish", "reencode") else set()
    try:
        with hub.database.writing() as connection:
            lock(connection, place.id, "refs")
            _check_follows(connection, place, ref)
            _check_present(connection, place.id, needs)
            _append(connection, caller, place, ref, data, needs)
    except sa.exc.IntegrityError:
        raise _exists(ref) from None
    hub.on_published(place, name)


def _needs(store: Store, ref: Ref) -> set[tuple[str, str]]:
    """Return (kind, hash) of the objects of a version, after its records have been read."""
    try:
        manifest = store.get(object_key("manifests", ref.manifest), most=MOST_MANIFEST)
        locator = store.get(object_key("locators", ref.locator), most=MOST_BYTES)
    except MissingObject as error:
        raise missing([error.key]) from None
    try:
        if (hash_bytes(manifest), hash_bytes(locator)) != (ref.manifest, ref.locator):
            raise Refused(422, "the manifest or the locator is not what its name says")
        with _DECODING:
            manifest_format.decode(manifest, "the manifest")
            decoded = decode_locator(locator, "the locator")
    except DlvError as error:
        raise Refused(422, error.message, why=error.why) from None
    if decoded.version != ref.manifest:
        raise Refused(422, "the locator belongs to another version")
    needs = {("manifests", ref.manifest), ("locators", ref.locator)}
    needs |= {("packs", digest) for digest in decoded.packs}
    return needs | {("facts", digest) for digest in decoded.facts}


def missing(keys: Iterable[str]) -> Refused:
    return Refused(
        409,
        "the repository lacks objects that the version needs",
        why=", ".join(sorted(keys)[:5]),
        hint="dlv publish",
    )


def _exists(ref: Ref) -> Refused:
    return Refused(412, f"{ref.name} has an entry {ref.seq}")


def _check_follows(connection: sa.Connection, place: Place, ref: Ref) -> None:
    """Refuse a ref that does not continue the history, or takes the number of another version."""
    columns = tables.ref.c
    own = sa.and_(columns.repository_id == place.id, columns.name == ref.name)
    newest = sa.select(columns.seq, columns.hash).where(own).order_by(columns.seq.desc()).limit(1)
    last = connection.execute(newest).first()
    seq, digest = (0, None) if last is None else (last.seq, last.hash)
    if ref.seq <= seq:
        raise _exists(ref)
    if ref.seq != seq + 1 or ref.prev != digest:
        raise Refused(409, f"the ref does not follow from entry {seq} of {ref.name}")
    if seq == 0:
        other = sa.select(columns.name).where(
            columns.repository_id == place.id, sa.func.lower(columns.name) == ref.name.lower()
        )
        if (known := connection.execute(other.limit(1)).scalar()) is not None:
            raise Refused(409, f"the repository has a model {known}")
    if ref.kind == "publish":
        highest = sa.select(sa.func.max(columns.number)).where(own, columns.kind == "publish")
        if ref.number != (connection.execute(highest).scalar() or 0) + 1:
            raise Refused(409, f"{ref.name}@{ref.number} is not the next version")
        return
    known = sa.select(columns.seq).where(
        own,
        columns.kind == "publish",
        columns.manifest == ref.manifest,
        columns.number == ref.number,
    )
    if connection.execute(known.limit(1)).first() is None:
        raise Refused(409, f"{ref.name}@{ref.number} was never published here")
    need = tables.need.c
    live = sa.select(need.hash).where(
        need.repository_id == place.id, need.manifest == ref.manifest, need.name == ref.name
    )
    if connection.execute(live.limit(1)).first() is None:
        raise Refused(409, f"{ref.name}@{ref.number} was retired")


def _check_present(
    connection: sa.Connection, repository_id: int, needs: set[tuple[str, str]]
) -> None:
    table = tables.object_.c
    absent = set(needs)
    for kind in {kind for kind, _ in needs}:
        hashes = [digest for other, digest in needs if other == kind]
        for start in range(0, len(hashes), 500):
            query = sa.select(table.hash).where(
                table.repository_id == repository_id,
                table.kind == kind,
                table.hash.in_(hashes[start : start + 500]),
                ~table.deleting,
            )
            absent -= {(kind, digest) for digest in connection.execute(query).scalars()}
    if absent:
        raise missing(object_key(kind, digest) for kind, digest in absent)


def _append(
    connection: sa.Connection,
    caller: Caller,
    place: Place,
    ref: Ref,
    data: bytes,
    needs: set[tuple[str, str]],
) -> None:
    connection.execute(
        sa.insert(tables.ref).values(
            repository_id=place.id,
            name=ref.name,
            seq=ref.seq,
            kind=ref.kind,
            number=ref.number,
            manifest=ref.manifest,
            locator=ref.locator,
            hash=ref.hash,
            record=data,
            user_id=caller.user_id,
            created=timestamp(),
        )
    )
    if ref.kind != "tag":
        need = tables.need
        connection.execute(
            sa.delete(need).where(
                need.c.repository_id == place.id,
                need.c.manifest == ref.manifest,
                need.c.name == ref.name,
            )
        )
        if needs:
            owner = {"repository_id": place.id, "manifest": ref.manifest, "name": ref.name}
            rows = [owner | {"kind": kind, "hash": digest} for kind, digest in sorted(needs)]
            connection.execute(sa.insert(need), rows)
    if ref.kind == "retire":
        alias = tables.alias
        connection.execute(
            sa.delete(alias).where(
                alias.c.repository_id == place.id,
                alias.c.name == ref.name,
                alias.c.manifest == ref.manifest,
            )
        )
    table = tables.repository
    connection.execute(sa.update(table).where(table.c.id == place.id).values(changed=timestamp()))
    target = f"{place.label}:{ref.name}@{ref.number}"
    audit.record(connection, caller, f"ref.{ref.kind}", target, ref.prev, ref.hash)


# Aliases


def set_alias(
    hub: Hub, caller: Caller, place: Place, name: str, alias: str, number: int | None
) -> None:
    """Let an alias such as `production` name a version; None deletes it."""
    if not NAME.match(alias) or alias.isdigit():
        raise Refused(
            422, f"`{alias}` cannot be an alias", why="a-z, 0-9, `.`, `_` and `-`; not only digits"
        )
    table = tables.alias
    own = sa.and_(table.c.repository_id == place.id, table.c.name == name, table.c.alias == alias)
    with hub.database.writing() as connection:
        lock(connection, place.id)
        before = connection.execute(sa.select(table.c.number).where(own)).scalar()
        connection.execute(sa.delete(table).where(own))
        if number is not None:
            manifest = live_manifest(connection, place.id, name, number)
            connection.execute(
                sa.insert(table).values(
                    repository_id=place.id,
                    name=name,
                    alias=alias,
                    number=number,
                    manifest=manifest,
                    changed=timestamp(),
                    user_id=caller.user_id,
                )
            )
        elif before is None:
            raise Refused(404, f"{name} has no alias `{alias}`")
        audit.record(
            connection,
            caller,
            "alias.delete" if number is None else "alias.set",
            f"{place.label}:{name}@{alias}",
            None if before is None else str(before),
            None if number is None else str(number),
        )


def live_manifest(connection: sa.Connection, repository_id: int, name: str, number: int) -> str:
    """Return the manifest of a version that was published and not retired."""
    ref, need = tables.ref.c, tables.need.c
    query = (
        sa.select(ref.manifest)
        .where(
            ref.repository_id == repository_id,
            ref.name == name,
            ref.number == number,
            ref.kind == "publish",
            sa.exists().where(
                need.repository_id == repository_id,
                need.name == name,
                need.manifest == ref.manifest,
            ),
        )
        .limit(1)
    )
    manifest = connection.execute(query).scalar()
    if manifest is None:
        raise Refused(404, f"no version {name}@{number}")
    return str(manifest)


def aliases(connection: sa.Connection, repository_id: int) -> list[dict[str, object]]:
    """Return all aliases of a repository."""
    columns = tables.alias.c
    query = (
        sa.select(columns.name, columns.alias, columns.number, columns.manifest, columns.changed)
        .where(columns.repository_id == repository_id)
        .order_by(columns.name, columns.alias)
    )
    return [dict(row) for row in connection.execute(query).mappings()]
