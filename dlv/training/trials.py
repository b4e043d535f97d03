"""Where trials lie in a repository: their ledger, a file of its own, and a folder for each."""

from __future__ import annotations

import dlv.disk.durable as durable
from dlv.disk.mounts import network_disk
from dlv.errors import StorageError
from dlv.metadata.trials import Trials
from dlv.repository.handle import Repository

EXTRACTED = "data"  # among their folders: files of versions that they are trained on


def open_store(repository: Repository) -> Trials:
    """The store of the ledger. Heartbeats there hold up no commit, and a catalogue may be made
    again while trials are running."""
    if network_disk(repository.path):
        raise StorageError(
            f"{repository.path} lies on a network disk",
            why="processes share the ledger of trials through the memory of one machine",
            hint="evaluate in a clone on a local disk, and push the versions that it makes",
        )
    store = Trials(repository.trials_path, patience=repository.patience)
    durable.inherit_rights(*(f"{repository.trials_path}{end}" for end in ("", "-wal", "-shm")))
    return store
