"""Folders of trials that no run needs any more; what they logged stays in the ledger.

They are deleted, not quarantined: the same query trains them again, to the same bits.
"""

from __future__ import annotations

import datetime
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import dlv.durable as durable
import dlv.trials as trials
from dlv.canonical import is_hash, moment_of, timestamp
from dlv.errors import StorageError
from dlv.repository import Repository

# A query writes the folders first, and then enters its trials into the ledger.
LEAST = datetime.timedelta(hours=1)


@dataclass(frozen=True)
class Unneeded:
    """A folder that may go, with what it takes."""

    path: Path
    bytes: int


def unneeded(repository: Repository, grace: datetime.timedelta) -> list[Unneeded]:
    """Those that nobody has touched for the time of grace, of no run or stopped in all of them."""
    if not repository.trials_folder.is_dir():
        return []
    needed: set[str] = set()
    if repository.trials_path.exists():
        try:
            with trials.open_store(repository) as store:
                needed = store.needed()
        except StorageError:  # on a network disk: it cannot be asked
            return []
    latest = (moment_of(timestamp()) - max(grace, LEAST)).timestamp()
    found = []
    for path in sorted(repository.trials_folder.iterdir()):
        # What is no trial is the beginning of one, or data that trials share.
        spare = path.name not in needed if is_hash(path.name) else not needed
        if spare and path.is_dir() and not path.is_symlink():
            touched, size = _extent(path)
            if touched < latest:
                found.append(Unneeded(path, size))
    return found


def _extent(folder: Path) -> tuple[float, int]:
    """When anything in it was written last, and its bytes."""
    touched, size = folder.lstat().st_mtime, 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # of a trial that somebody is training
            status = path.lstat()
            touched, size = max(touched, status.st_mtime), size + status.st_size
    return touched, size


def discard(repository: Repository, found: Sequence[Unneeded]) -> None:
    """Out of sight first: half a folder would be taken for a trial."""
    for each in found:
        aside = repository.tmp / f"trial-{os.urandom(8).hex()}"
        durable.move_all([(each.path, aside)])
        shutil.rmtree(aside, ignore_errors=True)
