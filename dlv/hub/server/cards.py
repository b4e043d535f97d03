"""Cards of published versions: brought up to date with the refs of a repository.

Refs are the truth, and cards follow: what one process misses, the next one that looks makes. The
cards of a repository change under a lock of their own, so that two processes do not do it twice.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import sqlalchemy as sa

from dlv.dataclass import dataclass
from dlv.errors import DlvError
from dlv.hub.records import Ref, decode_ref
from dlv.hub.server import card_rows, tables
from dlv.hub.server.access import Place
from dlv.hub.server.card_rows import NewCard
from dlv.hub.server.hub import Hub
from dlv.hub.server.published_card import CardMaker

_LOCK = 0x646C79  # any number that no other program locks
TOGETHER = 16  # cards that are written in one transaction

_Key = tuple[str, str]  # name and manifest


@dataclass(frozen=True)
class _Published:
    """The newest ref of a version that was not retired."""

    name: str
    seq: int
    number: int
    manifest: str
    locator: str


@dataclass(frozen=True)
class _Due:
    """What has to be done to the cards of a repository."""

    missing: dict[_Key, _Published]
    stale: list[int]


def make_cards(
    hub: Hub, repository_id: int, uuid: str, label: str, model: str | None = None
) -> int:
    """Bring the cards of a repository, or of one model, up to date; return how many were made.

    RemoteError, StorageError: the store could not be read, so that some are still missing.
    """
    with hub.database.reading() as connection:
        due = _due(connection, repository_id, model)
    if not due.missing:
        _write(hub, repository_id, [], model)
        return 0
    count, failures = 0, list[DlvError]()
    versions = list(due.missing.values())
    for start in range(0, len(versions), TOGETHER):
        new_cards: list[NewCard] = []
        with tempfile.TemporaryDirectory(dir=hub.tmp) as folder:
            maker = CardMaker(hub.store_of(uuid), Path(folder))
            for version in versions[start : start + TOGETHER]:
                ref = _ref(hub, repository_id, version)
                try:
                    new, error = (None, None) if ref is None else maker.card(ref)
                except DlvError as unreadable:
                    failures.append(unreadable)
                    continue
                if error is not None:
                    hub.log("card", f"{label}:{version.name}@{version.number}", error)
                if new is not None:
                    new_cards.append(new)
        count += _write(hub, repository_id, new_cards, model)
    if failures:
        raise failures[0]
    return count


def make_later(hub: Hub, place: Place, model: str) -> None:
    """Make the cards of new versions after the request has been answered."""
    due = (place.id, model)
    if due in hub.backlog:
        return
    hub.backlog.add(due)

    def make() -> None:
        hub.backlog.discard(due)
        try:
            make_cards(hub, place.id, place.uuid, place.label, model)
        except Exception as error:  # the next publish, or the next start, tries again
            hub.log("cards", place.label, error)

    hub.after(make)


def catch_up(hub: Hub) -> int:
    """Make the cards that were missed, such as when a process ended early; return how many."""
    need, card, repository = tables.need.c, tables.card.c, tables.repository.c
    has_card = sa.exists().where(
        card.repository_id == need.repository_id,
        card.manifest == need.manifest,
        card.name == need.name,
    )
    has_need = sa.exists().where(
        need.repository_id == card.repository_id,
        need.manifest == card.manifest,
        need.name == card.name,
    )
    late = sa.union(
        sa.select(need.repository_id).where(~has_card),
        sa.select(card.repository_id).where(~has_need),
    ).subquery()
    query = sa.select(repository.id, repository.uuid, tables.account.c.name, repository.name)
    query = query.join(tables.account, tables.account.c.id == repository.namespace_id)
    query = query.where(repository.id.in_(sa.select(late))).order_by(repository.id)
    with hub.database.reading() as connection:
        rows = connection.execute(query).all()
    count = 0
    for key, uuid, namespace, name in rows:
        try:
            count += make_cards(hub, key, uuid, f"{namespace}/{name}")
        except Exception as error:  # one repository does not keep the others waiting
            hub.log("cards", f"{namespace}/{name}", error)
    return count


def rebuild(hub: Hub, repository_id: int, uuid: str, label: str) -> int:
    """Make all cards of a repository again."""
    with hub.database.writing() as connection:
        keys = sa.select(tables.card.c.id).where(tables.card.c.repository_id == repository_id)
        card_rows.delete(connection, list(connection.execute(keys).scalars()))
        _note_change(connection, repository_id)
    return make_cards(hub, repository_id, uuid, label)


def _published(
    connection: sa.Connection, repository_id: int, model: str | None
) -> dict[_Key, _Published]:
    """Return the versions that count, in the order in which they were published."""
    ref = tables.ref.c
    query = (
        sa.select(ref.name, ref.seq, ref.number, ref.manifest, ref.locator, ref.kind)
        .where(ref.repository_id == repository_id, ref.kind != "tag")
        .order_by(ref.created, ref.name, ref.seq)
    )
    if model is not None:
        query = query.where(ref.name == model)
    versions: dict[_Key, _Published] = {}
    seen: dict[_Key, int] = {}
    for name, seq, number, manifest, locator, kind in connection.execute(query):
        key = (name, manifest)
        if seq < seen.get(key, 0):
            continue  # clocks of servers differ; the number of a ref decides
        seen[key] = seq
        if kind == "retire":
            versions.pop(key, None)
        elif kind == "publish" or key in versions:
            versions[key] = _Published(name, seq, number, manifest, locator)
    return versions


def _due(connection: sa.Connection, repository_id: int, model: str | None) -> _Due:
    card = tables.card.c
    missing = _published(connection, repository_id, model)
    stale: list[int] = []
    query = sa.select(
        card.id, card.name, card.manifest, card.number, card.locator, card.whole
    ).where(card.repository_id == repository_id)
    if model is not None:
        query = query.where(card.name == model)
    for key, name, manifest, number, locator, whole in connection.execute(query):
        version = missing.get((name, manifest))
        current = version is not None and version.number == number
        # What could not be read may be whole in packs that were written later.
        if version is not None and current and (whole or version.locator == locator):
            del missing[name, manifest]
        else:
            stale.append(key)
    return _Due(missing, stale)


def _ref(hub: Hub, repository_id: int, version: _Published) -> Ref | None:
    columns = tables.ref.c
    query = sa.select(columns.record).where(
        columns.repository_id == repository_id,
        columns.name == version.name,
        columns.seq == version.seq,
    )
    with hub.database.reading() as connection:
        data = connection.execute(query).scalar()
    return None if data is None else decode_ref(bytes(data), f"ref {version.name}@{version.number}")


def _write(hub: Hub, repository_id: int, new_cards: Sequence[NewCard], model: str | None) -> int:
    """Write cards of versions that still count, and delete those of others."""
    repository = tables.repository
    with hub.database.writing() as connection:
        if connection.dialect.name == "postgresql":
            # Publishers lock the row of the repository. This lock does not make them wait.
            lock = sa.func.pg_advisory_xact_lock((_LOCK << 32) + repository_id % (1 << 32))
            connection.execute(sa.select(lock))
        query = sa.select(repository.c.id).where(repository.c.id == repository_id)
        query = query.with_for_update(key_share=True, read=True)
        if connection.execute(query).first() is None:
            return 0  # the repository was deleted
        due = _due(connection, repository_id, model)
        wanted = [new for new in new_cards if _still_due(due, new)]
        if not wanted and not due.stale:
            return 0
        card_rows.delete(connection, due.stale)
        networks = {new.network.id: new.network for new in wanted if new.network is not None}
        card_rows.insert_networks(connection, networks.values())
        rows = [(repository_id, card_rows.rows_of(new)) for new in wanted]
        card_rows.insert(connection, rows)
        _note_change(connection, repository_id)
    return len(wanted)


def _still_due(due: _Due, new: NewCard) -> bool:
    version = due.missing.get((new.record["name"], new.record["id"]))
    return version is not None and version.number == new.record["number"]


def _note_change(connection: sa.Connection, repository_id: int) -> None:
    table = tables.repository
    query = sa.update(table).where(table.c.id == repository_id)
    connection.execute(query.values(cards=table.c.cards + 1))
