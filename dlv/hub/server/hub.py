"""A hub: its database, the store of each repository, and what it limits."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import sqlalchemy as sa

import dlv.disk.durable as durable
from dlv.canonical import timestamp
from dlv.errors import UsageError
from dlv.hub.server import tables
from dlv.hub.server.access import Caller, Place
from dlv.hub.server.database import HubDatabase, open_database
from dlv.hub.server.limiting import Buffers
from dlv.hub.server.settings import Settings
from dlv.hub.stores.interface import Store
from dlv.hub.stores.objects import ObjectStore
from dlv.hub.stores.opening import open_store

DATABASE = "hub.db"  # in the folder of `--data`, unless another database is named
OBJECTS = "objects"
STORES = 100  # that are kept open
SIGNED = timedelta(minutes=15)  # that a signed address can be used


class Hub:
    """An open hub. Processes share nothing but the database and the store."""

    def __init__(self, settings: Settings, environ: Mapping[str, str] = os.environ) -> None:
        durable.make_directory(settings.data)
        self.settings = settings
        self.limits = settings.limits
        self.environ = environ
        self.log: Callable[[str, str, Exception], None] = lambda *_: None
        self._lock = threading.Lock()
        self._stores: OrderedDict[str, Store] = OrderedDict()
        self.on_published: Callable[[Place, str], None] = lambda *_: None  # and the model
        self.backlog: set[tuple[int, str]] = (
            set()
        )  # repositories and models whose cards will be made
        self.buffers = Buffers(settings.limits.buffered)
        self._used: dict[int, float] = {}  # when the use of a token was noted last
        self._after = ThreadPoolExecutor(1, thread_name_prefix="dlv-hub")
        self.database: HubDatabase = open_database(settings.database)

    def store_of(self, uuid: str) -> Store:
        """Return the store of one repository, laid out like any remote.

        Stores are kept, because each has connections of its own.
        """
        with self._lock:
            store = self._stores.pop(uuid, None)
            if store is None:
                store = open_store(f"{self.settings.store.rstrip('/')}/{uuid}", self.environ)
            self._stores[uuid] = store
            while len(self._stores) > STORES:
                self._stores.popitem(last=False)
        return store

    def signed(self, uuid: str, key: str, method: str) -> str | None:
        """Return an address at which a client reads or writes one object for some minutes."""
        store = self.store_of(uuid)
        return store.signed(key, method, SIGNED) if isinstance(store, ObjectStore) else None

    def after(self, work: Callable[[], object]) -> None:
        """Do something after the request has been answered; one thing at a time."""
        self._after.submit(work)

    def note_use(self, caller: Caller) -> None:
        """Note that a token was used, at most once a minute."""
        now = time.monotonic()
        with self._lock:
            if caller.token_id is None or now - self._used.get(caller.token_id, -61.0) < 60:
                return
            if len(self._used) > 10_000:
                self._used.clear()
            self._used[caller.token_id] = now
        self._after.submit(self._write_use, caller.token_id)

    def _write_use(self, token_id: int) -> None:
        token = tables.token
        try:
            with self.database.writing() as connection:
                connection.execute(
                    sa.update(token).where(token.c.id == token_id).values(used=timestamp())
                )
        except sa.exc.SQLAlchemyError as error:
            self.log("token", str(token_id), error)

    @property
    def tmp(self) -> Path:
        return durable.make_directory(self.settings.data / "tmp")

    def close(self) -> None:
        """Finish what has begun, and close the database."""
        self._after.shutdown(wait=True)
        self.database.close()


def places(data: Path | None, database: str | None, store: str | None) -> tuple[str, str, Path]:
    """Return (database, store, data) for what was named, by default all below one folder."""
    if data is None and (database is None or store is None):
        raise UsageError(
            "a hub needs a place for its data",
            hint="use --data DIR, or --database postgresql://.. and --store s3://..",
        )
    folder = (data or Path.home() / ".cache" / "dlv" / "hub").absolute()
    return (database or f"sqlite:///{folder / DATABASE}", store or str(folder / OBJECTS), folder)
