"""Check a hub: histories, what versions need, sizes and hashes of objects, counters, audit log.

The database says what must be in the store. A hub can be checked while it is being used: what was
changed during the check is looked up again before it counts as an error.
"""

from __future__ import annotations

import datetime
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field

import sqlalchemy as sa

import dlv.objects.manifest as manifest_format
from dlv.canonical import current_moment, hash_bytes, hasher, timestamp
from dlv.dataclass import dataclass
from dlv.errors import Damaged, DlvError
from dlv.hub.history import MOST_MANIFEST, published
from dlv.hub.locator import MOST_BYTES, decode_locator
from dlv.hub.records import REMOTE_FILE, Ref, decode_ref, decode_remote, object_key
from dlv.hub.server import audit, collecting, objects, tables
from dlv.hub.server.access import Place, Role
from dlv.hub.server.hub import Hub
from dlv.hub.stores.interface import Entry, MissingObject, Store

PIECE = 32 << 20  # bytes that are read at once to hash an object
THREADS = 8
GRACE = datetime.timedelta(days=1)  # younger bytes without a row may belong to a running upload
_OBJECT = re.compile(r"(packs|manifests|locators|facts)/[0-9a-f]{2}/([0-9a-f]{64})\.[a-z]+\Z")
_UUID = re.compile(r"([0-9a-f]{64})/(.+)\Z", re.DOTALL)

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Fault:
    """What is wrong, and in which repository or account. `-` is the hub."""

    place: str
    kind: str  # history, object, need, alias, card, quota, audit, record
    object: str
    why: str
    repaired: bool = False


@dataclass(frozen=True)
class Leftover:
    """What nothing needs: bytes without a row, expired uploads and leases, cut-off deletions."""

    place: str
    kind: str  # object, upload, lease, deletion
    object: str
    size: int
    deleted: bool = False


@dataclass
class Report:
    """What a check saw. Leftovers are not errors."""

    checked: Counter[str] = field(default_factory=Counter)
    faults: list[Fault] = field(default_factory=list)
    leftovers: list[Leftover] = field(default_factory=list)
    bytes: int = 0

    @property
    def ok(self) -> bool:
        return all(fault.repaired for fault in self.faults)


@dataclass(frozen=True)
class _Repository:
    """The rows of one repository, all of one moment."""

    id: int
    label: str
    uuid: str
    record: str
    refs: list[sa.RowMapping]
    objects: dict[tuple[str, str], int]  # without those that are being deleted
    deleting: set[tuple[str, str]]
    needs: set[tuple[str, str, str, str]]  # manifest, name, kind, hash
    aliases: list[sa.RowMapping]


