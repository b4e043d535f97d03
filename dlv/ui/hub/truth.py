"""A repository of the hub as a remote that is only read: refs from the database, objects from the
store."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from dlv.hub.history import PAGE, History
from dlv.hub.records import REMOTE_FILE, decode_remote
from dlv.hub.remotes import Remote
from dlv.hub.server import repositories, tables
from dlv.hub.server.access import Place
from dlv.hub.server.hub import Hub
from dlv.hub.stores.interface import MissingObject, Store


class Truth(Store):
    """What the hub has of one repository. Nothing can be written through it."""

    writable = False
    managed = True

    def __init__(self, hub: Hub, place: Place, objects: Store) -> None:
        super().__init__()
        self.url = place.label
        self._hub, self._place, self._objects = hub, place, objects

    @property
    def listable(self) -> bool:
        return True

    def names(self) -> list[str]:
        with self._hub.database.reading() as connection:
            return list(repositories.newest_refs(connection, self._place.id))

    def records(self, name: str, after: int) -> list[bytes]:
        with self._hub.database.reading() as connection:
            return repositories.records_of(connection, self._place.id, name, after, PAGE)

    def _get(self, key: str, most: int) -> bytes:
        if key == REMOTE_FILE:
            return self._place.record.encode()
        parts = key.split("/")
        if parts[0] != "refs":
            return self._objects.get(key, most=most)
        number = parts[-1].removesuffix(".json")
        if len(parts) != 3 or not (number.isascii() and number.isdigit()):
            raise MissingObject(key)
        with self._hub.database.reading() as connection:
            record = repositories.record_of(connection, self._place.id, parts[1], int(number))
        if record is None:
            raise MissingObject(key)
        return record[0]

    def _get_range(self, key: str, start: int, length: int) -> bytes:
        return self._objects.get_range(key, start, length)

    def _size(self, key: str) -> int | None:
        return self._objects.size(key)

    def _modified(self, key: str) -> float | None:
        return self._objects.modified(key)

    def _put(self, key: str, data: bytes) -> None:  # noqa: ARG002
        raise self.broken(f"{key} would be written")

    def _create(self, key: str, data: bytes) -> bool:  # noqa: ARG002
        raise self.broken(f"{key} would be written")

    def _keys(self, prefix: str) -> list[str]:
        return self._objects.keys(prefix)

    def _delete(self, key: str) -> None:
        raise self.broken(f"{key} would be deleted")


def remote_of(hub: Hub, place: Place, objects: Store, cache: Path, tmp: Path) -> Remote:
    """Return the repository as a remote whose history is cached in a folder."""
    store = Truth(hub, place, objects)
    file = decode_remote(place.record.encode(), f"{REMOTE_FILE} of {place.label}")
    return Remote(place.name, place.label, store, file, History(store, cache, tmp))


def state_of(hub: Hub, place: Place) -> str:
    """Return words that change whenever a ref of the repository is written."""
    repository, ref = tables.repository.c, tables.ref.c
    count = sa.select(sa.func.count()).where(ref.repository_id == place.id).scalar_subquery()
    query = sa.select(repository.changed, count).where(repository.id == place.id)
    with hub.database.reading() as connection:
        row = connection.execute(query).first()
    return "" if row is None else f"{row[0]} {row[1]}"
