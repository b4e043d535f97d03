"""Event files that become part of a version: a folder that is followed, or files staged."""

from __future__ import annotations

import posixpath
import tempfile
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

import dlv.curves.ingest as ingest
from dlv.curves.frozen import Add, freeze
from dlv.curves.restart_views import advice
from dlv.curves.store import LIVE, CurveStore
from dlv.dataclass import dataclass
from dlv.errors import UsageError
from dlv.events.provider.store import SeriesRow
from dlv.metadata.metrics import Summary


@dataclass
class EventLogs:
    """Curves that were read, ready to be frozen; `close` when that is done."""

    store: CurveStore
    experiment: int
    remarks: list[str] = field(default_factory=list)
    runs: Mapping[str, str] | None = None  # run -> what it is called in the version; None: all
    folder: tempfile.TemporaryDirectory[str] | None = None

    def series(self) -> list[tuple[str, SeriesRow]]:
        """(run, series); the folder itself is the run without a name."""
        found = self.store.series(self.experiment, runs=self.runs)
        names = {".": ""} if self.runs is None else self.runs
        return [(names.get(row.run, row.run), row) for row in found]

    def freeze(self, row: SeriesRow, run: str, add: Add) -> tuple[str, Summary | None]:
        return freeze(self.store, row, run, add)

    def close(self) -> None:
        self.store.close()
        if self.folder is not None:
            self.folder.cleanup()


def of_folder(repository: Path, directory: Path) -> EventLogs:
    """All runs below a folder. What was read of it before, in `.dlv/live.db`, is not read again."""
    store = CurveStore.open(repository / LIVE)
    try:
        done = ingest.scan(store, directory)
        if not done.runs:
            raise UsageError(f"there are no logs below {directory}", why=f"those are {ingest.WHAT}")
    except BaseException:
        store.close()
        raise
    return EventLogs(store, _experiment(store, done.experiment), _remarks(store, done))


def of_files(files: Mapping[str, Path]) -> EventLogs:
    """Files by their names in the version; a run is a folder, named from where they all are."""
    runs: dict[str, list[Path]] = {}
    top = posixpath.commonpath([posixpath.dirname(name) or "." for name in files]) if files else ""
    for name in sorted(files):
        runs.setdefault(posixpath.relpath(posixpath.dirname(name) or ".", top), []).append(
            files[name]
        )
    folder = tempfile.TemporaryDirectory(prefix="dlv-")
    try:
        store = CurveStore.open(Path(folder.name, LIVE))
        done = ingest.read_files(store, "", runs)
    except BaseException:
        folder.cleanup()
        raise
    return EventLogs(store, _experiment(store, ""), _remarks(store, done), folder=folder)


def _experiment(store: CurveStore, name: str) -> int:
    return next(key for key, known in store.experiments() if known == name)


def _remarks(store: CurveStore, done: ingest.Scanned) -> list[str]:
    back = advice(store, done.experiment)
    return [f"{path}: {what}" for path, what in done.remarks] + ([back] if back else [])