class Checker:
    """One run. `full`: read and hash all objects. `repair`: correct what follows from the rest."""

    def __init__(
        self,
        hub: Hub,
        *,
        full: bool = False,
        repair: bool = False,
        grace: datetime.timedelta = GRACE,
        progress: Progress = lambda _: None,
    ) -> None:
        self.hub, self.full, self.repair = hub, full, repair
        self._grace, self._progress = grace, progress
        self.report = Report()
        self._place = "-"

    def run(self) -> Report:
        with self.hub.database.reading() as connection:
            repositories = [
                (row.id, f"{row.namespace}/{row.name}") for row in connection.execute(_repositories)
            ]
        for number, label in repositories:
            rows = self._rows(number, label)
            if rows is not None:
                self._place = label
                self._check_repository(rows)
                self.report.checked["repositories"] += 1
        self._place = "-"
        self._check_strays()
        self._check_leftover_rows()
        self._check_counters()
        with self.hub.database.snapshot() as connection:
            for fault in audit.faults(connection):
                self._fault("audit", str(fault.seq), fault.why)
            count = sa.select(sa.func.count()).select_from(tables.audit)
            self.report.checked["audit lines"] = connection.execute(count).scalar_one()
        return self.report

    def _fault(self, kind: str, name: str, why: str, *, repaired: bool = False) -> None:
        self.report.faults.append(Fault(self._place, kind, name, why, repaired))

    # One repository

    def _rows(self, number: int, label: str) -> _Repository | None:
        """Read the rows of a repository in one transaction; None if it was deleted."""
        with self.hub.database.snapshot() as connection:
            own = sa.select(tables.repository).where(tables.repository.c.id == number)
            row = connection.execute(own).mappings().first()
            if row is None:
                return None
            ref, object_, need, alias = tables.ref, tables.object_, tables.need, tables.alias
            refs = sa.select(ref).where(ref.c.repository_id == number)
            columns = (object_.c.kind, object_.c.hash, object_.c.size, object_.c.deleting)
            objects = connection.execute(
                sa.select(*columns).where(object_.c.repository_id == number)
            ).all()
            needs = connection.execute(
                sa.select(need.c.manifest, need.c.name, need.c.kind, need.c.hash).where(
                    need.c.repository_id == number
                )
            )
            aliases = sa.select(alias).where(alias.c.repository_id == number)
            return _Repository(
                id=number,
                label=label,
                uuid=row["uuid"],
                record=row["record"],
                refs=list(
                    connection.execute(refs.order_by(ref.c.name, ref.c.seq)).mappings().all()
                ),
                objects={(kind, digest): size for kind, digest, size, gone in objects if not gone},
                deleting={(kind, digest) for kind, digest, _, gone in objects if gone},
                needs={(row[0], row[1], row[2], row[3]) for row in needs},
                aliases=list(connection.execute(aliases).mappings().all()),
            )

    def _check_repository(self, rows: _Repository) -> None:
        store = self.hub.store_of(rows.uuid)
        self._check_record(rows, store)
        broken = self._check_objects(rows, store)
        needs: set[tuple[str, str, str, str]] = set()
        unread = set()
        for chain in self._chains(rows):
            live = published(chain)
            for ref in live.values():
                self.report.checked["versions"] += 1
                found = None if ("locators", ref.locator) in broken else self._needs(store, ref)
                if found is None:
                    unread.add((ref.manifest, ref.name))
                    continue
                needs |= found
                missing = sorted(
                    (kind, digest)
                    for _, _, kind, digest in found
                    if (kind, digest) not in rows.objects
                )
                for kind, digest in missing:
                    if self._has_row(rows.id, kind, digest):
                        continue
                    why = f"{ref.name}@{ref.number} needs it, and the database does not know it"
                    self._fault("object", object_key(kind, digest), why)
        self._check_needs(rows, needs, unread)

    def _check_record(self, rows: _Repository, store: Store) -> None:
        try:
            file = decode_remote(rows.record.encode(), f"{REMOTE_FILE} of {rows.label}")
            if file.uuid != rows.uuid:
                self._fault("record", REMOTE_FILE, "it has the uuid of another repository")
        except DlvError as error:
            self._fault("record", REMOTE_FILE, error.why or error.message)
            return
        if store.find(REMOTE_FILE, most=1 << 20) != rows.record.encode():
            if self.repair:
                store.put(REMOTE_FILE, rows.record.encode())
            self._fault(
                "record", REMOTE_FILE, "the store has another one, or none", repaired=self.repair
            )

    def _chains(self, rows: _Repository) -> Iterator[list[Ref]]:
        """Yield the history of each model, as far as it is intact."""
        chains: dict[str, list[Ref]] = {}
        stopped: set[str] = set()
        folded: dict[str, str] = {}
        for row in rows.refs:
            name = row["name"]
            if folded.setdefault(name.lower(), name) != name:
                self._fault(
                    "history", name, f"its name differs from {folded[name.lower()]} in case"
                )
            chain = chains.setdefault(name, [])
            if name in stopped:
                continue
            self.report.checked["refs"] += 1
            label = f"{name}, entry {row['seq']}"
            try:
                ref = decode_ref(bytes(row["record"]), label)
            except DlvError as error:
                self._fault("history", label, error.why or error.message)
                stopped.add(name)
                continue
            why = _wrong_row(row, ref) or _wrong_link(chain, ref)
            if why is not None:
                self._fault("history", label, why)
                stopped.add(name)
                continue
            chain.append(ref)
        self._check_aliases(rows, chains)
        yield from chains.values()

    def _check_aliases(self, rows: _Repository, chains: dict[str, list[Ref]]) -> None:
        for alias in rows.aliases:
            live = published(chains.get(alias["name"], []))
            ref = live.get(alias["manifest"])
            label = f"{alias['name']}@{alias['alias']}"
            self.report.checked["aliases"] += 1
            if ref is None or ref.number != alias["number"]:
                self._fault("alias", label, f"no version {alias['number']}")

    def _needs(self, store: Store, ref: Ref) -> set[tuple[str, str, str, str]] | None:
        """Return the rows of what a version needs; None if its records cannot be read."""
        label = f"{ref.name}@{ref.number}"
        kind, digest = "manifests", ref.manifest
        try:
            data = _verified(store, "manifests", ref.manifest, MOST_MANIFEST)
            manifest_format.decode(data, f"the manifest of {label}")
            kind, digest = "locators", ref.locator
            data = _verified(store, "locators", ref.locator, MOST_BYTES)
            locator = decode_locator(data, f"the locator of {label}")
            if locator.version != ref.manifest:
                raise Damaged(f"the locator of {label} belongs to another version")
        except MissingObject:
            return None  # is a fault of its own, from the listing
        except DlvError as error:
            self._fault("object", object_key(kind, digest), error.why or error.message)
            return None
        named = {("manifests", ref.manifest), ("locators", ref.locator)}
        named |= {("packs", pack) for pack in locator.packs}
        named |= {("facts", fact) for fact in locator.facts}
        return {(ref.manifest, ref.name, *each) for each in named}

    def _check_needs(
        self, rows: _Repository, needs: set[tuple[str, str, str, str]], unread: set[tuple[str, str]]
    ) -> None:
        known = {row for row in rows.needs if row[:2] not in unread}
        self.report.checked["needs"] += len(rows.needs)
        for row in sorted(needs ^ known):
            manifest, name, kind, digest = row
            missing = row in needs
            if self._newer(rows, name):
                continue  # published or retired during the check
            if self.repair:
                self._correct_need(rows.id, row, missing=missing)
            why = "is not noted as needed" if missing else "is noted, but the version lacks it"
            self._fault(
                "need",
                f"{name} {manifest[:7]}: {object_key(kind, digest)}",
                why,
                repaired=self.repair,
            )

    def _newer(self, rows: _Repository, name: str) -> bool:
        """Whether a model was changed since its rows were read."""
        seqs = [row["seq"] for row in rows.refs if row["name"] == name]
        query = sa.select(sa.func.max(tables.ref.c.seq)).where(
            tables.ref.c.repository_id == rows.id, tables.ref.c.name == name
        )
        with self.hub.database.reading() as connection:
            return connection.execute(query).scalar() != max(seqs, default=None)

    def _correct_need(
        self, repository_id: int, row: tuple[str, str, str, str], *, missing: bool
    ) -> None:
        names = ("manifest", "name", "kind", "hash")
        values = {"repository_id": repository_id, **dict(zip(names, row, strict=True))}
        need = tables.need
        with self.hub.database.writing() as connection:
            connection.execute(sa.delete(need).where(_equal(need, values)))
            if missing:
                connection.execute(sa.insert(need).values(**values))

    # Objects

    def _check_objects(self, rows: _Repository, store: Store) -> set[tuple[str, str]]:
        """Compare rows with the store; return (kind, hash) of objects that are not intact."""
        stored: dict[tuple[str, str], Entry] = {}
        others = []
        for entry in store.entries(""):
            match = _OBJECT.match(entry.key)
            if match and object_key(match[1], match[2]) == entry.key:
                stored[match[1], match[2]] = entry
            elif entry.key != REMOTE_FILE:
                others.append(entry)
        self.report.checked["objects"] += len(rows.objects)
        wrong: dict[tuple[str, str], str] = {}
        for name, size in rows.objects.items():
            entry = stored.get(name) or Entry("", -1, 0.0)
            if entry.size != size and (why := self._wrong_size(rows, store, name)):
                wrong[name] = why
        intact = [name for name in rows.objects if name not in wrong]
        self.report.bytes += sum(rows.objects[name] for name in intact)
        if self.full:
            wrong |= self._wrong_bytes(rows, store, intact)
        for (kind, digest), why in sorted(wrong.items()):
            self._fault("object", object_key(kind, digest), why)
        for name, entry in stored.items():
            if name not in rows.objects and name not in rows.deleting:
                others.append(entry)
        self._leave(rows, store, others)
        return set(wrong)

    def _wrong_size(self, rows: _Repository, store: Store, name: tuple[str, str]) -> str | None:
        """Look again for an object that the listing does not have as its row says."""
        size = store.size(object_key(*name))
        if size == rows.objects[name]:
            return None
        if not self._has_row(rows.id, *name):
            return None  # deleted during the check
        if size is None:
            return "it is missing in the store"
        return f"it has {size} bytes instead of {rows.objects[name]}"

    def _wrong_bytes(
        self, rows: _Repository, store: Store, names: list[tuple[str, str]]
    ) -> dict[tuple[str, str], str]:
        def wrong(name: tuple[str, str]) -> str | None:
            try:
                digest = hash_of_object(store, object_key(*name), rows.objects[name])
            except (MissingObject, DlvError) as error:
                if not self._has_row(rows.id, *name):
                    return None
                return getattr(error, "message", None) or "it is missing in the store"
            self._progress(rows.objects[name])
            return None if digest == name[1] else "its bytes have another hash"

        with ThreadPoolExecutor(THREADS) as pool:
            reasons = pool.map(wrong, names)
            return {name: why for name, why in zip(names, reasons, strict=True) if why}

    def _has_row(self, repository_id: int, kind: str, digest: str) -> bool:
        table = tables.object_.c
        query = sa.select(table.size).where(
            table.repository_id == repository_id,
            table.kind == kind,
            table.hash == digest,
            ~table.deleting,
        )
        with self.hub.database.reading() as connection:
            return connection.execute(query).first() is not None

    def _leave(self, rows: _Repository, store: Store, entries: list[Entry]) -> None:
        """Report bytes without a row that are older than the grace, and delete them with repair."""
        oldest = time.time() - self._grace.total_seconds()
        nonces = self._uploads(rows.id)
        for entry in sorted(entries):
            if entry.modified > oldest or any(nonce in entry.key for nonce in nonces):
                continue
            deleted = self.repair and self._delete_object(rows, store, entry.key)
            self.report.leftovers.append(
                Leftover(self._place, "object", entry.key, entry.size, deleted)
            )

    def _uploads(self, repository_id: int) -> list[str]:
        query = sa.select(tables.upload.c.nonce).where(
            tables.upload.c.repository_id == repository_id, tables.upload.c.expires > timestamp()
        )
        with self.hub.database.reading() as connection:
            return list(connection.execute(query).scalars())

    def _delete_object(self, rows: _Repository, store: Store, key: str) -> bool:
        """Delete bytes, unless a client is sending them.

        A row that says `deleting` keeps publishers away from the object until then.
        """
        match = _OBJECT.match(key)
        if match is None:
            store.delete(key)
            return True
        table = tables.object_
        own = {"repository_id": rows.id, "kind": match[1], "hash": match[2]}
        with self.hub.database.writing() as connection:
            lock = sa.select(tables.repository.c.id).where(tables.repository.c.id == rows.id)
            if connection.execute(lock.with_for_update()).first() is None:
                return False
            for other in (tables.object_, tables.upload):
                if connection.execute(sa.select(other.c.hash).where(_equal(other, own))).first():
                    return False
            values = {**own, "size": 0, "touched": timestamp(), "deleting": True}
            connection.execute(sa.insert(table).values(**values))
        store.delete(key)
        with self.hub.database.writing() as connection:
            connection.execute(sa.delete(table).where(_equal(table, own), table.c.deleting))
        return True

    # The whole hub

    def _check_strays(self) -> None:
        """Find bytes of repositories that do not exist, as a deletion that was cut short leaves."""
        with self.hub.database.reading() as connection:
            known = set(connection.execute(sa.select(tables.repository.c.uuid)).scalars())
        oldest = time.time() - self._grace.total_seconds()
        store = self.hub.store_of("")
        for entry in store.entries(""):
            match = _UUID.match(entry.key)
            if match is None or match[1] in known or entry.modified > oldest:
                continue
            if self.repair:
                store.delete(entry.key)
            self.report.leftovers.append(
                Leftover("-", "object", entry.key, entry.size, self.repair)
            )

    def _check_leftover_rows(self) -> None:
        """Find uploads and leases that have expired, and deletions that did not end."""
        now, old = timestamp(), timestamp(current_moment() - self._grace)
        upload, lease, object_ = tables.upload, tables.lease, tables.object_
        expired = (
            ("upload", upload, upload.c.expires < now),
            ("lease", lease, lease.c.expires < now),
            ("deletion", object_, sa.and_(object_.c.deleting, object_.c.touched < old)),
        )
        for kind, table, condition in expired:
            query = _repositories.add_columns(tables.repository.c.uuid, *table.columns)
            query = query.join(table, table.c.repository_id == tables.repository.c.id)
            with self.hub.database.reading() as connection:
                rows = connection.execute(query.where(condition)).mappings().all()
            for row in rows:
                name = row["lease"] if kind == "lease" else object_key(row["kind"], row["hash"])
                label = f"{row['namespace']}/{row['name']}"
                self.report.leftovers.append(
                    Leftover(label, kind, name, row.get("size", 0), self.repair)
                )
            if self.repair:
                for number in {row["repository_id"] for row in rows}:
                    marked = [
                        (row["kind"], row["hash"])
                        for row in rows
                        if kind == "deletion" and row["repository_id"] == number
                    ]
                    self._clear(number, marked)

    def _clear(self, number: int, marked: list[tuple[str, str]]) -> None:
        with self.hub.database.reading() as connection:
            row = connection.execute(
                _repositories.add_columns(tables.repository).where(tables.repository.c.id == number)
            ).first()
        if row is not None:
            place = Place(
                id=number, namespace_id=row.namespace_id, namespace=row.namespace, name=row.name,
                uuid=row.uuid, public=False, record="", description="", role=Role.ADMIN,
            )  # fmt: skip
            collecting.drop_expired(self.hub, place)
            objects.delete_marked(self.hub, place, marked)

    def _check_counters(self) -> None:
        """Compare what accounts use with the sums of their objects and uploads."""
        account = tables.account
        lock = self.hub.database.writing if self.repair else self.hub.database.snapshot
        with lock() as connection:
            if self.repair:
                connection.execute(sa.select(account.c.id).with_for_update())
            sums = {
                "used": _sums(connection, tables.object_),
                "reserved": _sums(connection, tables.upload),
            }
            for row in connection.execute(sa.select(account)).mappings().all():
                self.report.checked["accounts"] += 1
                for column, totals in sums.items():
                    total = totals.get(row["id"], 0)
                    if row[column] == total:
                        continue
                    if self.repair:
                        connection.execute(
                            sa.update(account)
                            .where(account.c.id == row["id"])
                            .values({column: total})
                        )
                    why = f"`{column}` is {row[column]} bytes, and the sum is {total}"
                    self._fault("quota", row["name"], why, repaired=self.repair)


