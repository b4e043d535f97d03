"""A stored series in figures, for a catalogue that is still being brought up to date."""

from __future__ import annotations

from contextlib import closing

import dlv.weights.catalogue as catalogue
from dlv.errors import DlvError
from dlv.metadata.database import Database
from dlv.metadata.matrices import PackIndex
from dlv.metadata.metrics import Summary
from dlv.weights.store import Located, MatrixStore


def read(repository: Located, db: Database, digest: str) -> Summary | None:
    """None if it cannot be read: `fsck` says so, and a migration is not to fail for it."""
    store = MatrixStore(repository.packs, repository.tmp, PackIndex(db))
    try:
        with closing(store):
            return catalogue.summary(store, digest)
    except DlvError:
        return None
