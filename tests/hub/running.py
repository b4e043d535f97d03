"""A hub that runs in this process, on a free port, with a user `ada` and her tokens."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa

import dlv.hub.server.accounts as accounts
import dlv.hub.server.tables as tables
import dlv.hub.server.tokens as tokens
from dlv.canonical import timestamp
from dlv.hub.records import object_key
from dlv.hub.server.access import Caller, Role
from dlv.hub.server.hub import Hub
from dlv.hub.server.serving import application, server
from dlv.hub.server.settings import Limits, Settings
from dlv.hub.stores.server import HubStore
from dlv.hub.stores.web import WebClient
from dlv.ui.serving import bound

LIMITS = Limits(requests=10_000_000, anonymous=10_000_000, logins=10_000_000)


class RunningHub:
    """The server, and what a test needs of it without the API."""

    def __init__(self, hub: Hub, url: str) -> None:
        self.hub, self.url = hub, url
        self.users: dict[str, int] = {}
        self.token = self.new_user("ada")

    def new_user(self, name: str, role: Role = Role.ADMIN) -> str:
        """Add a user; return a token."""
        with self.hub.database.writing() as connection:
            self.users[name] = accounts.add_user(connection, Caller(), name)
        return self.new_token(name, role)

    def new_token(self, name: str, role: Role = Role.ADMIN) -> str:
        with self.hub.database.writing() as connection:
            return tokens.create_token(
                connection, Caller(), self.users[name], name="test", scope=tokens.Scope(role)
            )[1]

    def store(self, repository: str = "ada/models", token: str | None = None) -> HubStore:
        """Return a store of a repository, which is created if there is none."""
        url = f"{self.url}/{repository}"
        store = HubStore(url, WebClient(url, token or self.token))
        if store.find("dlv-remote.json", most=1 << 16) is None:
            store.create_remote()
        store.traffic.requests = store.traffic.sent = store.traffic.received = 0
        return store

    def behind(self, repository: str = "ada/models") -> Behind:
        return Behind(self.hub, repository)


class Behind:
    """Objects of a repository, by their keys, read and written without the API."""

    def __init__(self, hub: Hub, repository: str) -> None:
        self._hub = hub
        table = tables.repository
        with hub.database.reading() as connection:
            row = connection.execute(
                sa.select(table.c.id, table.c.uuid).where(
                    table.c.name == repository.partition("/")[2]
                )
            ).one()
        self.id, self._store = row.id, hub.store_of(row.uuid)

    def __getitem__(self, key: str) -> bytes:
        return self._store.get(key, most=1 << 30)

    def keys(self, prefix: str) -> list[str]:
        return self._store.keys(prefix)

    def __contains__(self, key: str) -> bool:
        return self._store.size(key) is not None

    def __setitem__(self, key: str, data: bytes) -> None:
        kind, digest = key.split("/")[0], key.rpartition("/")[2].partition(".")[0]
        assert key == object_key(kind, digest)
        self._store.put(key, data)
        values = {
            "repository_id": self.id,
            "kind": kind,
            "hash": digest,
            "size": len(data),
            "touched": timestamp(),
            "deleting": False,
        }
        with self._hub.database.writing() as connection:
            connection.execute(sa.insert(tables.object_).values(**values))


@contextmanager
def running_hub(
    folder: Path, *, limits: Limits = LIMITS, database: str | None = None, **settings: Any
) -> Iterator[RunningHub]:
    """Start a hub; stop it at the end, after the requests in progress."""
    with bound("127.0.0.1", 0) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        usual = Settings(
            database=database or f"sqlite:///{folder / 'hub.db'}",
            store=str(folder / "objects"),
            data=folder,
            url=url,
            limits=limits,
        )
        hub = Hub(replace(usual, **settings))
        running = server(application(hub), hub)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            yield RunningHub(hub, url)
        finally:
            running.should_exit = True
            thread.join(60)
            hub.close()