def _equal(table: sa.Table, values: Mapping[str, object]) -> sa.ColumnElement[bool]:
    return sa.and_(*(table.c[key] == value for key, value in values.items()))


_repositories = (
    sa.select(tables.repository.c.id, tables.repository.c.name, tables.account.c.name.label(
        "namespace"
    ))
    .join(tables.account, tables.account.c.id == tables.repository.c.namespace_id)
    .order_by(tables.account.c.name, tables.repository.c.name)
)  # fmt: skip


def _sums(connection: sa.Connection, table: sa.Table) -> dict[int, int]:
    """Map the ids of namespaces to the sum of sizes in all their repositories."""
    query = (
        sa.select(tables.repository.c.namespace_id, sa.func.sum(table.c.size))
        .join(tables.repository, tables.repository.c.id == table.c.repository_id)
        .group_by(tables.repository.c.namespace_id)
    )
    return {number: int(total) for number, total in connection.execute(query)}


def _wrong_row(row: sa.RowMapping, ref: Ref) -> str | None:
    """Return in what a row differs from the record in it."""
    for column in ("name", "seq", "kind", "number", "manifest", "locator", "hash"):
        if row[column] != getattr(ref, column):
            return f"its column `{column}` differs from its record"
    if ref.encode() != bytes(row["record"]):
        return "its record was not written by dlv"
    return None


