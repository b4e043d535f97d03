"""A hub: its database, the store of each repository, and what it limits."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import dlv.disk.durable as durable
from dlv.errors import UsageError
from dlv.hub.server.database import HubDatabase, open_database
from dlv.hub.server.settings import Settings
from dlv.hub.stores.interface import Store
from dlv.hub.stores.opening import open_store

DATABASE = "hub.db"  # in the folder of `--data`, unless another database is named
OBJECTS = "objects"


class Hub:
    """An open hub. Processes share nothing but the database and the store."""

    def __init__(self, settings: Settings, environ: Mapping[str, str] = os.environ) -> None:
        durable.make_directory(settings.data)
        self.settings = settings
        self.limits = settings.limits
        self.environ = environ
        self.database: HubDatabase = open_database(settings.database)

    def store_of(self, uuid: str) -> Store:
        """Return the store of one repository, laid out like any remote."""
        return open_store(f"{self.settings.store.rstrip('/')}/{uuid}", self.environ)

    @property
    def tmp(self) -> Path:
        return durable.make_directory(self.settings.data / "tmp")

    def close(self) -> None:
        self.database.close()


def places(data: Path | None, database: str | None, store: str | None) -> tuple[str, str, Path]:
    """Return (database, store, data) for what was named, by default all below one folder."""
    if data is None and (database is None or store is None):
        raise UsageError(
            "a hub needs a place for its data",
            hint="dlv hub serve --data DIR, or --database postgresql://.. --store s3://..",
        )
    folder = (data or Path.home() / ".cache" / "dlv" / "hub").absolute()
    return (database or f"sqlite:///{folder / DATABASE}", store or str(folder / OBJECTS), folder)
