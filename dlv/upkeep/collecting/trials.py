"""Folders of trials that no run needs any more; what they logged stays in the ledger.

They are deleted, not quarantined: the same query trains them again, to the same bits.
"""

from __future__ import annotations

import datetime
import json
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import dlv.disk.durable as durable
import dlv.training.trial_files as trials
from dlv.canonical import is_hash, moment_of, timestamp
from dlv.errors import DlvError
from dlv.repository.handle import Repository

TRIAL = "trial.json"
# A query writes the folders first, and then enters its trials into the ledger.
LEAST = datetime.timedelta(hours=1)


@dataclass(frozen=True)
class Unneeded:
    """A folder, or a file of data, that may go, with what it takes."""

    path: Path
    bytes: int


def unneeded(
    repository: Repository, grace: datetime.timedelta
) -> tuple[list[Unneeded], str | None]:
    """What nobody has touched for the time of grace, of no run or stopped in all of them.

    Where that cannot be known nothing may go, and the second tells why.
    """
    folder = repository.trials_folder
    if not folder.is_dir():
        return [], None
    needed: set[str] = set()
    if repository.trials_path.exists():
        try:
            with trials.open_store(repository) as store:
                needed = store.needed()
        except DlvError as error:
            return [], ": ".join(filter(None, (error.message, error.why)))
    latest = (moment_of(timestamp()) - max(grace, LEAST)).timestamp()
    found = []
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink() and path.name not in (*needed, trials.EXTRACTED):
            found += _untouched(path, latest)
    gone = {each.path.name for each in found}
    staying = [path for path in folder.iterdir() if is_hash(path.name) and path.name not in gone]
    return found + _unread(folder / trials.EXTRACTED, staying, latest), None


def _unread(data: Path, staying: Sequence[Path], latest: float) -> list[Unneeded]:
    """Files taken out of versions that none of these trials is trained on."""
    files = [path for path in sorted(data.iterdir()) if path.is_file()] if data.is_dir() else []
    try:
        read = {name for path in staying for name in _read_by(path)} if files else set()
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []  # of a trial that cannot be read nobody knows what it reads
    return [each for path in files if path.name not in read for each in _untouched(path, latest)]


def _read_by(trial: Path) -> list[str]:
    """Names of the files that a trial finds its data in."""
    if not (trial / TRIAL).exists():
        return []
    record = json.loads((trial / TRIAL).read_bytes())["record"]
    return [Path(path).name for path in record.get("paths", {}).values()]


def _untouched(path: Path, latest: float) -> list[Unneeded]:
    with suppress(FileNotFoundError):  # whoever made it has just given it its name
        touched, size = _extent(path)
        return [Unneeded(path, size)] if touched < latest else []
    return []


def _extent(place: Path) -> tuple[float, int]:
    """When a file, or anything in a folder, was written last; and the bytes."""
    status = place.lstat()
    touched, size = status.st_mtime, 0 if place.is_dir() else status.st_size
    for path in place.rglob("*"):
        with suppress(FileNotFoundError):  # of a trial that somebody is training
            status = path.lstat()
            touched, size = max(touched, status.st_mtime), size + status.st_size
    return touched, size


def discard(repository: Repository, found: Sequence[Unneeded]) -> None:
    """Out of sight first: half a folder would be taken for a trial."""
    for each in found:
        aside = repository.tmp / f"trial-{os.urandom(8).hex()}"
        durable.move_all([(each.path, aside)])
        if aside.is_dir():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            aside.unlink(missing_ok=True)