def _wrong_link(chain: list[Ref], ref: Ref) -> str | None:
    before = chain[-1].hash if chain else None
    if ref.seq != len(chain) + 1:
        return f"entry {len(chain) + 1} is missing"
    if ref.prev != before:
        return "it does not follow from the entry before it"
    return None


def _verified(store: Store, kind: str, digest: str, most: int) -> bytes:
    data = store.get(object_key(kind, digest), most=most)
    if hash_bytes(data) != digest:
        raise Damaged("its bytes have another hash")
    return data


def hash_of_object(store: Store, key: str, size: int) -> str:
    """Return the hash of an object, which is read in pieces."""
    running = hasher()
    for start in range(0, size, PIECE):
        running.update(store.get_range(key, start, min(PIECE, size - start)))
    return running.hexdigest()


def check(
    hub: Hub,
    *,
    full: bool = False,
    repair: bool = False,
    grace: datetime.timedelta = GRACE,
    progress: Progress = lambda _: None,
) -> Report:
    """Check a hub; it may be in use."""
    return Checker(hub, full=full, repair=repair, grace=grace, progress=progress).run()


def total_bytes(hub: Hub) -> int:
    """Return the size of all objects, as the database has it."""
    query = sa.select(sa.func.coalesce(sa.func.sum(tables.object_.c.size), 0))
    with hub.database.reading() as connection:
        return int(connection.execute(query).scalar_one())
